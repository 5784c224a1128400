"""Organizations: the tenants that folders, documents, groups and users belong to.

They carry metadata of the caller's choice, which travels as it came.
"""

from typing import Annotated

from pydantic import Field

from app.contract import limits
from app.contract.base import Described, Id, Ids, PageSize, PageToken, ReadIds, Request, Text, WireModel


class Organization(WireModel):
    """An organization as it is read."""

    id: str
    organization_name: str | None = None
    disabled: bool | None = None


class OrganizationInput(Described):
    """An organization as it is written. Without a name it goes by its id."""

    organization_id: Id
    organization_name: Text | None = None
    disabled: bool | None = None


class GetOrganizationsV1Request(Request):
    """All organizations when ``organizationIds`` is omitted."""

    organization_ids: ReadIds | None = None


class GetOrganizationsRequest(Request):
    """One page of the organizations, or of those named."""

    organization_ids: Ids | None = None
    page_size: PageSize | None = None
    page_token: PageToken | None = None


class AddOrganizationsRequest(Request):
    organizations: Annotated[list[OrganizationInput], Field(max_length=limits.BATCH_ITEMS)]


class UpdateOrganizationsRequest(Request):
    organizations: Annotated[list[OrganizationInput], Field(max_length=limits.BATCH_ITEMS)]


class DeleteOrganizationsRequest(Request):
    organization_ids: Ids


class DisableOrganizationsRequest(Request):
    """Sets ``disabled`` of the named organizations."""

    organization_ids: Ids
    disabled: bool
