"""A directory, Usher's own database and the self-hosted backend, joined by the real client.

Everything that the client sends passes ``Wire``, which counts it and, where a test says so, makes the network or the
backend misbehave.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import SecretStr
from sqlalchemy import select
from werkzeug.wrappers import Request, Response

from app.access.records import (
    AccessRole,
    AccessType,
    Document,
    Folder,
    Grant,
    Group,
    GroupMember,
    Membership,
    Organization,
    User,
)
from app.backend.app import create_backend
from app.backend.schema import METADATA as BACKEND_METADATA
from app.backend.security.outgoing import open_session
from app.backend.settings import SelfHostedBackendSettings
from app.client.client import BackendClient
from app.client.settings import BackendSettings
from app.contract.operation import Tier
from app.contract.operations import by_name, by_path
from app.database.engine import open_engine, reading
from app.directory.settings import DirectorySettings
from app.directory.source import EVERYTHING, End, Found, ReadRequest, Verdict
from app.plan.settings import LimitSettings
from app.runs.engine import SyncEngine
from app.runs.lifecycle import Run, RunRequest, Runs
from app.runs.lock import sync_lock
from app.runs.settings import SyncSettings
from app.store.schema import METADATA
from app.store.sync_tables import CallRow, ItemFailureRow, LedgerItemRow, LedgerRow, PlanItemRow
from tests.progress import QuietProgress
from tests.tables import make_tables
from tests.worlds.clock import SimulatedTime
from tests.wsgi import WsgiAdapter

Hook = Callable[[str, dict[str, Any], Callable[[], Response]], Response]
"""Gets the operation's name, the request's data, and a function that lets the backend answer."""


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
    """Between the client and the backend."""

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


class Directory:
    """Records that a test adds and takes away; a source."""

    name = "test"

    def __init__(self) -> None:
        self.records: dict[tuple[str, ...], Any] = {}
        self.verdict = Verdict.COMPLETE

    def read(self, request: ReadRequest = EVERYTHING) -> Iterator[Any]:
        for number, record in enumerate(self.records.values()):
            yield Found(record, f"test:{number}")
        yield End(self.verdict, "" if self.verdict is Verdict.COMPLETE else "told so")

    def add(self, *records: Any) -> None:
        for record in records:
            self.records[record.key] = record

    def remove(self, *key: str) -> None:
        """Takes away the records whose key begins so."""
        for known in [known for known in self.records if known[: len(key)] == key]:
            del self.records[known]

    def organization(self, organization_id: str, **fields: Any) -> None:
        self.add(Organization(**{"organization_id": organization_id, "organization_name": organization_id} | fields))

    def user(self, user_id: str, **fields: Any) -> None:
        self.add(User(**{"user_id": user_id, "name": user_id.title(), "email": f"{user_id}@acme.example"} | fields))

    def member(self, user_id: str, organization_id: str = "acme", role: str = "editor") -> None:
        self.add(Membership(organization_id=organization_id, user_id=user_id, access_role=AccessRole(role)))

    def folder(self, folder_id: str, parent: str | None = None, access: str | None = None, **fields: Any) -> None:
        self.add(
            Folder(
                **{
                    "organization_id": "acme",
                    "folder_id": folder_id,
                    "folder_name": folder_id.title(),
                    "parent_folder_id": parent,
                    "access_type": AccessType(access) if access else None,
                }
                | fields
            )
        )

    def document(self, document_id: str, folder: str | None = None, access: str | None = None, **fields: Any) -> None:
        self.add(
            Document(
                **{
                    "organization_id": "acme",
                    "document_id": document_id,
                    "document_name": document_id.title(),
                    "folder_id": folder,
                    "access_type": AccessType(access) if access else None,
                }
                | fields
            )
        )

    def group(self, group_id: str, users: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> None:
        self.add(Group(organization_id="acme", organization_user_group_id=group_id, group_name=group_id.title()))
        for user_id in users:
            self.add(GroupMember(organization_id="acme", organization_user_group_id=group_id, user_id=user_id))
        for inner in groups:
            self.add(GroupMember(organization_id="acme", organization_user_group_id=group_id, member_group_id=inner))

    def grant(self, role: str = "editor", **fields: Any) -> None:
        renamed = {
            {"folder": "folder_id", "document": "document_id", "user": "user_id"}.get(k, k): v
            for k, v in fields.items()
        }
        if "group" in renamed:
            renamed["organization_user_group_id"] = renamed.pop("group")
        self.add(Grant(organization_id="acme", access_role=AccessRole(role), **renamed))


def small_company(directory: Directory) -> None:
    """Two people, a folder tree, documents of each access type, nested groups, grants of each form."""
    directory.organization("acme")
    for user_id in ("ada", "bob", "cleo", "dan"):
        directory.user(user_id)
    directory.member("ada")
    directory.member("bob", role="viewer")
    directory.member("dan")
    directory.folder("specs", access="restricted")
    directory.folder("drafts", parent="specs")
    directory.folder("archive")
    directory.document("handbook")
    directory.document("roadmap", folder="drafts")
    directory.document("pressrelease", access="public")
    directory.document("salaries", folder="specs", access="restricted")
    directory.group("core", users=("dan",))
    directory.group("eng", users=("bob",), groups=("core",))
    directory.grant(folder="specs", group="eng")
    directory.grant(folder="drafts", user="bob", role="viewer")
    directory.grant(document="roadmap", user="cleo")


@dataclass
class World:
    """The whole of it."""

    database_url: str
    tmp_path: Path
    clock: SimulatedTime = field(default_factory=SimulatedTime)
    slept: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = open_engine(self.database_url)
        make_tables(self.engine, METADATA)
        backend_url = f"sqlite:///{self.tmp_path}/backend.db"
        self.backend_engine = open_engine(backend_url)
        make_tables(self.backend_engine, BACKEND_METADATA)
        app = create_backend(
            SelfHostedBackendSettings.model_validate(
                {"database_url": backend_url, "secret_key": "a secret key for tests only", "workspaces_per_hour": 1000}
            ),
            self.backend_engine,
            self.clock,
            random.Random(4),
            open_session(allow_private=True),
            sleep=self.slept.append,
        )
        self.wire = Wire(app)
        self.directory = Directory()
        self.limits = LimitSettings(delete_count=1_000_000, delete_percent=100)
        self.grace = 0
        self.random = random.Random(2)
        self.batch_size = 200
        self.operations = "auto"
        self.stop = threading.Event()
        self.base_url = "http://backend.test"
        self.api_key, self.auth_token = self._credentials(app)

    def _credentials(self, app: Any) -> tuple[str, str]:
        def ask(operation: str, headers: dict[str, str], **data: Any) -> Any:
            response = app.test_client().post(by_name(operation).path, json={"data": data}, headers=headers)
            assert response.status_code == 200, response.json
            return response.json["result"]["data"]

        workspace = ask("create_workspace", {}, ownerEmail="owner@acme.example")
        headers = {
            "x-service-workspace-id": workspace["id"],
            "x-service-workspace-auth-token": workspace["authToken"],
        }
        api_key = next(iter(workspace["apiKeyList"]))
        return api_key, ask("get_auth_tokens", headers, apiKey=api_key)["authTokens"][0]["token"]

    @property
    def settings(self) -> BackendSettings:
        return BackendSettings(
            base_url=self.base_url,
            api_key=SecretStr(self.api_key),
            auth_token=SecretStr(self.auth_token),
            max_in_flight=4,
            batch_size=self.batch_size,
            operations=self.operations,
        )

    def client(self) -> BackendClient:
        """A client on the wire that does not really wait."""
        return BackendClient(
            self.settings,
            transport=WsgiAdapter(self.wire),
            clock=self.clock,
            sleep=self.slept.append,
            random=random.Random(1),
            stop=self.stop,
        )

    @property
    def runs(self) -> Runs:
        return Runs(self.engine, self.clock, self.random)

    def sync(self, **request: Any) -> Run:
        """One run, from request to end."""
        self.clock.move_on(seconds=1)
        run, _ = self.runs.enqueue(RunRequest(**{"trigger": "command"} | request))
        return self.execute(run.run_id)

    def execute(self, run_id: str) -> Run:
        lock = sync_lock(self.engine)
        assert lock.acquire()
        try:
            return self.sync_engine().execute(run_id, lock=lock, progress=QuietProgress(), stop=self.stop)
        finally:
            lock.release()

    def sync_engine(self) -> SyncEngine:
        return SyncEngine(
            engine=self.engine,
            client=self.client(),
            sources=[self.directory],
            sync_settings=SyncSettings(limits=self.limits),
            backend_settings=self.settings,
            directory_settings=DirectorySettings(grace=self.grace),
            clock=self.clock,
            sleep=self.slept.append,
            random=self.random,
        )

    def ask(self, operation: str, **data: Any) -> Any:
        """What the backend itself says, past the wire's hook."""
        response = self.wire.app.test_client().post(
            by_name(operation).path,
            json={"data": data},
            headers={"x-service-api-key": self.api_key, "x-service-auth-token": self.auth_token},
        )
        assert response.status_code == 200, response.json
        return response.json["result"].get("data")

    def held(self) -> dict[str, Any]:
        """All that the backend holds of ``acme``, in plain terms."""
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
        return self.rows(LedgerRow)[0].ledger_revision

    def close(self) -> None:
        self.engine.dispose()
        self.backend_engine.dispose()


def _people(users: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    return {one["userId"]: (one["name"], one["accessRole"]) for one in users}


@pytest.fixture
def world(database_url: str, tmp_path: Path) -> Iterator[World]:
    """An empty backend and an empty directory."""
    made = World(database_url, tmp_path)
    yield made
    made.close()


@pytest.fixture
def company(world: World) -> World:
    """The same with a small company in the directory, in step with the backend."""
    small_company(world.directory)
    run = world.sync()
    assert run.status == "done", (run.error, world.items(run, "failed"))
    world.wire.forget()
    return world


@pytest.fixture
def fill() -> Callable[[Directory], None]:
    return small_company
