"""Documents, each in a folder of its organization or at the top level."""

from typing import Annotated, Literal

from pydantic import Field

from app.contract import limits
from app.contract.base import (
    AccessType,
    Described,
    Id,
    Ids,
    InOrganization,
    PageSize,
    PageToken,
    ReadIds,
    Text,
    WireModel,
)


class Document(WireModel):
    """A document as it is read."""

    id: str
    document_name: str | None = None
    access_type: str | None = None
    disabled: bool | None = None


class DocumentInput(Described):
    """A document as it is written, with metadata of the caller's choice."""

    document_id: Id
    document_name: Text | None = None


class AddDocumentsRequest(InOrganization):
    """Adds documents to ``folderId``, or at the top of the tree without one."""

    documents: Annotated[list[DocumentInput], Field(max_length=limits.BATCH_ITEMS)]
    folder_id: Id | None = None
    create_organization: bool | None = None
    create_folder: bool | None = None


class UpdateDocumentsRequest(InOrganization):
    documents: Annotated[list[DocumentInput], Field(max_length=limits.BATCH_ITEMS)]


class GetDocumentsRequest(InOrganization):
    """One page of the documents of an organization, of a folder, or of those named."""

    document_ids: ReadIds | None = None
    folder_id: Id | None = None
    page_size: PageSize | None = None
    page_token: PageToken | None = None


class MoveDocumentsRequest(InOrganization):
    """Moves documents to a folder, or to the top of the tree (``folders.ROOT_FOLDER_ID``)."""

    document_ids: Annotated[list[Id], Field(max_length=limits.MOVE_DOCUMENTS)]
    folder_id: Id


class UpdateDocumentAccessRequest(InOrganization):
    document_ids: Ids
    access_type: AccessType


class DeleteDocumentsRequest(InOrganization):
    """The reference marks neither field as required; without one of them there is nothing to delete."""

    document_ids: Ids


class MigrateDocumentsRequest(InOrganization):
    """Moves a document's data to another id."""

    document_id: Id
    new_document_id: Id


class MigrationStarted(WireModel):
    migration_id: str


class MigrateDocumentsStatusRequest(InOrganization):
    migration_id: Id


MigrationState = Literal["pending", "in_progress", "completed", "failed"]


class MigrationStatus(WireModel):
    migration_id: str
    status: MigrationState
