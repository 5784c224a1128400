"""Measures the first pages of lists of access beside a large installation, over the endpoints of the service.

The access model is written by SQL: 1,000,000 users and documents, 10,000,000 grants. An organization of its own has
lists of 10,000 rows. Everything in it is restricted, so that grants alone decide: a user of a group that may open
folders with 10,000 documents, and documents that 10,000 users may open, by their own grants or by groups.
"""

import statistics
import time
from pathlib import Path
from typing import Any

from flask.testing import FlaskClient

from app.access import tables as access
from app.commands.bootstrap.service import service_app
from app.foundation.clock import from_epoch_ms
from app.foundation.database.engine import open_engine
from app.service.provider.settings import LIST_RESOURCES_PATH, LIST_USERS_PATH
from app.settings import Settings
from tests.bench.console_world import NOW_MS, Builder, Size
from tests.bench.databases import databases
from tests.bench.decisions import fill

ADMIN = "admin-" + "a" * 20
ROWS = 10_000
GROUPS = 100
FOLDERS = 100
AIM_MS = 50.0


def bench_lists(folder: Path, *, scale: float, rounds: int, postgres: str | None) -> dict[str, object]:
    """The figures; ``scale`` 1: beside 1,000,000 users and as many documents, and 10,000,000 grants."""
    with databases(folder, postgres) as new_database:
        url = new_database("lists")
        engine = open_engine(url)
        size = Size(scale)
        fill(engine, size, [lists])
        settings = Settings.model_validate(
            {
                "database_url": url,
                "provider": {"auth_tokens": ["ask-" + "a" * 20]},
                "admin": {"tokens": [ADMIN]},
                "directory": {"sources": [{"type": "file", "path": "nothing.jsonl", "name": "people"}]},
            }
        )
        now = from_epoch_ms(NOW_MS)
        client = service_app(settings, engine, clock=lambda: now, new_id=lambda: "bench").test_client()
        figures: dict[str, object] = {
            "users, documents, rows of a list": f"{size.users:,}, {size.documents:,}, {ROWS:,}"
        }
        for name, (path, body, rows) in _lists(size).items():
            assert rows is None or _count(client, path, body) == rows, name
            figures[f"{name}, p50/p99 ms"] = _first_page(client, path, body, rounds * 40)
        engine.dispose()
    return figures


def lists(b: Builder) -> None:
    """The organization with lists of ``_rows``."""
    within, tables, rows = {"organization_id": "'acme'"}, access.ACCESS_TABLES, _rows(b.size)
    one, everybody, contents = "(SELECT 0 AS i) AS n", b.series(rows), b.series(rows - FOLDERS - 2)
    user, group, folder, document = (b.id(prefix, "n.i") for prefix in ("user", "team", "folder", "page"))

    def named(kind: str, item: str) -> str:
        return f"""'{{"{kind}Id":"' || {item} || '","{kind}Name":"Name"}}'"""

    b.fill(
        tables["organization"],
        {**within, "access_type": "'restricted'", "disabled": "FALSE", "payload": named("organization", "'acme'")},
        one,
    )
    b.fill(tables["group"], {**within, "organization_user_group_id": group, "payload": "'{}'"}, b.series(GROUPS))
    b.fill(
        tables["groupMember"],
        {
            **within,
            "organization_user_group_id": b.id("team", f"n.i % {GROUPS}"),
            "user_id": user,
            "member_group_id": "''",
        },
        everybody,
    )
    place = {**within, "access_type": "''"}
    b.fill(
        tables["folder"],
        {**place, "folder_id": folder, "parent_folder_id": "''", "payload": named("folder", folder)},
        b.series(FOLDERS),
    )
    spread = {**place, "folder_id": b.id("folder", f"n.i % {FOLDERS}")}
    b.fill(tables["document"], {**spread, "document_id": document, "payload": named("document", document)}, contents)
    for shared in ("by groups", "by own grants"):
        values = {**place, "folder_id": "''", "document_id": f"'{shared}'", "payload": named("document", "'x'")}
        b.fill(tables["document"], values, one)
    unset = dict.fromkeys(("folder_id", "document_id", "user_id", "organization_user_group_id"), "''")
    grant = {**within, **unset, "access_role": "'viewer'"}
    for values, source in (
        ({"folder_id": folder, "organization_user_group_id": b.id("team", "0")}, b.series(FOLDERS)),
        ({"document_id": document, "user_id": b.id("user", "1")}, contents),
        ({"document_id": "'by groups'", "organization_user_group_id": group}, b.series(GROUPS)),
        ({"document_id": "'by own grants'", "user_id": user}, everybody),
    ):
        b.fill(tables["grant"], {**grant, **values}, source)


def _rows(size: Size) -> int:
    return min(ROWS, size.users)


def _lists(size: Size) -> dict[str, tuple[str, dict[str, Any], int | None]]:
    """Name → path, body and number of rows. None: many more."""

    def resources(user: int, organization: str, **more: object) -> tuple[str, dict[str, Any]]:
        return LIST_RESOURCES_PATH, {"userId": f"user-{user:07}", "organizationId": organization, **more}

    def users(document: str, organization: str) -> tuple[str, dict[str, Any]]:
        resource = {"type": "document", "id": document, "organizationId": organization}
        return LIST_USERS_PATH, {"resource": resource}

    rows, middle = _rows(size), size.large // 2
    return {
        # With the document that all may open by their own grants, and the one by groups.
        "resources by a group's grants on folders": (*resources(0, "acme"), rows),
        "documents by a group's grants on folders": (*resources(0, "acme", types=["document"]), rows - FOLDERS),
        "documents by own grants": (*resources(1, "acme"), rows - FOLDERS),
        "users by own grants": (*users("by own grants", "acme"), rows),
        f"users by {GROUPS} groups": (*users("by groups", "acme"), rows),
        "resources of a member of the largest organization": (*resources(middle, "org-0"), None),
        "users of a document of the largest organization": (*users(f"document-{middle:07}", "org-0"), None),
    }


def _call(client: FlaskClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    response = client.post(path, json=body, headers={"Authorization": f"Bearer {ADMIN}"})
    assert response.status_code == 200, response.get_data(as_text=True)
    answer: dict[str, Any] = response.get_json()
    return answer


def _count(client: FlaskClient, path: str, body: dict[str, Any]) -> int:
    count, token = 0, None
    while True:
        answer = _call(client, path, {**body, "pageSize": 1_000, **({"pageToken": token} if token else {})})
        count += len(answer["resources"] if path == LIST_RESOURCES_PATH else answer["users"])
        token = answer.get("nextPageToken")
        if token is None:
            return count


def _first_page(client: FlaskClient, path: str, body: dict[str, Any], repeats: int) -> str:
    taken = []
    for _ in range(repeats + 2):
        began = time.perf_counter()
        _call(client, path, body)
        taken.append((time.perf_counter() - began) * 1000)
    # The first two compile the statements.
    measured = sorted(taken[2:])
    p99 = measured[min(len(measured) - 1, len(measured) * 99 // 100)]
    return f"{statistics.median(measured):.1f} / {p99:.1f} (the aim: {AIM_MS:.0f})"
