"""Documents, each in a folder of its organization or at the top level."""

from typing import Annotated, Literal

from pydantic import Field

from app.contract import limits
from app.contract.base import AccessType, Batch, Id, Ids, InOrganization, Paged, ReadIds, Text, WireModel, WithMetadata


class Document(WireModel):
    """A document in a response."""

    id: str
    document_name: str | None = None
    access_type: str | None = None
    disabled: bool | None = None


class DocumentInput(WithMetadata):
    """A document in a request."""

    document_id: Id
    document_name: Text | None = None


class AddDocumentsRequest(InOrganization):
    """Adds documents to a folder. Without ``folderId``, to the top of the tree."""

    documents: Batch[DocumentInput]
    folder_id: Id | None = None
    create_organization: bool | None = None
    create_folder: bool | None = None


class UpdateDocumentsRequest(InOrganization):
    documents: Batch[DocumentInput]


class GetDocumentsRequest(InOrganization, Paged):
    """The documents of an organization or folder, or those with these ids."""

    document_ids: ReadIds | None = None
    folder_id: Id | None = None


class MoveDocumentsRequest(InOrganization):
    """Moves documents to a folder, or to the top of the tree (``folders.ROOT_FOLDER_ID``)."""

    document_ids: Annotated[list[Id], Field(max_length=limits.MOVE_DOCUMENTS)]
    folder_id: Id


class UpdateDocumentAccessRequest(InOrganization):
    document_ids: Ids
    access_type: AccessType


class DeleteDocumentsRequest(InOrganization):
    """Both fields are required here, although the reference does not mark them."""

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
