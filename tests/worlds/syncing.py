"""The world of sync tests: a directory, Usher's database and the self-hosted backend, connected by the real client.

All calls pass ``Wire``, which counts them and simulates faults of the network or the backend.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import select
from werkzeug.wrappers import Request, Response

from app.backend.app import create_backend
from app.backend.schema import METADATA as BACKEND_METADATA
from app.backend.security.outgoing import open_session
from app.backend.settings import SelfHostedBackendSettings
from app.commands.schema import METADATA
from app.contract.operation import Tier
from app.contract.operations import by_name
from app.foundation.database.engine import open_engine, reading
from app.sync.ledger.tables import CallRow, ItemFailureRow, LedgerItemRow, LedgerRow
from app.sync.plan.tables import PlanItemRow
from app.sync.runs.run import Run
from tests.tables import make_tables
from tests.worlds.database_copies import copy_database
from tests.worlds.directory import Directory, small_company
from tests.worlds.operation_paths import by_path
from tests.worlds.world import UsherWorld, new_workspace
from tests.wsgi import WsgiAdapter

Hook = Callable[[str, dict[str, Any], Callable[[], Response]], Response]
"""Receives the operation's name, the request's data, and a function that calls the backend."""


def failure(code: int, status: str, message: str, **further: Any) -> Response:
    body = {"error": {"status": status, "message": message, **further}}
    return Response(orjson.dumps(body), code, content_type="application/json")


def success(data: object) -> Response:
    body = {"result": {"status": "success", "message": "ok", "data": data}}
    return Response(orjson.dumps(body), 200, content_type="application/json")


@dataclass(frozen=True)
class Sent:
    operation: str
    path: str
    data: dict[str, Any]

    @property
    def is_write(self) -> bool:
        return not by_name(self.operation).is_read

    @property
    def items(self) -> int:
        field_name = by_name(self.operation).items_field
        return len(self.data.get(field_name, ())) if field_name else 1


class Wire:
    """The transport between the client and the backend."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.sent: list[Sent] = []
        self.hook: Hook | None = None
        self.core_only = False
        self._lock = threading.Lock()

    def __call__(self, environ: Any, start_response: Any) -> Any:
        request = Request(environ)
        raw = request.get_data()
        operation = by_path(request.path)
        assert operation is not None, request.path
        data = orjson.loads(raw)["data"]
        with self._lock:
            self.sent.append(Sent(operation.name, request.path, data))
        environ["wsgi.input"] = BytesIO(raw)

        def backend() -> Response:
            return Response.from_app(self.app, environ)

        if self.core_only and (operation.tier is Tier.EXTENDED or request.path != operation.path):
            response = Response(b"<html>no such page</html>", 404, content_type="text/html")
        elif self.hook is not None:
            response = self.hook(operation.name, data, backend)
        else:
            response = backend()
        return response(environ, start_response)

    @property
    def writes(self) -> list[Sent]:
        return [sent for sent in self.sent if sent.is_write]

    def counted(self) -> Counter[str]:
        return Counter(sent.operation for sent in self.writes)

    def forget(self) -> None:
        self.sent.clear()


