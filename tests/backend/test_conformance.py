"""Every operation, under each of its paths, conforms to the contract."""

import ipaddress
import itertools
from typing import Any

import jsonschema_rs
import orjson
import pytest
from pydantic import SecretStr

from app.client.client import BackendClient
from app.client.credentials import WorkspaceCredentials
from app.client.settings import BackendSettings
from app.contract.errors import Status
from app.contract.openapi import document
from app.contract.operation import AnyOperation, AuthLevel
from app.contract.operations import OPERATIONS
from tests.choice import sampled
from tests.wsgi import WsgiAdapter

from .conftest import BackendWorld, error_of
from .sampling import SAMPLES, Actor

EACH = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
SOME = pytest.mark.parametrize("operation", sampled(OPERATIONS, sample=15), ids=lambda operation: operation.name)
"""Each; `make test` runs some of them."""


class Recorder:
    """A WSGI application that records the responses."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.bodies: list[bytes] = []

    def __call__(self, environ: Any, start_response: Any) -> list[bytes]:
        self.bodies.append(b"".join(self.app(environ, start_response)))
        return self.bodies[-1:]


@pytest.fixture(scope="module")
def spec() -> dict[str, Any]:
    return dict(document("http://127.0.0.1"))


def test_samples_cover_all_operations() -> None:
    assert set(SAMPLES) == {operation.name for operation in OPERATIONS}
    for name, sample in SAMPLES.items():
        assert "$mark" not in str(sample["data"]), name


@EACH
def test_operation_conforms_to_the_contract(
    shared_world: BackendWorld, operation: AnyOperation, spec: dict[str, Any]
) -> None:
    """Calls it with the typed client, which parses the response with the result model."""
    for number, path in enumerate(operation.paths):
        actor = Actor(shared_world, f"mark{number}")
        actor.prepare(operation)
        recorder = Recorder(shared_world.app)
        client = client_of(actor, WsgiAdapter(recorder))

        request = operation.parse({"data": actor.data(operation)})
        answer = client.call(operation, request, other_version=path != operation.path)

        (raw,) = recorder.bodies
        schema = spec["paths"][path]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
        jsonschema_rs.validate(schema | {"components": spec["components"]}, orjson.loads(raw))
        assert operation.bare_result or answer.message
        if SAMPLES[operation.name].get("shows"):
            assert actor.mark.encode() in raw
        if isinstance(answer.data, dict):
            assert all(getattr(one, "success", True) for one in answer.data.values()), raw


@SOME
def test_openapi_document_contains_the_operation(standing: BackendWorld, operation: AnyOperation) -> None:
    response = standing.app.test_client().get("/openapi.json")

    assert response.json is not None
    for path in operation.paths:
        assert response.json["paths"][path]["post"]["summary"] == operation.title


@SOME
def test_wrong_credentials_are_refused_and_change_nothing(standing: BackendWorld, operation: AnyOperation) -> None:
    if operation.auth is AuthLevel.NONE:
        pytest.skip("public")
    actor, other = Actor(standing), Actor(standing)
    actor.names |= {"endpoint": "e", "migration": "m"}
    data = actor.data(operation)
    if operation.auth is AuthLevel.BODY:
        for wrong in ({"authToken": "wrong"}, {"authToken": other.names["authToken"]}, {"apiKey": "wrong"}):
            refused = shown(standing, operation.path, data | wrong, {})
            assert refused == (400, "INVALID_ARGUMENT", "data.authToken: the auth token is not found")
        return
    headers, others = actor.caller(operation).headers, other.caller(operation).headers
    for path in operation.paths:
        for name in headers:
            for value in ("wrong", others[name], "x" * 10_000):
                assert shown(standing, path, data, headers | {name: value})[:2] == (403, "PERMISSION_DENIED")
            code, status, message = shown(standing, path, data, headers | {name: ""})
            assert (code, status) == (401, "UNAUTHENTICATED")
            assert name in message
    # Those of the other level open nothing.
    level = actor.tenant if operation.auth is AuthLevel.W else actor.owner
    assert shown(standing, operation.path, data, level.headers)[0] == 401


_ADDRESSES = itertools.count(1)


def shown(world: BackendWorld, path: str, data: dict[str, Any], headers: dict[str, str]) -> tuple[int, str, str]:
    """The error of a call. Each call has its own address, because failed attempts are limited by address."""
    response = world.app.test_client().post(
        path,
        json={"data": data},
        headers=headers,
        environ_overrides={"REMOTE_ADDR": str(ipaddress.ip_address("10.0.0.0") + next(_ADDRESSES))},
    )
    assert response.status_code != 200
    return (response.status_code, *error_of(response))


@SOME
def test_malformed_body_is_an_invalid_argument_with_the_field(standing: BackendWorld, operation: AnyOperation) -> None:
    actor = Actor(standing)
    caller = actor.caller(operation)
    actor.names |= {"endpoint": "e", "migration": "m"}
    data = actor.data(operation)
    for path in operation.paths:
        for raw in (b"", b"[]", b"{", b"{}", b'{"data": []}', b'{"data": null}', b'{"data": {}, "data": {}}'):
            response = caller.send(path, raw)
            assert (response.status_code, error_of(response)[0]) == (400, "INVALID_ARGUMENT"), raw
    for field in operation.request.model_fields.values():
        wire = field.alias or ""
        if field.is_required():
            missing = {key: value for key, value in data.items() if key != wire}
            code, status, message = caller.refused(operation.name, **missing)
            assert (code, status) == (400, "INVALID_ARGUMENT"), wire
            assert message.startswith("data"), message
            assert wire in message
        refusals = []
        for wrong in (7, {"wrong": [True]}):
            response = caller.call(operation.name, **data | {wire: wrong})
            assert response.status_code < 500
            refusals += [error_of(response)[1]] if response.status_code == 400 else []
        assert any(message.startswith("data") and wire in message for message in refusals), wire
    nested: Any = []
    for _ in range(100):
        nested = [nested]
    assert caller.refused(operation.name, **data | {"unknown": nested})[1] == "INVALID_ARGUMENT"
    assert caller.refused(operation.name, **data | {"unknown": ["\0"]})[1] == "INVALID_ARGUMENT"


@EACH
def test_errors_are_listed_in_the_contract(standing: BackendWorld, operation: AnyOperation) -> None:
    """Calls it without the items of the sample."""
    actor = Actor(standing)
    actor.names |= {"endpoint": "e", "migration": "m"}
    response = actor.caller(operation).send(operation.path, orjson.dumps({"data": actor.data(operation)}))

    if response.status_code != 200:
        assert Status(error_of(response)[0]) in operation.all_errors


def client_of(actor: Actor, transport: WsgiAdapter) -> BackendClient:
    settings = BackendSettings(api_key=SecretStr(actor.names["apiKey"]), auth_token=SecretStr(actor.names["authToken"]))
    headers = actor.owner.headers
    workspace = WorkspaceCredentials(
        SecretStr(headers["x-service-workspace-id"]), SecretStr(headers["x-service-workspace-auth-token"])
    )
    return BackendClient(settings, workspace=workspace, transport=transport, sleep=lambda _: None)
