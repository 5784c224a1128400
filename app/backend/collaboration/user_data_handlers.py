"""A user's feature data, all of it."""

import orjson
from sqlalchemy import Connection

from app.backend.collaboration.user_data import readers
from app.backend.http.call import Call, Reply
from app.backend.http.registry import Registry
from app.backend.scope import Scope
from app.contract import operations
from app.contract.userdata import GetAllUserDataRequest

_FINISHED = ""


def register(registry: Registry) -> None:
    registry.add(operations.GET_ALL_USER_DATA, get_all_user_data)


def get_all_user_data(call: Call[GetAllUserDataRequest], connection: Connection) -> Reply:
    """A kind of data that has been read to its end is an empty list on the pages after that."""
    request = call.request
    scope = Scope(call.principal.api_key_id, request.organization_id)
    reached = call.position(request.page_token)
    data: dict[str, list[dict[str, object]]] = {}
    ends: list[str] = []
    for number, (name, read) in enumerate(readers(call.now).items()):
        if reached is not None and reached[number] == _FINISHED:
            data[name] = []
            ends.append(_FINISHED)
            continue
        after = None if reached is None else orjson.loads(reached[number])
        data[name], position = read(connection, scope, request.user_id, after)
        ends.append(_FINISHED if position is None else orjson.dumps(position).decode())
    token = call.next_page_token(ends) if any(ends) else None
    return Reply("User data retrieved successfully.", data, token)
