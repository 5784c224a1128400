"""Handlers of editor data.

A write edits the document before its transaction begins, because that may take a second or two. The transaction then
checks that the stored document has not changed. If it has, the handler edits the new one.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import Lock
from typing import Any
from zlib import crc32

import orjson
from sqlalchemy import Connection, Row, insert, select, update

from app.backend.editor import editor_data
from app.backend.editor.editor_data import EditorDataError, StateTooLargeError
from app.backend.editor.tables import EDITOR_DATA
from app.backend.events import Event
from app.backend.http.call import Call, Reply
from app.backend.resources.containers import ensure_document, ensure_organization
from app.backend.scope import within
from app.backend.storage.paging import fetch_all
from app.contract.crdt import DEFAULT_CONTENT_KEY, AddCrdtDataRequest, GetCrdtDataRequest, UpdateCrdtDataRequest
from app.contract.errors import AlreadyExists, InvalidArgument, NotFound, ResourceExhausted, Unavailable
from app.foundation.database.engine import reading

NO_EDITOR = "data.editorId: Editor data does not exist."
_ATTEMPTS = 5
_LARGE_BYTES = 256 * 1024
_LARGE_LOCK = Lock()
"""A process edits documents of this size or with this much content one at a time, to bound its memory."""
_EDITOR_LOCKS = tuple(Lock() for _ in range(64))
"""Several editors share a lock."""

_Write = Call[AddCrdtDataRequest] | Call[UpdateCrdtDataRequest]


def add_crdt_data(call: Call[AddCrdtDataRequest]) -> Reply:
    """Creates the organization and the document if they are missing, like Add Users."""
    request = call.request
    with reading(call.backend.engine) as connection:
        _refuse_existing(call, connection)
    content_key = request.content_key or DEFAULT_CONTENT_KEY
    with _editing(call):
        state = editor_data.new_state(request.type, content_key, request.data, call.backend.entropy.getrandbits(32))
    with call.exclusive_write() as connection:
        _refuse_existing(call, connection)
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


def update_crdt_data(call: Call[UpdateCrdtDataRequest]) -> Reply:
    """Edits the document so that its content is ``data``. Type and content key do not change."""
    request = call.request
    # The lock serializes the threads of this process, so that only other processes cause another attempt.
    name = f"{call.scope.api_key_id} {request.document_id} {request.editor_id}"
    with _EDITOR_LOCKS[crc32(name.encode()) % len(_EDITOR_LOCKS)]:
        for _ in range(_ATTEMPTS):
            old = _stored(call)
            client_id = call.backend.entropy.getrandbits(32)
            with _editing(call, old.state):
                new = editor_data.changed_state(old.state, request.type, old.content_key, request.data, client_id)
            with call.exclusive_write() as connection:
                updated = connection.execute(
                    update(EDITOR_DATA)
                    .where(*_editor(call), EDITOR_DATA.c.state == old.state)
                    .values(state=new, updated_at=call.now)
                )
                if updated.rowcount:
                    call.emit(connection, [_event("crdt.update", request)])
                    return Reply("CRDT data updated.")
    raise Unavailable("the editor is being changed by others; try again")


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


def _refuse_existing(call: Call[AddCrdtDataRequest], connection: Connection) -> None:
    if connection.scalar(select(EDITOR_DATA.c.editor_id).where(*_editor(call))) is not None:
        raise AlreadyExists("data.editorId: Editor data already exists.")


def _stored(call: Call[UpdateCrdtDataRequest]) -> Row[str, str, bytes]:
    """The stored document. Raises ``NotFound``, or ``InvalidArgument`` if its type or content key differ."""
    request = call.request
    query = select(EDITOR_DATA.c.type, EDITOR_DATA.c.content_key, EDITOR_DATA.c.state).where(*_editor(call))
    with reading(call.backend.engine) as connection:
        stored = connection.execute(query).one_or_none()
    if stored is None:
        raise NotFound(NO_EDITOR)
    if request.type != stored.type:
        raise InvalidArgument(f"data.type: the editor holds data of type {stored.type}")
    if request.content_key not in {None, stored.content_key}:
        raise InvalidArgument("data.contentKey: the editor holds its data under another content key")
    return stored


@contextmanager
def _editing(call: _Write, old_state: bytes = b"") -> Iterator[None]:
    """Serializes edits of large documents, and converts errors to those of the API."""
    is_large = max(len(old_state), len(orjson.dumps(call.request.data))) > _LARGE_BYTES
    try:
        with _LARGE_LOCK if is_large else nullcontext():
            yield
    except EditorDataError as error:
        raise InvalidArgument(f"data.data: {error}") from error
    except StateTooLargeError as error:
        raise ResourceExhausted(
            f"data.data: the editor, with its traces of earlier content, would be larger than"
            f" {editor_data.STATE_BYTES} bytes"
        ) from error


def _editor(call: _Write) -> tuple[Any, ...]:
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
