"""Handlers of documents: add, read, update, move, set the access type, delete."""

from collections.abc import Iterable
from typing import get_args

from sqlalchemy import Connection, Row, select, update

from app.backend.http.call import Call, Reply
from app.backend.http.results import Results, all_failed, by_id, done, merge_payload, merged_by_id, per_id
from app.backend.resources.containers import (
    NO_DOCUMENT,
    NO_FOLDER,
    NO_ORGANIZATION,
    ensure_folder,
    ensure_organization,
    folder_exists,
    organization_exists,
)
from app.backend.resources.folder_handlers import stored_parent
from app.backend.resources.folder_tree import TOP
from app.backend.resources.tables import DOCUMENT, FOLDER
from app.backend.resources.user_entries import delete_entries
from app.backend.scope import Scope, delete_rows, existing, within, within_ids
from app.backend.storage import json_columns
from app.backend.storage.rows import insert_rows, update_rows, where_given
from app.contract.base import AccessType
from app.contract.documents import (
    AddDocumentsRequest,
    DeleteDocumentsRequest,
    DocumentInput,
    GetDocumentsRequest,
    MoveDocumentsRequest,
    UpdateDocumentAccessRequest,
    UpdateDocumentsRequest,
)
from app.contract.errors import NotFound
from app.contract.folders import ROOT_FOLDER_ID

_JoinedRow = Row[str, str, str | None, str, str | None]
_ACCESS_TYPES = frozenset(get_args(AccessType))


def add_documents(call: Call[AddDocumentsRequest], connection: Connection) -> Reply:
    scope = call.scope
    documents = by_id(call.request.documents, "document_id")
    if not documents:
        return Reply("No documents to add.", {})
    folder_id = stored_parent(call.request.folder_id)
    problem = _ensure_containers(call, connection, folder_id)
    if problem is not None:
        return Reply("Documents processed.", all_failed(documents, problem))
    stored = existing(connection, scope, DOCUMENT.c.document_id, documents)
    new = {document_id: document for document_id, document in documents.items() if document_id not in stored}
    rows = [
        scope.payload_row(
            _payload(document),
            call.now,
            document_id=document_id,
            folder_id=folder_id,
            own_access_type=_access_type(document),
        )
        for document_id, document in new.items()
    ]
    insert_rows(connection, DOCUMENT, rows)
    return Reply("Documents processed.", per_id(documents, new, "Document added.", "Document already exists."))


def update_documents(call: Call[UpdateDocumentsRequest], connection: Connection) -> Reply:
    scope = call.scope
    documents = merged_by_id(call.request.documents, "document_id")
    query = select(DOCUMENT.c.document_id, DOCUMENT.c.payload, DOCUMENT.c.own_access_type).where(
        within_ids(connection, scope, DOCUMENT.c.document_id, documents)
    )
    stored = connection.execute(query).all()
    payloads = {row.document_id: json_columns.load_object(row.payload) for row in stored}
    access_types = {row.document_id: row.own_access_type for row in stored}
    results: Results = {
        document_id: merge_payload(
            document_id, payloads.get(document_id), _payload(document), missing=NO_DOCUMENT, updated="Document updated."
        )
        for document_id, document in documents.items()
    }
    # The last valid one of several items with one id.
    for document in call.request.documents:
        if results[document.document_id]["success"]:
            access_types[document.document_id] = _access_type(document) or access_types[document.document_id]
    rows = [
        scope.payload_row(payload, call.now, document_id=document_id, own_access_type=access_types[document_id])
        for document_id, payload in payloads.items()
    ]
    update_rows(connection, DOCUMENT, ("own_access_type", "payload", "updated_at"), rows)
    return Reply("Documents processed.", results)


def get_documents(call: Call[GetDocumentsRequest], connection: Connection) -> Reply:
    request = call.request
    query = (
        select(
            DOCUMENT.c.document_id,
            DOCUMENT.c.folder_id,
            DOCUMENT.c.own_access_type,
            DOCUMENT.c.payload,
            FOLDER.c.access_type.label("folder_access_type"),
        )
        .outerjoin(
            FOLDER,
            (FOLDER.c.api_key_id == DOCUMENT.c.api_key_id)
            & (FOLDER.c.organization_id == DOCUMENT.c.organization_id)
            & (FOLDER.c.folder_id == DOCUMENT.c.folder_id),
        )
        .where(within(DOCUMENT, call.scope))
    )
    folder_id = None if request.folder_id is None else stored_parent(request.folder_id)
    query = where_given(
        connection, query, (DOCUMENT.c.document_id, request.document_ids), (DOCUMENT.c.folder_id, folder_id)
    )
    page, token = call.page(connection, query, (DOCUMENT.c.document_id,))
    default = call.backend.settings.default_access_type
    return Reply("Document(s) retrieved successfully.", [_to_wire(row, default) for row in page], token)


