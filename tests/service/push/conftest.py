"""A service that accepts pushes, on a real database, with a simulated clock."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask.testing import FlaskClient
from sqlalchemy import Engine

from app.access.export import export_records
from app.access.problem_list import ProblemList
from app.access.records import Record
from app.access.refresh.reads import ReadResult
from app.access.refresh.refresh import Refresh
from app.commands.bootstrap.service import service_app
from app.commands.schema import METADATA
from app.directory.casting import object_from_record, record_from_object
from app.foundation.database.engine import open_engine, reading
from app.settings import Settings
from tests.tables import make_tables
from tests.worlds.openapi_check import undocumented_responses

PUSH = "push-" + "p" * 20
NEW_PUSH = "push-" + "n" * 20
"""The token that replaces the other one."""
HR = "hr-" + "h" * 20
SMALL = "small-" + "s" * 20
ERP = "erp-" + "e" * 20
ASK = "ask-" + "a" * 20


class Clock:
    """A clock that only ``move_on`` advances."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 20, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def move_on(self, **interval: float) -> None:
        self.now += timedelta(**interval)


SOURCES: list[dict[str, Any]] = [
    {"type": "file", "path": "/srv/hr.jsonl", "name": "hr", "changes": {"tokens": [HR]}},
    {"type": "push", "name": "app", "changes": {"tokens": [PUSH, NEW_PUSH]}},
    {
        "type": "push",
        "name": "small app",
        "changes": {"tokens": [SMALL], "kinds": ["document", "grant"], "organizations": ["acme"]},
    },
    {"type": "file", "path": "/srv/closed.jsonl", "name": "closed"},
    {"type": "file", "path": "/srv/erp.jsonl", "name": "erp", "changes": {"tokens": [ERP], "kinds": ["document"]}},
]


@dataclass
class Service:
    """The app and its parts."""

    client: FlaskClient
    engine: Engine
    clock: Clock

    def call(self, method: str, path: str, token: str | None = PUSH, **further: Any) -> Any:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return self.client.open(path, method=method, headers=headers | further.pop("headers", {}), **further)

    def push(self, body: object, source: str = "app", token: str = PUSH) -> Any:
        return self.call("POST", f"/directory/{source}/changes", token, json=body)

    def pushed(
        self, sequence: int, *, upsert: Sequence[object] = (), remove: Sequence[object] = (), **further: Any
    ) -> Any:
        """The response to a push that succeeds."""
        body: dict[str, Any] = {"sequence": sequence, "upsert": list(upsert), "remove": list(remove)} | further
        answer = self.push(body, **{name: body.pop(name) for name in ("source", "token") if name in body})
        assert answer.status_code == 200, answer.get_data(as_text=True)
        return answer.get_json()

    def may(self, user: str, document: str, organization: str = "acme") -> bool:
        """Whether a permission call allows the user to open the document."""
        request = {"userId": user, "resource": {"type": "document", "id": document, "organizationId": organization}}
        answer = self.call("POST", "/permissions/check", ASK, json={"data": {"requests": [request]}})
        assert answer.status_code == 200, answer.get_data(as_text=True)
        return bool(answer.get_json()["data"][0]["hasAccess"])

    def records(self) -> list[dict[str, object]]:
        """The records in force."""
        with reading(self.engine) as connection:
            return [object_from_record(record) for record in export_records(connection)]

    def read(
        self, source: str, objects: Sequence[dict[str, Any]], *, meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        """Reads a source completely, and calls ``meanwhile`` during the read."""
        with Refresh(self.engine, clock=self.clock, problems=ProblemList()) as refreshing:
            refreshing.begin([str(one["name"]) for one in SOURCES])
            for position, one in enumerate(SOURCES):
                if one["name"] == source:
                    meanwhile()
                    for index, value in enumerate(objects):
                        refreshing.staging.add(cast(value), f"{source}:{index}", position=position)
                    result = ReadResult(records=len(objects))
                else:
                    result = ReadResult(records=0, verdict="failed", reason="not read here")
                refreshing.staging.end(result, position=position)
            refreshing.finish()


def cast(value: dict[str, object]) -> Record:
    return record_from_object(value)[0]


@pytest.fixture
def service(database_url: str) -> Iterator[Service]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    clock = Clock()
    settings = Settings.model_validate(
        {
            "database_url": database_url,
            "directory": {"sources": SOURCES},
            "provider": {"auth_tokens": [ASK]},
            "admin": {"tokens": ["admin-" + "x" * 20]},
        }
    )
    app = service_app(settings, engine, clock=clock, new_id=lambda: "id")
    undescribed = undocumented_responses(app)
    yield Service(app.test_client(), engine, clock)
    engine.dispose()
    assert undescribed == []


def organization(organization_id: str = "acme") -> dict[str, object]:
    return {"kind": "organization", "organizationId": organization_id, "organizationName": organization_id.title()}


def user(user_id: str) -> dict[str, object]:
    return {"kind": "user", "userId": user_id, "name": user_id.title(), "email": f"{user_id}@acme.example"}


def membership(user_id: str, organization_id: str = "acme") -> dict[str, object]:
    return {"kind": "membership", "organizationId": organization_id, "userId": user_id}


def document(document_id: str, organization_id: str = "acme", **further: object) -> dict[str, object]:
    identity = {"kind": "document", "organizationId": organization_id, "documentId": document_id}
    return identity | {"documentName": document_id} | further


def grant(document_id: str, user_id: str, organization_id: str = "acme", **further: object) -> dict[str, object]:
    identity = {"kind": "grant", "organizationId": organization_id, "documentId": document_id, "userId": user_id}
    return identity | further


def key(record: dict[str, object]) -> dict[str, object]:
    """The key of a record, as in ``remove``."""
    ids = {"organizationId", "userId", "documentId", "folderId", "organizationUserGroupId", "memberGroupId"}
    return {name: value for name, value in record.items() if name == "kind" or name in ids}
