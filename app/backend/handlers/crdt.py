"""Editor data: add, read, update."""

from sqlalchemy import ColumnElement, Connection, insert, select, update

from app.backend import editor_data
from app.backend.call import Call, Reply, Scope
from app.backend.containers import ensure_document, ensure_organization, within
from app.backend.editor_data import EditorDataError
from app.backend.events import Event, emit
from app.backend.registry import Registry
from app.backend.schema import EDITOR_DATA
from app.contract import operations
from app.contract.crdt import DEFAULT_CONTENT_KEY, AddCrdtDataRequest, GetCrdtDataRequest, UpdateCrdtDataRequest
from app.contract.errors import AlreadyExists, InvalidArgument, NotFound

NO_EDITOR = "data.editorId: Editor data does not exist."


def register(registry: Registry) -> None:
    registry.add(operations.ADD_CRDT_DATA, add_crdt_data)
    registry.add(operations.GET_CRDT_DATA, get_crdt_data)
    registry.add(operations.UPDATE_CRDT_DATA, update_crdt_data)


def add_crdt_data(call: Call[AddCrdtDataRequest], connection: Connection) -> Reply:
    """Makes the organization and the document along the way, as Add Users does: the core operations have no other."""
    request = call.request
    scope = Scope(call.caller.api_key_id, request.organization_id)
    there = select(EDITOR_DATA.c.editor_id).where(_of_editor(scope, request.document_id, request.editor_id))
    if connection.scalar(there) is not None:
        raise AlreadyExists("data.editorId: Editor data already exists.")
    content_key = request.content_key or DEFAULT_CONTENT_KEY
    try:
        state = editor_data.new_state(request.type, content_key, request.data, _client_id(call))
    except EditorDataError as error:
        raise InvalidArgument(f"data.data: {error}") from error
    ensure_organization(connection, scope, call.now)
    ensure_document(connection, scope, request.document_id, call.now)
    connection.execute(
        insert(EDITOR_DATA).values(
            api_key_id=scope.api_key_id,
            organization_id=scope.organization_id,
            document_id=request.document_id,
            editor_id=request.editor_id,
            type=request.type,
            content_key=content_key,
            state=state,
            created_at=call.now,
            updated_at=call.now,
        )
    )
    emit(connection, call, [_event("crdt.add", request)])
    return Reply("CRDT data added.")


def update_crdt_data(call: Call[UpdateCrdtDataRequest], connection: Connection) -> Reply:
    """Makes `data` the content of the editor, by an edit of its document. Type and content key stay what they were."""
    request = call.request
    scope = Scope(call.caller.api_key_id, request.organization_id)
    editor = _of_editor(scope, request.document_id, request.editor_id)
    found = connection.execute(
        select(EDITOR_DATA.c.type, EDITOR_DATA.c.content_key, EDITOR_DATA.c.state).where(editor)
    ).one_or_none()
    if found is None:
        raise NotFound(NO_EDITOR)
    if request.type != found.type:
        raise InvalidArgument(f"data.type: the editor holds data of type {found.type}")
    if request.content_key not in {None, found.content_key}:
        raise InvalidArgument("data.contentKey: the editor holds its data under another content key")
    try:
        state = editor_data.changed_state(found.state, request.type, found.content_key, request.data, _client_id(call))
    except EditorDataError as error:
        raise InvalidArgument(f"data.data: {error}") from error
    connection.execute(update(EDITOR_DATA).where(editor).values(state=state, updated_at=call.now))
    emit(connection, call, [_event("crdt.update", request)])
    return Reply("CRDT data updated.")


def get_crdt_data(call: Call[GetCrdtDataRequest], connection: Connection) -> Reply:
    request = call.request
    scope = Scope(call.caller.api_key_id, request.organization_id)
    query = select(
        EDITOR_DATA.c.editor_id,
        EDITOR_DATA.c.type,
        EDITOR_DATA.c.content_key,
        EDITOR_DATA.c.state,
        EDITOR_DATA.c.updated_at,
    ).where(within(EDITOR_DATA, scope), EDITOR_DATA.c.document_id == request.document_id)
    if request.editor_id is not None:
        query = query.where(EDITOR_DATA.c.editor_id == request.editor_id)
    rows = connection.execute(query.order_by(EDITOR_DATA.c.editor_id)).all()
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
