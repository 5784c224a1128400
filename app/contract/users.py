"""Users, and their entries on organizations, folders and documents.

A call addresses one level: a document with ``documentId``, a folder with ``folderId``, otherwise the organization.
Both together are an error.
"""

from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from app.contract import limits
from app.contract.base import (
    AccessRole,
    Described,
    EpochSeconds,
    Id,
    Ids,
    InOrganization,
    PageSize,
    PageToken,
    ReadIds,
    Text,
    WireModel,
    at_most_one_of,
    not_both_schema,
)


class User(WireModel):
    """A user as it is read. ``expiresAt`` (epoch seconds) comes where access was given for a time."""

    user_id: str
    name: str | None = None
    email: str | None = None
    initial: str | None = None
    access_role: str | None = None
    expires_at: int | float | None = None


class UserInput(Described):
    """A user as it is written, with metadata of the caller's choice.

    Only ``userId`` is required. ``initial`` is derived from ``name`` if omitted. An absent ``accessRole`` means
    ``editor``; ``model_fields_set`` shows whether it was given. ``expiresAt`` (epoch seconds, as in Get Users): the end
    of access at this level; without it, access does not end.
    """

    user_id: Id
    name: Text | None = None
    email: Text | None = None
    initial: Text | None = None
    access_role: AccessRole | None = None
    expires_at: EpochSeconds | None = None


class _AtOneLevel(InOrganization):
    """What every call on users shares. The reference leaves open whether ``organizationId`` is required for
    adding and updating; it is, because a call without it addresses nothing.
    """

    model_config = ConfigDict(json_schema_extra=not_both_schema("documentId", "folderId"))

    document_id: Id | None = None
    folder_id: Id | None = None

    @model_validator(mode="after")
    def _addresses_one_level(self) -> Self:
        at_most_one_of(self, "document_id", "folder_id")
        return self


class AddUsersRequest(_AtOneLevel):
    """Adds users at one level. An unknown organization is created; a folder or document on request."""

    users: Annotated[list[UserInput], Field(max_length=limits.BATCH_ITEMS)]
    create_organization: bool | None = None
    create_folder: bool | None = None
    create_document: bool | None = None


class UpdateUsersRequest(_AtOneLevel):
    """Updates users' metadata, role and ``expiresAt`` at one level; fields not given keep their values."""

    users: Annotated[list[UserInput], Field(max_length=limits.BATCH_ITEMS)]


class GetUsersRequest(_AtOneLevel):
    """One page of the users of one level.

    ``allDocuments`` reads the document users of all documents instead; with ``groupByDocumentId`` the result is
    an object of document ids.
    """

    user_ids: ReadIds | None = None
    organization_user_group_ids: ReadIds | None = None
    all_documents: bool | None = None
    group_by_document_id: bool | None = None
    page_size: PageSize | None = None
    page_token: PageToken | None = None


class DeleteUsersRequest(_AtOneLevel):
    """Removes users from one level; from an organization means from everything in it."""

    user_ids: Ids
