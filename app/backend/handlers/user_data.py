"""A user's feature data, all of it."""

import orjson
from sqlalchemy import Connection

from app.backend.call import Call, Reply, Scope
from app.backend.features.user_data import READERS
from app.backend.registry import Registry
from app.contract import operations
from app.contract.userdata import GetAllUserDataRequest

_FINISHED = ""


def register(registry: Registry) -> None:
    registry.add(operations.GET_ALL_USER_DATA, get_all_user_data)


def get_all_user_data(call: Call[GetAllUserDataRequest], connection: Connection) -> Reply:
    """A kind of data that has been read to its end is an empty list on the pages after that."""
    request = call.request
    scope = Scope(call.caller.api_key_id, request.organization_id)
    reached = call.position(request.page_token)
    data: dict[str, list[dict[str, object]]] = {}
    ends: list[str] = []
    for number, (name, read) in enumerate(READERS.items()):
        if reached is not None and reached[number] == _FINISHED:
            data[name] = []
            ends.append(_FINISHED)
            continue
        after = None if reached is None else orjson.loads(reached[number])
        data[name], position = read(connection, scope, request.user_id, after)
        ends.append(_FINISHED if position is None else orjson.dumps(position).decode())
    token = call.next_page_token(ends) if any(ends) else None
    return Reply("User data retrieved successfully.", data, token)
