"""A service with a source of SCIM, and a directory that pushes to it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import Engine, event

from app.commands.bootstrap.service import service_app
from app.commands.schema import METADATA
from app.directory.configured import sources_from_settings
from app.foundation.database.engine import open_engine
from app.settings import Settings
from app.sync.runs.directory_reads import ReadOptions, RefreshReport, read_directory
from tests.tables import make_tables

TOKEN, OTHER_TOKEN, ASK = "scim-" + "s" * 20, "push-" + "p" * 20, "ask-" + "a" * 20

RULES: list[dict[str, Any]] = [
    {
        "from": "users",
        "aliases": ["it.externalId"],
        "user": {
            "userId": "it.id",
            "name": "it.?displayName.orValue(it.userName)",
            "email": 'it.?email.orValue("")',
            "department": "it.enterprise.department",
        },
    },
    {"from": "groups", "organization": {"organizationId": "it.displayName", "organizationName": "it.displayName"}},
    {
        "from": "groups",
        "each": "members",
        "membership": {"organizationId": "it.displayName", "userId": "member.userId", "accessRole": '"viewer"'},
    },
]


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 20, 9, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_(self, **by: float) -> None:
        self.now += timedelta(**by)


class Directory:
    """A directory that pushes with SCIM, and the questions of the backend."""

    def __init__(self, client: FlaskClient, engine: Engine, settings: Settings, clock: Clock) -> None:
        self.client, self.engine, self.settings, self.clock = client, engine, settings, clock

    @classmethod
    def of(cls, settings: Settings, engine: Engine, clock: Clock) -> "Directory":
        """A directory for a service with these settings."""
        numbers = count(1)
        app = service_app(settings, engine, clock=clock, new_id=lambda: f"{next(numbers):016x}")
        return cls(app.test_client(), engine, settings, clock)

    def call(self, method: str, path: str, body: object = None, *, token: str = TOKEN, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {token}"} | more.pop("headers", {})
        options: dict[str, Any] = {"json": body} if body is not None else {}
        return self.client.open(f"/scim/entra/v2{path}", method=method, headers=headers, **options, **more)

    def made(self, path: str, body: dict[str, Any]) -> str:
        """The id of a created resource."""
        answer = self.call("POST", path, body)
        assert answer.status_code == 201, answer.text
        return str(answer.get_json()["id"])

    def user(self, user_name: str, /, **further: Any) -> str:
        body = {"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": user_name}
        return self.made(
            "/Users", body | {"emails": [{"value": f"{user_name}@acme.example", "type": "work"}]} | further
        )

    def group(self, name: str, *members: str) -> str:
        body: dict[str, Any] = {"schemas": ["urn:ietf:params:scim:schemas:core:2.0:Group"], "displayName": name}
        return self.made("/Groups", body | ({"members": [{"value": one} for one in members]} if members else {}))

    def patch(self, path: str, *operations: dict[str, Any], status: int = 204) -> Any:
        body = {"schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"], "Operations": list(operations)}
        answer = self.call("PATCH", path, body)
        assert answer.status_code == status, answer.text
        return answer.get_json() if answer.data else None

    def may(self, user: str, organization: str) -> bool:
        """Whether the user may see the organization."""
        question = {
            "userId": user,
            "resource": {"type": "organization", "id": organization, "organizationId": organization},
        }
        answer = self.client.post(
            "/permissions/check", json={"data": {"requests": [question]}}, headers={"Authorization": f"Bearer {ASK}"}
        )
        return bool(answer.get_json()["data"][0]["hasAccess"])

    def revisions(self) -> int:
        """The number of revisions so far."""
        with self.engine.connect() as connection:
            return int(connection.exec_driver_sql("SELECT COUNT(*) FROM access_revision").scalar_one())

    def read(
        self, settings: Settings | None = None, *, meanwhile: Callable[[], None] | None = None, **options: Any
    ) -> RefreshReport:
        """A read of the source, as by a sync. ``meanwhile`` is called after it was read, before that is used."""

        @contextmanager
        def store() -> Iterator[Engine]:
            try:
                yield self.engine
            finally:
                if meanwhile is not None:
                    meanwhile()

        sources = sources_from_settings((settings or self.settings).directory, store=store)
        return read_directory(self.engine, sources, ReadOptions(**options), clock=self.clock)


class Statements:
    """The statements that are executed, except those that begin transactions or check the schema from time to time."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._run = engine, list[str]()

    def _note(self, _connection: object, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith("BEGIN") and "schema_compatibility" not in statement:
            self._run.append(statement)

    def __enter__(self) -> list[str]:
        event.listen(self._engine, "before_cursor_execute", self._note)
        return self._run

    def __exit__(self, *_: object) -> None:
        event.remove(self._engine, "before_cursor_execute", self._note)


def settings_with(database_url: str, rules: list[dict[str, Any]], **sections: dict[str, Any]) -> Settings:
    return Settings.model_validate(
        {
            "database_url": database_url,
            "directory": {
                "sources": [
                    {"type": "scim", "name": "entra", "tokens": [TOKEN], "map": rules},
                    {"type": "push", "name": "app", "changes": {"tokens": [OTHER_TOKEN]}},
                ]
            },
            "provider": {"auth_tokens": [ASK]},
            "admin": {"tokens": ["admin-" + "x" * 20]},
            **sections,
        }
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield engine
    engine.dispose()


@pytest.fixture
def settings(database_url: str) -> Settings:
    return settings_with(database_url, RULES)


@pytest.fixture
def app(settings: Settings, engine: Engine, clock: Clock) -> Flask:
    numbers = count(1)
    return service_app(settings, engine, clock=clock, new_id=lambda: f"{next(numbers):016x}")


@pytest.fixture
def directory(app: Flask, settings: Settings, engine: Engine, clock: Clock) -> Directory:
    return Directory(app.test_client(), engine, settings, clock)
