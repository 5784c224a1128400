"""Folders: one tree per organization. Access is inherited from parents."""

from typing import Annotated, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from app.contract import limits
from app.contract.base import (
    AccessType,
    AsWhole,
    Described,
    Id,
    Ids,
    InOrganization,
    JsonObject,
    Text,
    WireModel,
    at_most_one_of,
)

ROOT_FOLDER_ID = "root"
"""Names the top of the tree: as ``parentFolderId`` of a folder that has no parent, in Update Folder and as
``folderId`` in Move Documents to move there. No folder can have this id."""


def _not_the_root(folder_id: str) -> str:
    if folder_id == ROOT_FOLDER_ID:
        raise ValueError(f'"{ROOT_FOLDER_ID}" names the top of the tree and cannot be the id of a folder')
    return folder_id


FolderId = Annotated[Id, AfterValidator(_not_the_root), Field(json_schema_extra={"not": {"const": ROOT_FOLDER_ID}})]
"""The id of a folder that is one."""


class Folder(WireModel):
    """A folder as it is read. ``ancestors`` and ``accessType`` are maintained by the service."""

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


class FolderInput(Described):
    """A folder to add or update. Without ``accessType``, a new folder inherits. Update Folder ignores it."""

    folder_id: FolderId
    folder_name: Text | None = None
    parent_folder_id: Id | None = None
    access_type: AccessType | None = None


class AddFolderRequest(InOrganization):
    folders: Annotated[list[FolderInput], Field(max_length=limits.BATCH_ITEMS)]
    create_organization: bool | None = None
    create_folder: bool | None = None


class UpdateFolderRequest(InOrganization):
    """A ``parentFolderId`` moves the folder with everything in it."""

    folders: Annotated[list[FolderInput], Field(max_length=limits.BATCH_ITEMS)]


class GetFoldersRequest(InOrganization):
    """The folders of an organization, or the folder named, with subfolders down to ``maxDepth`` levels
    below."""

    folder_id: Id | None = None
    max_depth: Annotated[int, Field(ge=0, le=limits.FOLDER_DEPTH_MAX), AsWhole] | None = None


class DeleteFolderRequest(InOrganization):
    """Deletes the folder with its documents and subfolders."""

    folder_id: FolderId


def _one_of_type_and_inheritance(schema: JsonObject) -> None:
    has_type: JsonObject = {"required": ["accessType"], "properties": {"accessType": {"type": "string"}}}
    inherits: JsonObject = {
        "required": ["inheritFromParent"],
        "properties": {"inheritFromParent": {"const": True}},
    }
    schema["oneOf"] = [has_type, inherits]


class UpdateFolderAccessRequest(InOrganization):
    """Sets the access type of folders, or removes it with ``inheritFromParent`` true."""

    model_config = ConfigDict(json_schema_extra=_one_of_type_and_inheritance)

    folder_ids: Ids
    access_type: AccessType | None = None
    inherit_from_parent: bool | None = None

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if self.inherit_from_parent:
            at_most_one_of(self, "access_type", "inherit_from_parent")
        elif self.access_type is None:
            raise ValueError("give either accessType or inheritFromParent true")
        return self