def move_documents(call: Call[MoveDocumentsRequest], connection: Connection) -> Reply:
    """Moves all or none, because the response has no results of items."""
    scope = call.scope
    folder_id = stored_parent(call.request.folder_id)
    if folder_id != TOP and not folder_exists(connection, scope, folder_id):
        raise NotFound(f"data.folderId: {NO_FOLDER}")
    stored = existing(connection, scope, DOCUMENT.c.document_id, call.request.document_ids)
    for number, document_id in enumerate(call.request.document_ids):
        if document_id not in stored:
            raise NotFound(f"data.documentIds[{number}]: {NO_DOCUMENT}")
    _update(connection, scope, stored, {"folder_id": folder_id, "updated_at": call.now})
    return Reply("Document(s) moved.", None)


def update_document_access(call: Call[UpdateDocumentAccessRequest], connection: Connection) -> Reply:
    access_type = call.request.access_type
    document_ids = dict.fromkeys(call.request.document_ids)
    stored = existing(connection, call.scope, DOCUMENT.c.document_id, document_ids)
    _update(connection, call.scope, stored, {"own_access_type": access_type, "updated_at": call.now})
    results: Results = {
        document_id: {"success": True, "accessType": access_type, "message": "Document access updated."}
        if document_id in stored
        else {"success": False, "message": NO_DOCUMENT}
        for document_id in document_ids
    }
    return Reply("Document access processed.", results)


def delete_documents(call: Call[DeleteDocumentsRequest], connection: Connection) -> Reply:
    """Deleting a document that does not exist succeeds."""
    scope = call.scope
    document_ids = dict.fromkeys(call.request.document_ids)
    stored = existing(connection, scope, DOCUMENT.c.document_id, document_ids)
    delete_entries(connection, scope, "document", stored)
    for delete_dependent in call.backend.on_documents_deleted:
        delete_dependent(connection, scope, stored)
    delete_rows(connection, scope, DOCUMENT.c.document_id, stored)
    results: Results = {
        document_id: done(document_id, "Deleted Successfully" if document_id in stored else "Document does not exist")
        for document_id in document_ids
    }
    return Reply("Document(s) deleted successfully.", results)


def _ensure_containers(call: Call[AddDocumentsRequest], connection: Connection, folder_id: str) -> str | None:
    """Creates the containers that the request allows to create, or none and returns the problem."""
    request, scope = call.request, call.scope
    has_organization = organization_exists(connection, scope)
    if not has_organization and not request.create_organization:
        return NO_ORGANIZATION
    lacks_folder = folder_id != TOP and not folder_exists(connection, scope, folder_id)
    if lacks_folder and not request.create_folder:
        return NO_FOLDER
    if not has_organization:
        ensure_organization(connection, scope, call.now)
    if lacks_folder:
        ensure_folder(connection, scope, folder_id, call.backend.settings, call.now)
    return None


def _update(connection: Connection, scope: Scope, document_ids: Iterable[str], values: dict[str, object]) -> None:
    of_documents = within_ids(connection, scope, DOCUMENT.c.document_id, document_ids)
    connection.execute(update(DOCUMENT).where(of_documents).values(**values))


def _to_wire(row: _JoinedRow, default_access_type: str) -> dict[str, object]:
    payload = json_columns.load_object(row.payload)
    return {
        "documentName": row.document_id,
        **payload,
        "id": row.document_id,
        "accessType": row.own_access_type or row.folder_access_type or default_access_type,
        "inheritAccessFromParent": row.own_access_type is None,
        "disabled": payload.get("disabled") is True,
        "folderId": row.folder_id or ROOT_FOLDER_ID,
    }


def _access_type(document: DocumentInput) -> str | None:
    """The undeclared ``accessType``, if it is valid: a document sent as ``restricted`` must not be more open."""
    access_type = document.unknown_fields().get("accessType")
    return access_type if isinstance(access_type, str) and access_type in _ACCESS_TYPES else None


def _payload(document: DocumentInput) -> dict[str, object]:
    payload = document.unknown_fields()
    payload.pop("accessType", None)
    return payload | json_columns.without_none(documentName=document.document_name)
