"""Permission providers that do not respond do not delay other requests."""

import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from app.backend.schema import METADATA
from app.contract.operations import by_name
from app.foundation.database.engine import open_engine
from tests.tables import make_tables

from .conftest import Answerer, ScriptedProvider, WorldMaker
from .test_serve import Server as Processes

pytestmark = pytest.mark.one_database


def test_limit_of_threads_in_calls(make_world: WorldMaker) -> None:
    world = make_world(allow_private_urls=True, provider_timeout=20, provider_deadline=20, provider_tries=1)
    tenant, other = world.tenant(), world.tenant()
    app = world.another_node(threads=4)
    with ThreadPoolExecutor(2) as pool, tar_pit() as (port, taken):
        use = {"permissionProviderUrl": f"http://127.0.0.1:{port}/", "authToken": ""}
        for one in (tenant, other):
            one.app = app
            one("add_organizations", organizations=[{"organizationId": "acme"}])
            one("update_permission_provider_config", usePermissionProvider=True, permissionProviderConfig=use)
        hanging = [pool.submit(tenant, "get_permissions", organizationId="acme", userIds=["ada"]) for _ in range(2)]
        while len(taken) < 2:
            time.sleep(0.01)
        began = time.monotonic()
        assert "something_went_wrong" in str(other("get_permissions", organizationId="acme", userIds=["ada"]))
        assert time.monotonic() - began < 10
        assert len(taken) == 2
        for connection in taken:
            connection.close()
        for call in hanging:
            assert "something_went_wrong" in str(call.result())
        # Both threads are free again.
        for number in (3, 4):
            again = pool.submit(other, "get_permissions", organizationId="acme", userIds=["ada"])
            while len(taken) < number:
                time.sleep(0.01)
            taken[-1].close()
            again.result()


def test_deadline_of_all_tries(make_world: WorldMaker, make_provider: Callable[[Answerer], ScriptedProvider]) -> None:
    world = make_world(
        allow_private_urls=True, provider_timeout=0.4, provider_tries=10, provider_pause=0, provider_deadline=0.9
    )
    tenant = world.tenant()
    tenant("add_organizations", organizations=[{"organizationId": "acme"}])
    with tar_pit() as (port, taken):
        use = {"permissionProviderUrl": f"http://127.0.0.1:{port}/", "authToken": ""}
        tenant("update_permission_provider_config", usePermissionProvider=True, permissionProviderConfig=use)
        asked = tenant("get_permissions", organizationId="acme", userIds=["ada"])
        assert "something_went_wrong" in str(asked)
        # Two whole ones, and what is left of the deadline.
        assert 1 <= len(taken) <= 3


@contextmanager
def tar_pit() -> Iterator[tuple[int, Sequence[socket.socket]]]:
    """A server that accepts every connection and never responds: its port and connections."""
    taken: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0), backlog=200) as listener:

        def take() -> None:
            try:
                while True:
                    taken.append(listener.accept()[0])
            except OSError:
                return

        threading.Thread(target=take, daemon=True).start()
        yield listener.getsockname()[1], taken
        listener.shutdown(socket.SHUT_RDWR)
    for one in taken:
        one.close()


class Server(Processes):
    """A backend with gunicorn: two processes with four threads each."""

    def __init__(self, database_url: str, folder: Path) -> None:
        engine = open_engine(database_url)
        make_tables(engine, METADATA)
        engine.dispose()
        settings: dict[str, object] = {
            "database_url": database_url,
            "secret_key": "a secret key for tests only",
            "allow_private_urls": True,
            "webhook_threads": 0,
        }
        super().__init__(settings, folder)
        self.wait()

    def call(self, operation: str, headers: dict[str, str], **data: object) -> object:
        answer = requests.post(f"{self.url}{by_name(operation).path}", json={"data": data}, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"].get("data")

    def tenant(self, email: str) -> dict[str, str]:
        made = self.call("create_workspace", {}, ownerEmail=email)
        assert isinstance(made, dict)
        api_key = next(iter(made["apiKeyList"]))
        owner = {"x-service-workspace-id": made["id"], "x-service-workspace-auth-token": made["authToken"]}
        tokens = self.call("get_auth_tokens", owner, apiKey=api_key)
        assert isinstance(tokens, dict)
        return {"x-service-api-key": api_key, "x-service-auth-token": tokens["authTokens"][0]["token"]}

    def median(self, headers: dict[str, str]) -> float:
        """The median duration of Get Users, in seconds."""
        taken: list[float] = []
        for _ in range(100):
            began = time.monotonic()
            self.call("get_users", headers, organizationId="acme")
            taken.append(time.monotonic() - began)
        return statistics.median(taken)


@pytest.mark.extended
@pytest.mark.e2e
@pytest.mark.parametrize("operation", ["get_permissions", "add_comments"])
def test_hanging_calls_of_one_key_do_not_delay_another(database_url: str, operation: str, tmp_path: Path) -> None:
    server = Server(database_url, tmp_path)
    try:
        silent, other = server.tenant("a@acme.example"), server.tenant("b@acme.example")
        for tenant in (silent, other):
            server.call("add_users", tenant, organizationId="acme", documentId="d", users=[{"userId": "ada"}])
        comment = {"commentText": "x", "from": {"userId": "ada"}}
        thread = {"annotationId": "t", "commentData": [comment]}
        server.call(
            "add_comment_annotations", silent, organizationId="acme", documentId="d", commentAnnotations=[thread]
        )
        idle = server.median(other)
        with tar_pit() as (port, _), ThreadPoolExecutor(30) as pool:
            provider = {"permissionProviderUrl": f"http://127.0.0.1:{port}/", "authToken": ""}
            server.call(
                "update_permission_provider_config",
                silent,
                usePermissionProvider=True,
                permissionProviderConfig=provider,
            )
            data: dict[str, object] = {"organizationId": "acme"}
            if operation == "get_permissions":
                data |= {"userIds": ["ada"]}
            else:
                data |= {
                    "documentId": "d",
                    "annotationId": "t",
                    "verifyUserPermissions": True,
                    "commentData": [comment],
                }
            over = threading.Event()

            def ask_on() -> None:
                while not over.is_set():
                    server.call(operation, silent, **data)
                    # Asked more often, it would be the questions themselves that others wait for.
                    over.wait(4)

            hanging = [pool.submit(ask_on) for _ in range(30)]
            time.sleep(2)
            try:
                during = server.median(other)
            finally:
                over.set()
            for one in hanging:
                one.result()
        # Less than that is what the operating system makes of two processors.
        assert during < max(2 * idle, 0.05), (idle, during)
    finally:
        server.stop()
