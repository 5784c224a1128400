"""The client against an app in the same process."""

from collections.abc import Callable

import pytest
from flask import Flask, Response, request

from app.client.client import BackendClient
from app.client.errors import OperationMissing, OutcomeUnknown
from app.contract import operations
from app.contract.users import AddUsersRequest, GetUsersRequest
from tests.wsgi import WsgiAdapter

ADD = AddUsersRequest.from_wire({"organizationId": "ácme/☃", "users": [{"userId": "ada", "plan": "gold"}]})


@pytest.fixture
def backend() -> Flask:
    """Accepts users and records the requests."""
    app = Flask("backend")
    app.config["SEEN"] = []

    @app.post(operations.ADD_USERS.path)
    def _add() -> dict[str, object]:
        app.config["SEEN"].append((request.remote_addr, dict(request.headers), request.get_json()))
        values = operations.ADD_USERS.parse(request.get_json())
        return operations.ADD_USERS.respond("ok", {user.user_id: {"success": True} for user in values.users})

    @app.post(operations.GET_USERS.path)
    def _get() -> Response:
        return Response("not JSON", 200)

    return app


@pytest.fixture
def client(backend: Flask, connect: Callable[..., BackendClient]) -> BackendClient:
    return connect("http://backend.internal", parts={"transport": WsgiAdapter(backend)})


def test_wsgi_carries_body_and_headers(backend: Flask, client: BackendClient) -> None:
    answer = client.call(operations.ADD_USERS, ADD)
    assert answer.data["ada"].success
    ((address, headers, body),) = backend.config["SEEN"]
    assert address == "127.0.0.1"
    assert headers["X-Service-Api-Key"] == "key-of-acme-4711"
    assert headers["Host"] == "backend.internal"
    assert body == {"data": {"organizationId": "ácme/☃", "users": [{"userId": "ada", "plan": "gold"}]}}


def test_wsgi_responses_are_read_like_others(client: BackendClient) -> None:
    with pytest.raises(OutcomeUnknown):
        client.call(operations.GET_USERS, GetUsersRequest(organization_id="acme"))
    with pytest.raises(OperationMissing):
        client.call(operations.ADD_USERS, ADD, other_version=True)
