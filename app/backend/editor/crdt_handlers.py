"""Editor data: add, read, update.

A document is made or changed before the transaction that writes it begins: it may take a second or two. The transaction
makes sure that nothing has changed since; if something has, all is done again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import orjson
from sqlalchemy import ColumnElement, Connection, insert, select, update

from app.backend.editor import editor_data
from app.backend.editor.editor_data import EditorDataError, OutgrownError
from app.backend.editor.tables import EDITOR_DATA
from app.backend.events import Event
from app.backend.http.call import Call, Reply
from app.backend.http.dispatch import exclusive_write
from app.backend.resources.containers import ensure_document, ensure_organization
from app.backend.scope import Scope, within
from app.backend.storage.paging import fetch_all
from app.contract.crdt import (
    DEFAULT_CONTENT_KEY,
    AddCrdtDataRequest,
    CrdtType,
    GetCrdtDataRequest,
    UpdateCrdtDataRequest,
)
from app.contract.errors import AlreadyExists, InvalidArgument, NotFound, ResourceExhausted, Unavailable
from app.database.engine import reading

NO_EDITOR = "data.editorId: Editor data does not exist."
_TRIES = 5
_HEAVY = 256 * 1024
"""Content or a document beyond so many bytes is worked on one at a time in a process."""


class _Stored(NamedTuple):
    """What an editor holds."""

    content_key: str
    state: bytes


def add_crdt_data(call: Call[AddCrdtDataRequest]) -> Reply:
    """Makes the organization and the document along the way, as Add Users does: the core operations have no other."""
    request = call.request
    scope = call.scope
    editor = _of_editor(scope, request.document_id, request.editor_id)
    with reading(call.backend.engine) as connection:
        _refuse_existing(connection, editor)
    content_key = request.content_key or DEFAULT_CONTENT_KEY
    with _saying_why():
        state = _new_state(call, request.type, content_key)
    with exclusive_write(call) as connection:
        _refuse_existing(connection, editor)
        ensure_organization(connection, scope, call.now)
        ensure_document(connection, scope, request.document_id, call.now)
        connection.execute(
            insert(EDITOR_DATA).values(
                **scope.columns(),
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
    """Makes ``data`` the content of the editor, by an edit of its document. Type and content key stay what they
    were."""
    request = call.request
    scope = call.scope
    editor = _of_editor(scope, request.document_id, request.editor_id)
    # Threads of this process take turns at one editor, so it is other processes alone that may come first.
    with call.backend.locks.of(f"{scope.api_key_id} {request.document_id} {request.editor_id}"):
        for _ in range(_TRIES):
            old = _stored(call, editor)
            with _saying_why():
                new = _changed_state(call, old)
            with exclusive_write(call) as connection:
                changed = connection.execute(
                    update(EDITOR_DATA)
                    .where(editor, EDITOR_DATA.c.state == old.state)
                    .values(state=new, updated_at=call.now)
                )
                if changed.rowcount:
                    call.emit(connection, [_event("crdt.update", request)])
                    return Reply("CRDT data updated.")
    raise Unavailable("the editor is being changed by others; try again")


def _refuse_existing(connection: Connection, editor: ColumnElement[bool]) -> None:
    if connection.scalar(select(EDITOR_DATA.c.editor_id).where(editor)) is not None:
        raise AlreadyExists("data.editorId: Editor data already exists.")


def _stored(call: Call[UpdateCrdtDataRequest], editor: ColumnElement[bool]) -> _Stored:
    """What the editor holds. Raises ``NotFound``, and ``InvalidArgument`` where it is of another kind."""
    request = call.request
    with reading(call.backend.engine) as connection:
        found = connection.execute(
            select(EDITOR_DATA.c.type, EDITOR_DATA.c.content_key, EDITOR_DATA.c.state).where(editor)
        ).one_or_none()
    if found is None:
        raise NotFound(NO_EDITOR)
    if request.type != found.type:
        raise InvalidArgument(f"data.type: the editor holds data of type {found.type}")
    if request.content_key not in {None, found.content_key}:
        raise InvalidArgument("data.contentKey: the editor holds its data under another content key")
    return _Stored(found.content_key, found.state)


def _new_state(call: Call[AddCrdtDataRequest], kind: CrdtType, content_key: str) -> bytes:
    with call.backend.locks.heavy(needed=_is_heavy(call.request.data)):
        return editor_data.new_state(kind, content_key, call.request.data, _client_id(call))


def _changed_state(call: Call[UpdateCrdtDataRequest], old: _Stored) -> bytes:
    request = call.request
    with call.backend.locks.heavy(needed=len(old.state) > _HEAVY or _is_heavy(request.data)):
        return editor_data.changed_state(old.state, request.type, old.content_key, request.data, _client_id(call))


def _is_heavy(data: object) -> bool:
    return len(orjson.dumps(data)) > _HEAVY


@contextmanager
def _saying_why() -> Iterator[None]:
    """Turns what is wrong with a document into what the caller is told."""
    try:
        yield
    except EditorDataError as error:
        raise InvalidArgument(f"data.data: {error}") from error
    except OutgrownError as error:
        raise ResourceExhausted(
            f"data.data: the editor, with what it remembers of earlier content, would be larger than"
            f" {editor_data.STATE_BYTES} bytes"
        ) from error


def get_crdt_data(call: Call[GetCrdtDataRequest], connection: Connection) -> Reply:
    request = call.request
    scope = call.scope
    query = select(
        EDITOR_DATA.c.editor_id,
        EDITOR_DATA.c.type,
        EDITOR_DATA.c.content_key,
        EDITOR_DATA.c.state,
        EDITOR_DATA.c.updated_at,
    ).where(within(EDITOR_DATA, scope), EDITOR_DATA.c.document_id == request.document_id)
    if request.editor_id is not None:
        query = query.where(EDITOR_DATA.c.editor_id == request.editor_id)
    found = connection.execute(query.order_by(EDITOR_DATA.c.editor_id))
    rows = fetch_all(found, "ask by editorId", lambda row: len(row.state))
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


def _of_editor(scope: Scope, document_id: str, editor_id: str) -> ColumnElement[bool]:
    return (
        within(EDITOR_DATA, scope) & (EDITOR_DATA.c.document_id == document_id) & (EDITOR_DATA.c.editor_id == editor_id)
    )


def _client_id(call: Call[AddCrdtDataRequest] | Call[UpdateCrdtDataRequest]) -> int:
    return call.backend.entropy.getrandbits(32)


def _event(event_type: str, request: AddCrdtDataRequest | UpdateCrdtDataRequest) -> Event:
    return Event(
        type=event_type,
        organization_id=request.organization_id,
        document_id=request.document_id,
        target_id=request.editor_id,
    )
