"""Responses to browsers are signed with the backend's key. Other responses do not wait for a signature."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
import pytest
from jwt.api_jws import PyJWS
from pydantic import SecretStr
from sqlalchemy import insert
from werkzeug.serving import make_server

from app.access import tables
from app.backend.tokens.token_handlers import canonical_json
from app.client.errors import OperationMissing
from app.client.settings import BackendSettings
from app.commands.bootstrap.databases import STORE_MIGRATIONS
from app.commands.bootstrap.service import service_app
from app.contract import limits
from app.contract.operation import Answer
from app.contract.permissions import GenerateSignatureRequest, Signature
from app.foundation.database.engine import open_engine, writing
from app.service.provider.settings import ProviderSettings
from app.service.provider.signing import PAUSE, BackendSigner
from app.settings import Settings
from tests.backend.conftest import BackendWorld, Caller
from tests.tables import make_migrated
from tests.worlds.clock import SimulatedTime

ORIGIN = "http://localhost:3000"
RESULTS: Sequence[Mapping[str, object]] = [{"userId": "ada", "hasAccess": False}]


@contextmanager
def served(app: Any) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def tenant(tmp_path: Path) -> Iterator[Caller]:
    world = BackendWorld(f"sqlite:///{tmp_path}/backend.db")
    yield world.tenant()
    world.close()


@contextmanager
def service(tmp_path: Path, url: str, tenant: Caller, **provider: Any) -> Iterator[Any]:
    """A client of the service, which is configured for this backend."""
    engine = open_engine(f"sqlite:///{tmp_path}/usher.db")
    make_migrated(engine, STORE_MIGRATIONS)
    with writing(engine) as connection:
        connection.execute(insert(tables.RevisionRow), [{"revision": 1, "created_at": 1, "changes": "{}"}])
    settings = Settings(
        provider=ProviderSettings(auth_tokens=(SecretStr("ask"),), browser_origins=(ORIGIN,), **provider),
        backend=BackendSettings(
            base_url=url,
            api_key=SecretStr(tenant.headers["x-service-api-key"]),
            auth_token=SecretStr(tenant.headers["x-service-auth-token"]),
        ),
    )
    yield service_app(settings, engine, clock=lambda: datetime.now(UTC), new_id=lambda: "made").test_client()
    engine.dispose()


def asked(client: Any, number: int = 2, **headers: str) -> dict[str, Any]:
    resource = {"type": "document", "id": "d😀", "organizationId": "acme"}
    questions: list[object] = [{"userId": f"u{n}", "resource": resource} for n in range(number)]
    body = {"data": {"requests": [*questions, {"userId": 5}]}}
    response = client.post("/permissions/check", json=body, headers={"Authorization": "Bearer ask"} | headers)
    assert response.status_code == 200
    answer: dict[str, Any] = response.json
    assert len(answer["data"]) == number + 1
    return answer


@pytest.mark.process
def test_the_key_of_the_backend_verifies_an_answer_to_a_browser(tmp_path: Path, tenant: Caller) -> None:
    with served(tenant.app) as url, service(tmp_path, url, tenant) as client:
        body = asked(client, Origin=ORIGIN)
        keys = jwt.PyJWKClient(f"{url}/.well-known/jwks/{tenant.ids['api_key']}.json").get_jwk_set()

        signature = body["signature"]
        key = keys[jwt.get_unverified_header(signature)["kid"]]
        PyJWS().decode_complete(signature, key, ["EdDSA"], detached_payload=canonical_json(body["data"]))
        body["data"][0]["hasAccess"] = True
        with pytest.raises(jwt.InvalidSignatureError):
            PyJWS().decode_complete(signature, key, ["EdDSA"], detached_payload=canonical_json(body["data"]))

        # Responses to servers, and to pages of other origins, are not signed.
        assert "signature" not in asked(client)
        assert "signature" not in asked(client, Origin="http://evil.example")


@pytest.mark.process
def test_signing_can_be_switched_off(tmp_path: Path, tenant: Caller) -> None:
    with served(tenant.app) as url, service(tmp_path, url, tenant, signature_timeout=0) as client:
        assert "signature" not in asked(client, Origin=ORIGIN)


def test_an_answer_goes_without_a_signature_when_the_backend_is_away(tmp_path: Path, tenant: Caller) -> None:
    with service(tmp_path, "http://127.0.0.1:9", tenant) as client:
        assert "signature" not in asked(client, Origin=ORIGIN)


def test_a_backend_that_cannot_sign_is_left_alone_for_a_while() -> None:
    calls, passing = [], SimulatedTime()

    def generate(request: GenerateSignatureRequest) -> Answer[Signature]:
        calls.append(request.to_wire())
        if len(calls) == 1:
            raise OperationMissing("generate_signature", "no", 404, has_envelope=True, may_mean_missing_object=False)
        return Answer(Signature(signature="s"), "ok")

    sign = BackendSigner(generate, timeout=1, monotonic=passing.monotonic)
    assert sign(RESULTS) is None
    passing.move_on(seconds=PAUSE - 0.1)
    assert sign(RESULTS) is None
    assert calls == [{"permissions": list(RESULTS)}]
    passing.move_on(seconds=0.1)
    assert sign(RESULTS) == "s"
    # More than fit in one call of the operation.
    assert sign(list(RESULTS) * (limits.BATCH_ITEMS + 1)) is None
    assert len(calls) == 2


def test_a_backend_that_hangs_takes_two_threads_at_most() -> None:
    hanging, at_once, most = threading.Event(), [0], [0]
    lock = threading.Lock()

    def generate(_: GenerateSignatureRequest) -> Answer[Signature]:
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        hanging.wait(30)
        with lock:
            at_once[0] -= 1
        return Answer(Signature(signature="s"), "ok")

    sign = BackendSigner(generate, timeout=0.05)
    found: list[str | None] = []
    threads = [threading.Thread(target=lambda: found.append(sign(RESULTS))) for _ in range(6)]
    for thread in threads:
        thread.start()
    # Four time out while two calls hang.
    for _ in range(1000):
        if len(found) == 4:
            break
        threading.Event().wait(0.01)
    hanging.set()
    for thread in threads:
        thread.join()

    assert most == [2]
    assert sorted(found, key=str) == [None] * 4 + ["s"] * 2
