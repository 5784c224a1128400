"""Users, their entries on organizations, folders and documents, and their feature data.

A request addresses one level: a document with ``documentId``, a folder with ``folderId``, otherwise the organization.
Both ids together are an error.
"""

from typing import Self

from pydantic import ConfigDict, Field, model_validator

from app.contract.base import (
    AccessRole,
    Batch,
    EpochSeconds,
    Id,
    Ids,
    InOrganization,
    JsonObject,
    Paged,
    PageToken,
    ReadIds,
    Text,
    WireModel,
    WithMetadata,
)


class User(WireModel):
    """A user in a response. ``expiresAt`` (epoch seconds) is present if access ends."""

    user_id: str
    name: str | None = None
    email: str | None = None
    initial: str | None = None
    access_role: str | None = None
    expires_at: int | float | None = None


class UserInput(WithMetadata):
    """A user in a request.

    ``initial`` is derived from ``name`` if absent. An absent ``accessRole`` means ``editor``. ``expiresAt`` (epoch
    seconds) is the end of access at this level. Without it, access does not end.
    """

    user_id: Id
    name: Text | None = None
    email: Text | None = None
    initial: Text | None = None
    access_role: AccessRole | None = None
    expires_at: EpochSeconds | None = None


class _AtOneLevel(InOrganization):
    """A request about users at one level: the organization, a folder or a document.

    The reference leaves open whether adding and updating require ``organizationId``. It is required here.
    """

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"properties": {name: {"type": "null"}}} for name in ("documentId", "folderId")]}
    )

    document_id: Id | None = None
    folder_id: Id | None = None

    @model_validator(mode="after")
    def _check_level(self) -> Self:
        if self.document_id is not None and self.folder_id is not None:
            raise ValueError("give either documentId or folderId, not both")
        return self


class AddUsersRequest(_AtOneLevel):
    """Adds users at one level.

    Unknown organizations and documents are created; a folder only with ``createFolder``. ``createOrganization`` and
    ``createDocument`` have no effect.
    """

    users: Batch[UserInput]
    create_organization: bool | None = None
    create_folder: bool | None = None
    create_document: bool | None = None


class UpdateUsersRequest(_AtOneLevel):
    """Updates users' metadata, role and ``expiresAt`` at one level. Absent fields keep their values."""

    users: Batch[UserInput]


class GetUsersRequest(_AtOneLevel, Paged):
    """The users of one level.

    ``allDocuments`` reads the users of all documents instead. With ``groupByDocumentId`` the result maps document ids
    to users.
    """

    user_ids: ReadIds | None = None
    organization_user_group_ids: ReadIds | None = None
    all_documents: bool | None = None
    group_by_document_id: bool | None = None


class DeleteUsersRequest(_AtOneLevel):
    """Removes users from one level. From an organization means from everything in it."""

    user_ids: Ids


class GetAllUserDataRequest(InOrganization):
    user_id: Id
    page_token: PageToken | None = None


class UserData(WireModel):
    """A page of a user's data, with at most ``limits.USER_DATA_PAGE`` items of each list.

    The reference does not show the structure of items, and mentions memberships without a field for them.
    """

    memberships: list[JsonObject] = Field(default_factory=list)
    comments: list[JsonObject] = Field(default_factory=list)
    reactions: list[JsonObject] = Field(default_factory=list)
    recordings: list[JsonObject] = Field(default_factory=list)
    notifications: list[JsonObject] = Field(default_factory=list)
