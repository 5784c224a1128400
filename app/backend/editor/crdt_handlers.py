"""Handlers of editor data."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, insert, select, update

from app.backend.editor import editor_data
from app.backend.editor.editor_data import EditorDataError, StateTooLargeError
from app.backend.editor.tables import EDITOR_DATA
from app.backend.events import Event
from app.backend.http.call import Call, Reply
from app.backend.resources.containers import ensure_document, ensure_organization
from app.backend.scope import within
from app.backend.storage.paging import fetch_all
from app.contract.crdt import DEFAULT_CONTENT_KEY, AddCrdtDataRequest, GetCrdtDataRequest, UpdateCrdtDataRequest
from app.contract.errors import AlreadyExists, InvalidArgument, NotFound, ResourceExhausted

NO_EDITOR = "data.editorId: Editor data does not exist."


def add_crdt_data(call: Call[AddCrdtDataRequest], connection: Connection) -> Reply:
    """Creates the organization and the document if they are missing, like Add Users."""
    request = call.request
    if connection.scalar(select(EDITOR_DATA.c.editor_id).where(*_editor(call))) is not None:
        raise AlreadyExists("data.editorId: Editor data already exists.")
    content_key = request.content_key or DEFAULT_CONTENT_KEY
    with _errors_of_the_api():
        state = editor_data.new_state(request.type, content_key, request.data, call.backend.entropy.getrandbits(32))
    ensure_organization(connection, call.scope, call.now)
    ensure_document(connection, call.scope, request.document_id, call.now)
    connection.execute(
        insert(EDITOR_DATA).values(
            **call.scope.columns(),
            document_id=request.document_id,
            editor_id=request.editor_id,
            type=request.type,
            content_key=content_key,
            state=state,
            created_at=call.now,
            updated_at=call.now,
        )
    )
    call.emit(connection, [_event("crdt.add", request)])
    return Reply("CRDT data added.")


def update_crdt_data(call: Call[UpdateCrdtDataRequest], connection: Connection) -> Reply:
    """Edits the document so that its content is ``data``. Type and content key do not change."""
    request = call.request
    query = select(EDITOR_DATA.c.type, EDITOR_DATA.c.content_key, EDITOR_DATA.c.state).where(*_editor(call))
    old = connection.execute(query).one_or_none()
    if old is None:
        raise NotFound(NO_EDITOR)
    if request.type != old.type:
        raise InvalidArgument(f"data.type: the editor holds data of type {old.type}")
    if request.content_key not in {None, old.content_key}:
        raise InvalidArgument("data.contentKey: the editor holds its data under another content key")
    client_id = call.backend.entropy.getrandbits(32)
    with _errors_of_the_api():
        new = editor_data.changed_state(old.state, request.type, old.content_key, request.data, client_id)
    connection.execute(update(EDITOR_DATA).where(*_editor(call)).values(state=new, updated_at=call.now))
    call.emit(connection, [_event("crdt.update", request)])
    return Reply("CRDT data updated.")


def get_crdt_data(call: Call[GetCrdtDataRequest], connection: Connection) -> Reply:
    request = call.request
    of_document = EDITOR_DATA.c.document_id == request.document_id
    query = select(EDITOR_DATA).where(within(EDITOR_DATA, call.scope), of_document)
    if request.editor_id is not None:
        query = query.where(EDITOR_DATA.c.editor_id == request.editor_id)
    result = connection.execute(query.order_by(EDITOR_DATA.c.editor_id))
    rows = fetch_all(result, "ask by editorId", lambda row: len(row.state))
    if request.editor_id is not None and not rows:
        raise NotFound(NO_EDITOR)
    data = [
        {
            "editorId": row.editor_id,
            "organizationId": request.organization_id,
            "documentId": request.document_id,
            "data": editor_data.value_of(row.state, row.type, row.content_key),
            "type": row.type,
            "contentKey": row.content_key,
            "lastUpdated": row.updated_at,
        }
        for row in rows
    ]
    return Reply("CRDT data retrieved successfully.", data)


@contextmanager
def _errors_of_the_api() -> Iterator[None]:
    """Converts the errors of an edit to those of the API."""
    try:
        yield
    except EditorDataError as error:
        raise InvalidArgument(f"data.data: {error}") from error
    except StateTooLargeError as error:
        raise ResourceExhausted(
            f"data.data: the editor, with its traces of earlier content, would be larger than"
            f" {editor_data.STATE_BYTES} bytes"
        ) from error


def _editor(call: Call[AddCrdtDataRequest] | Call[UpdateCrdtDataRequest]) -> tuple[Any, ...]:
    """The condition for the row of the requested editor."""
    table, request = EDITOR_DATA.c, call.request
    of_document = (within(EDITOR_DATA, call.scope), table.document_id == request.document_id)
    return (*of_document, table.editor_id == request.editor_id)


def _event(event_type: str, request: AddCrdtDataRequest | UpdateCrdtDataRequest) -> Event:
    return Event(
        type=event_type,
        organization_id=request.organization_id,
        document_id=request.document_id,
        target_id=request.editor_id,
    )
