"""Measures the operations of the self-hosted backend with few and with many records.

One organization with a hundredth of the records, and one with all of them (1,000,000 at full scale): every operation
is an index lookup, so its time must hardly depend on the size. Calls go through the whole application,
without a network. On SQLite, or on a PostgreSQL server in two databases that are made for it and dropped after it.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from flask import Flask
from sqlalchemy import Connection, Engine, Table, insert, text

from app.backend.app import create_backend
from app.backend.collaboration.tables import (
    ACTIVITY,
    COMMENT,
    COMMENT_ANNOTATION,
    NOTIFICATION,
    NOTIFICATION_USER,
    REACTION,
    RECORDING,
    THREAD_USER,
)
from app.backend.resources.tables import DOCUMENT, ORGANIZATION, USER_ENTRY
from app.backend.schema import METADATA
from app.backend.security.outgoing import open_session
from app.backend.settings import SelfHostedBackendSettings
from app.backend.storage.sqlite_statistics import ensure_statistics
from app.contract.operations import by_name
from app.foundation.database.engine import is_sqlite, open_engine, writing
from tests.bench.databases import databases
from tests.bench.resources import furnish, resource_operations

RECORDS = 1_000_000
USERS = 100_000
_SMALL = 0.01
_AT_ONCE = 10_000
_PER_DOCUMENT = 100
_ORG = {"organizationId": "acme"}

Headers = Mapping[str, str]


def bench_features(folder: Path, scale: float, *, calls: int = 100, postgres: str | None = None) -> dict[str, object]:
    """p50 and p99 of each operation in milliseconds, small and large; and the ratio of the two medians.

    `postgres` is the URL of a server to measure on; without it SQLite is measured, in `folder`.
    """
    with databases(folder, postgres) as new_database:
        return _compare(new_database("small"), new_database("large"), scale, calls)


def _compare(small_url: str, large_url: str, scale: float, calls: int) -> dict[str, object]:
    sides = {"small": _side(small_url, scale * _SMALL), "large": _side(large_url, scale)}
    figures: dict[str, object] = {"records": f"{int(scale * _SMALL * RECORDS):,} and {int(scale * RECORDS):,}"}
    for name in sides["small"].names:
        # In turns, so that whatever else the machine does meets both sides.
        timings: dict[str, list[float]] = {"small": [], "large": []}
        for _ in range(calls):
            for side, taken in timings.items():
                taken.append(sides[side].call(name))
        small, large = timings["small"], timings["large"]
        ratio = statistics.median(large) / statistics.median(small)
        figures[name] = f"{_shown(small)} small, {_shown(large)} large, ratio {ratio:.2f}"
    return figures


def fill(engine: Engine, api_key_id: str, records: int, users: int) -> None:
    """Writes `records` feature records of one organization: mostly activities, with threads, comments, notifications,
    reactions and recordings among them.
    """
    shares: tuple[tuple[Table, float, Callable[[int, int, int], dict[str, object]]], ...] = (
        (ACTIVITY, 0.5, _activity),
        (COMMENT_ANNOTATION, 0.05, _annotation),
        (COMMENT, 0.15, _comment),
        (NOTIFICATION, 0.1, _notification),
        (REACTION, 0.1, _reaction),
        (RECORDING, 0.1, _recording),
        (THREAD_USER, 0.1, _thread_user),
        (NOTIFICATION_USER, 0.2, _notification_user),
    )
    documents = max(1, records // _PER_DOCUMENT)
    base: dict[str, object] = {"api_key_id": api_key_id, "organization_id": "acme"}
    entry: dict[str, object] = {"level": "organization", "container_id": "", "access_role": "editor", "payload": "{}"}
    times: dict[str, object] = {"created_at": 1, "updated_at": 1}
    with writing(engine) as connection:
        connection.execute(insert(ORGANIZATION), [base | times | {"disabled": False, "payload": "{}"}])
        _insert(
            connection,
            DOCUMENT,
            (base | times | {"document_id": f"d{n}", "folder_id": "", "payload": "{}"} for n in range(documents)),
        )
        _insert(connection, USER_ENTRY, (base | entry | times | {"user_id": f"u{n}"} for n in range(users)))
        for table, share, row in shares:
            number = int(records * share)
            _insert(connection, table, (base | row(n, documents, users) for n in range(number)))
    if not is_sqlite(engine):
        # What autovacuum does within a minute.
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))


def operations(records: int, users: int, rng: random.Random) -> dict[str, Callable[[], tuple[str, dict[str, Any]]]]:
    """Calls of every operation on feature data, by name; each call has other ids."""
    documents = max(1, records // _PER_DOCUMENT)
    threads = int(records * 0.05)
    notifications = int(records * 0.1)
    page = _ORG | {"pageSize": 50}

    def user() -> str:
        return f"u{rng.randrange(users)}"

    def document() -> str:
        return f"d{rng.randrange(documents)}"

    def thread() -> dict[str, str]:
        number = rng.randrange(threads)
        return _ORG | {"documentId": f"d{number % documents}", "annotationId": f"t{number}"}

    def comment() -> dict[str, Any]:
        return {"commentText": "x" * 100, "from": {"userId": user()}}

    def activity() -> dict[str, Any]:
        return {"featureType": "custom", "actionType": "x", "actionUser": {"userId": user()}}

    def notification() -> str:
        return f"n{rng.randrange(notifications)}"

    return {
        "activities of an organization": lambda: ("get_activity_logs", page),
        "activities, oldest first": lambda: ("get_activity_logs", page | {"order": "asc"}),
        "activities of a document": lambda: ("get_activity_logs", page | {"documentId": document()}),
        "activities of a user": lambda: ("get_activity_logs", page | {"userId": user()}),
        "activities of a thread": lambda: (
            "get_activity_logs",
            page | {"targetEntityId": f"t{rng.randrange(threads)}"},
        ),
        "activities of rare kinds": lambda: ("get_activity_logs", page | {"featureTypes": ["crdt", "custom"]}),
        "activities of a rare action": lambda: ("get_activity_logs", page | {"actionTypes": ["rare", "none"]}),
        "activities by id": lambda: ("get_activity_logs", _ORG | {"activityIds": [f"a{rng.randrange(records // 2)}"]}),
        "add an activity": lambda: ("add_activities", _ORG | {"documentId": document(), "activities": [activity()]}),
        "threads of a document": lambda: ("get_comment_annotations", page | {"documentId": document()}),
        "threads of an organization": lambda: ("get_comment_annotations", page),
        "comments of a thread": lambda: ("get_comments", thread()),
        "add a thread": lambda: (
            "add_comment_annotations",
            _ORG | {"documentId": document(), "commentAnnotations": [{"commentData": [comment()]}]},
        ),
        "add a comment": lambda: ("add_comments", thread() | {"commentData": [comment()]}),
        "update a comment": lambda: (
            "update_comments",
            thread() | {"commentIds": ["c0"], "updatedData": {"commentText": str(rng.random())}},
        ),
        "update a thread": lambda: (
            "update_comment_annotations",
            _ORG | {"annotationIds": [thread()["annotationId"]], "updatedData": {"status": str(rng.random())}},
        ),
        "delete a comment": lambda: ("delete_comments", thread() | {"commentIds": ["c1"]}),
        "delete a thread": lambda: ("delete_comment_annotations", _ORG | {"annotationIds": [thread()["annotationId"]]}),
        "notifications of a user": lambda: ("get_notifications", page | {"userId": user()}),
        "notifications of an organization": lambda: ("get_notifications", page),
        "notifications of a document": lambda: ("get_notifications", page | {"documentId": document()}),
        "add a notification": lambda: (
            "add_notifications",
            _ORG | {"documentId": document(), "actionUser": {"userId": user()}, "notifyUsers": [{"userId": user()}]},
        ),
        "mark as read": lambda: (
            "update_notifications",
            _ORG | {"notifications": [{"id": notification(), "readByUserIds": [user()]}]},
        ),
        "all data of a user": lambda: ("get_all_user_data", _ORG | {"userId": user()}),
    }


class Side:
    """One of the two backends with its data."""

    def __init__(self, app: Flask, headers: Headers, records: int) -> None:
        self.records = records
        self._client = app.test_client()
        self._headers = headers
        users = max(10, records * USERS // RECORDS)
        rng = random.Random(7)
        documents = max(1, records // _PER_DOCUMENT)
        self._operations = resource_operations(documents, users, rng) | operations(records, users, rng)
        furnish(self._post)

    @property
    def names(self) -> list[str]:
        """The names of the calls."""
        return list(self._operations)

    def _post(self, operation: str, data: dict[str, Any]) -> None:
        self._client.post(
            by_name(operation).path,
            data=orjson.dumps({"data": data}),
            headers=self._headers,
            content_type="application/json",
        )

    def call(self, name: str) -> float:
        """The time of one call, in milliseconds."""
        operation, data = self._operations[name]()
        body = orjson.dumps({"data": data})
        path = by_name(operation).path
        before = time.perf_counter()
        response = self._client.post(path, data=body, headers=self._headers, content_type="application/json")
        taken = (time.perf_counter() - before) * 1000
        # A thread may have been deleted by an earlier call.
        if response.status_code not in {200, 404}:
            raise RuntimeError(f"{operation}: {response.get_data(as_text=True)}")
        return taken


def _side(database: str, scale: float) -> Side:
    settings = SelfHostedBackendSettings.model_validate(
        {"database_url": database, "secret_key": "a secret key for measuring"}
    )
    engine = open_engine(database)
    METADATA.create_all(engine)
    ensure_statistics(engine, METADATA)
    app = create_backend(
        settings, engine, lambda: datetime.now(UTC), random.SystemRandom(), open_session(allow_private=False)
    )
    client = app.test_client()
    created = client.post("/v2/workspace/create", json={"data": {"ownerEmail": "ada@acme.example"}}).get_json()
    workspace = created["result"]["data"]
    key = next(iter(workspace["apiKeyList"]))
    owner = {
        "x-service-workspace-id": workspace["id"],
        "x-service-workspace-auth-token": workspace["authToken"],
    }
    tokens = client.post("/v2/workspace/authtokens/get", json={"data": {"apiKey": key}}, headers=owner).get_json()
    headers = {
        "x-service-api-key": key,
        "x-service-auth-token": tokens["result"]["data"]["authTokens"][0]["token"],
    }
    records = int(RECORDS * scale)
    fill(engine, key, records, max(10, int(USERS * scale)))
    return Side(app, headers, records)


def _shown(timings: list[float]) -> str:
    ordered = sorted(timings)
    return f"p50 {statistics.median(ordered):.1f} p99 {ordered[int(len(ordered) * 0.99)]:.1f} ms"


def _insert(connection: Connection, table: Table, rows: Iterator[dict[str, object]]) -> None:
    batch: list[dict[str, object]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _AT_ONCE:
            connection.execute(insert(table), batch)
            batch.clear()
    if batch:
        connection.execute(insert(table), batch)


def _user(number: int, users: int) -> str:
    return f"u{number * 7919 % users}"


def _activity(number: int, documents: int, users: int) -> dict[str, object]:
    # Most are comments; one in ten thousand is of a rare action.
    feature, action = ("custom", "rare") if number % 10_000 == 0 else ("comment", "comment.add")
    return {
        "activity_id": f"a{number}",
        "document_id": f"d{number % documents}",
        "target_entity_id": f"t{number // 10}",
        "user_id": _user(number, users),
        "feature_type": feature,
        "action_type": action,
        "payload": '{"actionUser":{"userId":"ada","name":"Ada"},"displayMessageTemplate":"{{actionUser.name}} spoke"}',
        "happened_at": 1_700_000_000_000 + number,
    }


def _annotation(number: int, documents: int, users: int) -> dict[str, object]:
    return {
        "annotation_id": f"t{number}",
        "document_id": f"d{number % documents}",
        "location_id": f"l{number % 5}",
        "type": "comment",
        "assigned_to": _user(number, users),
        "comment_bytes": 200,
        "payload": '{"status":"OPEN"}',
        "created_at": 1_700_000_000_000 + number,
        "updated_at": 1_700_000_000_000 + number,
    }


def _comment(number: int, _documents: int, users: int) -> dict[str, object]:
    return {
        "annotation_id": f"t{number // 3}",
        "comment_id": f"c{number % 3}",
        "author_id": _user(number, users),
        "number": number,
        "payload": '{"commentText":"What about this?","from":{"userId":"ada"}}',
        "created_at": 1_700_000_000_000 + number,
        "updated_at": 1_700_000_000_000 + number,
    }


def _thread_user(number: int, _documents: int, users: int) -> dict[str, object]:
    return {"annotation_id": f"t{number // 2}", "user_id": f"u{(number // 2 * 7919 + number % 2) % users}"}


def _notification(number: int, documents: int, users: int) -> dict[str, object]:
    return {
        "notification_id": f"n{number}",
        "action_user_id": _user(number, users),
        "document_id": f"d{number % documents}",
        "location_id": f"l{number % 5}",
        "readers": 1,
        "payload": '{"displayBodyMessage":"Look"}',
        "created_at": 1_700_000_000_000 + number,
        "updated_at": 1_700_000_000_000 + number,
    }


def _notification_user(number: int, documents: int, users: int) -> dict[str, object]:
    return {
        "notification_id": f"n{number // 2}",
        "user_id": f"u{(number // 2 * 7919 + number % 2) % users}",
        "document_id": f"d{number // 2 % documents}",
        "created_at": 1_700_000_000_000 + number // 2,
        "read_at": 5 if number % 2 else None,
        "persists": False,
    }


def _reaction(number: int, documents: int, users: int) -> dict[str, object]:
    return {
        "reaction_id": f"r{number}",
        "document_id": f"d{number % documents}",
        "annotation_id": f"t{number // 2}",
        "comment_id": "c0",
        "user_id": _user(number, users),
        "payload": '{"icon":"+1"}',
        "created_at": 1_700_000_000_000 + number,
    }


def _recording(number: int, documents: int, users: int) -> dict[str, object]:
    return {
        "recording_id": f"v{number}",
        "document_id": f"d{number % documents}",
        "user_id": _user(number, users),
        "payload": '{"url":"https://acme.example/v"}',
        "created_at": 1_700_000_000_000 + number,
    }
