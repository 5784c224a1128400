"""Organizations: the tenants of folders, documents, groups and users."""

from app.contract.base import Batch, Id, Ids, Paged, ReadIds, Request, Text, WireModel, WithMetadata


class Organization(WireModel):
    """An organization in a response."""

    id: str
    organization_name: str | None = None
    disabled: bool | None = None


class OrganizationInput(WithMetadata):
    """An organization in a request. Its default name is its id."""

    organization_id: Id
    organization_name: Text | None = None
    disabled: bool | None = None


class GetOrganizationsV1Request(Request):
    """All organizations, or those with these ids."""

    organization_ids: ReadIds | None = None


class GetOrganizationsRequest(Paged):
    """All organizations, or those with these ids."""

    organization_ids: Ids | None = None


class AddOrganizationsRequest(Request):
    organizations: Batch[OrganizationInput]


class UpdateOrganizationsRequest(Request):
    organizations: Batch[OrganizationInput]


class DeleteOrganizationsRequest(Request):
    organization_ids: Ids


class DisableOrganizationsRequest(Request):
    """Sets ``disabled`` of the organizations."""

    organization_ids: Ids
    disabled: bool
