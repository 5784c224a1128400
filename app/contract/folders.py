"""Folders: one tree per organization. Access is inherited from parents."""

from typing import Annotated, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from app.contract import limits
from app.contract.base import (
    AccessType,
    AsWhole,
    Batch,
    Id,
    Ids,
    InOrganization,
    JsonObject,
    Text,
    WireModel,
    WithMetadata,
)

ROOT_FOLDER_ID = "root"
"""The top of the tree, as a ``parentFolderId``, and as the ``folderId`` of Move Documents. No folder can have this
id."""


def _is_not_root(folder_id: str) -> str:
    if folder_id == ROOT_FOLDER_ID:
        raise ValueError(f'"{ROOT_FOLDER_ID}" names the top of the tree and cannot be the id of a folder')
    return folder_id


FolderId = Annotated[Id, AfterValidator(_is_not_root), Field(json_schema_extra={"not": {"const": ROOT_FOLDER_ID}})]
"""The id of a real folder."""


class Folder(WireModel):
    """A folder in a response. The backend maintains ``ancestors``. ``accessType`` is the effective one."""

    folder_id: str
    folder_name: str | None = None
    organization_id: str | None = None
    parent_folder_id: str | None = None
    ancestors: list[str] | None = None
    access_type: str | None = None
    inherit_access_from_parent: bool | None = None
    created_at: int | float | str | None = None
    last_updated: int | float | str | None = None
    sub_folders: "list[Folder] | None" = None


class FolderInput(WithMetadata):
    """A folder to add or update. Without ``accessType``, a new folder inherits. Update Folder ignores it."""

    folder_id: FolderId
    folder_name: Text | None = None
    parent_folder_id: Id | None = None
    access_type: AccessType | None = None


class AddFolderRequest(InOrganization):
    folders: Batch[FolderInput]
    create_organization: bool | None = None
    create_folder: bool | None = None


class UpdateFolderRequest(InOrganization):
    """Renames folders. A ``parentFolderId`` moves the folder with everything in it."""

    folders: Batch[FolderInput]


class GetFoldersRequest(InOrganization):
    """A folder, or all at the top of the tree, with subfolders down to ``maxDepth`` levels below."""

    folder_id: Id | None = None
    max_depth: Annotated[int, Field(ge=0, le=limits.FOLDER_DEPTH_MAX), AsWhole] | None = None


class DeleteFolderRequest(InOrganization):
    """Deletes the folder with its documents and subfolders."""

    folder_id: FolderId


_TYPE_OR_INHERITANCE: JsonObject = {
    "oneOf": [
        {"required": ["accessType"], "properties": {"accessType": {"type": "string"}}},
        {"required": ["inheritFromParent"], "properties": {"inheritFromParent": {"const": True}}},
    ]
}


class UpdateFolderAccessRequest(InOrganization):
    """Sets the access type of folders, or removes it with ``inheritFromParent`` true."""

    model_config = ConfigDict(json_schema_extra=_TYPE_OR_INHERITANCE)

    folder_ids: Ids
    access_type: AccessType | None = None
    inherit_from_parent: bool | None = None

    @model_validator(mode="after")
    def _check_type_or_inheritance(self) -> Self:
        if self.inherit_from_parent and self.access_type is not None:
            raise ValueError("give either accessType or inheritFromParent, not both")
        if not self.inherit_from_parent and self.access_type is None:
            raise ValueError("give either accessType or inheritFromParent true")
        return self