class SyncedWorld(UsherWorld):
    """A directory, Usher and the self-hosted backend with simulated time."""

    def __init__(self, database_url: str, tmp_path: Path) -> None:
        super().__init__(open_engine(database_url))
        make_tables(self.engine, METADATA)
        backend_url = f"sqlite:///{tmp_path}/backend.db"
        self.backend_engine = open_engine(backend_url)
        make_tables(self.backend_engine, BACKEND_METADATA)
        self.entropy = random.Random(4)
        app = create_backend(
            SelfHostedBackendSettings.model_validate(
                {"database_url": backend_url, "secret_key": "a secret key for tests only", "workspaces_per_hour": 1000}
            ),
            self.backend_engine,
            self.time,
            self.entropy,
            open_session(allow_private=True),
            sleep=self.time.sleep,
        )
        self.api_key, self.auth_token = new_workspace(app)
        self.wire = Wire(app)
        self.transport = WsgiAdapter(self.wire)
        self.directory = Directory()
        self.sources = [self.directory]

    def sync(self, **request: Any) -> Run:
        self.time.move_on(seconds=1)
        return super().sync(**request)

    def ask(self, operation: str, **data: Any) -> Any:
        """The backend's response, without the hook of the wire."""
        response = self.wire.app.test_client().post(
            by_name(operation).path,
            json={"data": data},
            headers={"x-service-api-key": self.api_key, "x-service-auth-token": self.auth_token},
        )
        assert response.status_code == 200, response.json
        return response.json["result"].get("data")

    def held(self) -> dict[str, Any]:
        """The content of ``acme`` in the backend, in simple types."""
        organizations = {one["id"]: one for one in self.ask("get_organizations")}
        if "acme" not in organizations:
            return {}
        folders: dict[str, Any] = {}
        waiting = self.ask("get_folders", organizationId="acme")
        while waiting:
            folder = waiting.pop()
            waiting += folder.get("subFolders", [])
            own = None if folder["inheritAccessFromParent"] else folder["accessType"]
            folders[folder["folderId"]] = (folder["folderName"], folder["parentFolderId"], own)
        documents = {
            one["id"]: (
                one["documentName"],
                one["folderId"],
                None if one["inheritAccessFromParent"] else one["accessType"],
            )
            for one in self.ask("get_documents", organizationId="acme")
        }
        on_documents = self.ask("get_users", organizationId="acme", allDocuments=True, groupByDocumentId=True)
        with reading(self.engine) as connection:
            table = LedgerItemRow.__table__
            groups = connection.execute(select(table.c.item_id).where(table.c.kind == "group")).scalars().all()
        return {
            "organizations": {name: one.get("organizationName") for name, one in organizations.items()},
            "members": _people(self.ask("get_users", organizationId="acme")),
            "folders": folders,
            "documents": documents,
            "folderUsers": {
                folder: people
                for folder in folders
                if (people := _people(self.ask("get_users", organizationId="acme", folderId=folder)))
            },
            "documentUsers": {name: _people(people) for name, people in on_documents.items() if people},
            "groups": {
                group: sorted(
                    one["userId"]
                    for one in self.ask("get_users", organizationId="acme", organizationUserGroupIds=[group])
                )
                for group in groups
            },
        }

    def rows(self, table_class: Any) -> list[Any]:
        with reading(self.engine) as connection:
            return list(connection.execute(select(table_class.__table__)))

    def ledger(self) -> dict[tuple[str, str, str], Any]:
        return {(row.kind, row.container_id, row.item_id): row for row in self.rows(LedgerItemRow)}

    def items(self, run: Run, status: str | None = None) -> list[Any]:
        return [
            row
            for row in sorted(self.rows(PlanItemRow), key=lambda row: row.ordinal)
            if row.plan_id == run.plan_id and (status is None or row.status == status)
        ]

    def failures(self) -> dict[tuple[str, str, str], Any]:
        return {(row.kind, row.container_id, row.item_id): row for row in self.rows(ItemFailureRow)}

    def unsettled_calls(self) -> int:
        return sum(row.settled_at is None for row in self.rows(CallRow))

    def ledger_revision(self) -> int:
        return int(self.rows(LedgerRow)[0].ledger_revision)

    def close(self) -> None:
        super().close()
        self.backend_engine.dispose()


def _people(users: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    return {one["userId"]: (one["name"], one["accessRole"]) for one in users}


@pytest.fixture
def world(database_url: str, tmp_path: Path) -> Iterator[SyncedWorld]:
    """An empty backend and an empty directory."""
    created = SyncedWorld(database_url, tmp_path)
    yield created
    created.close()


@pytest.fixture
def company(world: SyncedWorld) -> SyncedWorld:
    """A world with a small company, in sync with the backend."""
    small_company(world.directory)
    kept = _COMPANIES.get(world.engine.dialect.name)
    if kept is not None:
        kept.restore_to(world)
        return world
    run = world.sync()
    assert run.status == "done", (run.error, world.items(run, "failed"))
    world.wire.forget()
    _COMPANIES[world.engine.dialect.name] = WorldCopy(world)
    return world


_COMPANIES: dict[str, "WorldCopy"] = {}
"""The first ``company`` of this process on each database."""


class WorldCopy:
    """A copy of a world after its first run: databases, credentials, clock and random generators."""

    def __init__(self, world: SyncedWorld) -> None:
        self._usher = copy_database(world.engine)
        self._backend = copy_database(world.backend_engine)
        self._credentials = world.api_key, world.auth_token
        self._now, self._slept = world.time.now, list(world.time.slept)
        self._chance = world.random.getstate(), world.entropy.getstate()

    def restore_to(self, world: SyncedWorld) -> None:
        """Restores this state in a new world."""
        self._usher.restore_to(world.engine)
        self._backend.restore_to(world.backend_engine)
        world.api_key, world.auth_token = self._credentials
        world.time.now, world.time.slept[:] = self._now, self._slept
        chance, entropy = self._chance
        world.random.setstate(chance)
        world.entropy.setstate(entropy)


@pytest.fixture
def fill() -> Callable[[Directory], None]:
    return small_company
