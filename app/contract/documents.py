"""Documents, each in a folder of its organization or at the top level."""

from typing import Annotated, Literal

from pydantic import Field

from app.contract import limits
from app.contract.base import AccessType, Described, Id, Ids, PageSize, PageToken, ReadIds, Request, Text, WireModel


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


class AddDocumentsRequest(Request):
    """Adds documents to ``folderId``, or at the top of the tree without one."""

    organization_id: Id
    documents: Annotated[list[DocumentInput], Field(max_length=limits.BATCH_ITEMS)]
    folder_id: Id | None = None
    create_organization: bool | None = None
    create_folder: bool | None = None


class UpdateDocumentsRequest(Request):
    organization_id: Id
    documents: Annotated[list[DocumentInput], Field(max_length=limits.BATCH_ITEMS)]


class GetDocumentsRequest(Request):
    """One page of the documents of an organization, of a folder, or of those named."""

    organization_id: Id
    document_ids: ReadIds | None = None
    folder_id: Id | None = None
    page_size: PageSize | None = None
    page_token: PageToken | None = None


class MoveDocumentsRequest(Request):
    """Moves documents to a folder, or to the top of the tree (``folders.ROOT_FOLDER_ID``)."""

    organization_id: Id
    document_ids: Annotated[list[Id], Field(max_length=limits.MOVE_DOCUMENTS)]
    folder_id: Id


class UpdateDocumentAccessRequest(Request):
    organization_id: Id
    document_ids: Ids
    access_type: AccessType


class DeleteDocumentsRequest(Request):
    """The reference marks neither field as required; without one of them there is nothing to delete."""

    organization_id: Id
    document_ids: Ids


class MigrateDocumentsRequest(Request):
    """Moves a document's data to another id."""

    organization_id: Id
    document_id: Id
    new_document_id: Id


class MigrationStarted(WireModel):
    migration_id: str


class MigrateDocumentsStatusRequest(Request):
    organization_id: Id
    migration_id: Id


MigrationState = Literal["pending", "in_progress", "completed", "failed"]


class MigrationStatus(WireModel):
    migration_id: str
    status: MigrationState
