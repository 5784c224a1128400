"""Measures pushes: the delay until decisions follow, and the rate of many records."""

import statistics
import time
from pathlib import Path
from typing import Any

from flask.testing import FlaskClient

from app.commands.bootstrap.service import service_app
from app.commands.schema import METADATA
from app.directory.configured import sources_from_settings
from app.foundation.clock import utc_now
from app.foundation.database.engine import open_engine
from app.settings import Settings
from app.sync.runs.directory_reads import read_directory
from tests.bench.company import Company
from tests.bench.databases import databases

PUSH, ASK = "push-" + "p" * 20, "ask-" + "a" * 20
_BATCH = 1_000
_TRIES = 60


def bench_pushes(folder: Path, *, scale: float, postgres: str | None = None) -> dict[str, object]:
    """Pushes into a directory of 1,400,000 records from a file."""
    folder.mkdir(parents=True, exist_ok=True)
    company = Company(
        users=max(int(100_000 * scale), 100),
        folders=max(int(20_000 * scale), 50),
        documents=max(int(100_000 * scale), 100),
        grants=max(int(1_070_000 * scale), 100),
        with_aliases=True,
    )
    file = company.write(folder / "directory.jsonl")
    figures: dict[str, object] = {}
    with databases(folder, postgres) as new_database:
        url = new_database("pushes")
        settings = Settings.model_validate(
            {
                "database_url": url,
                "provider": {"auth_tokens": [ASK]},
                "directory": {
                    "sources": [
                        {"type": "file", "path": str(file), "name": "people"},
                        {"type": "push", "name": "app", "changes": {"tokens": [PUSH]}},
                    ]
                },
            }
        )
        engine = open_engine(url)
        try:
            METADATA.create_all(engine)
            report = read_directory(engine, sources_from_settings(settings.directory), clock=utc_now)
            assert report.revision, report.sources
            client = service_app(settings, engine, clock=utc_now, new_id=lambda: "bench").test_client()
            reported = f"Pushes beside {report.sources[0].records:,} records, {engine.dialect.name}"
            for what, holder in (("a document", "userId"), ("a document granted by e-mail", "userAlias")):
                seconds = [_until_answered(client, company, number, holder) for number in range(_TRIES)]
                p95 = statistics.quantiles(seconds, n=20)[-1]
                figures[f"{reported}: {what} until answers follow, ms, median; p95 (at most 500)"] = (
                    f"{statistics.median(seconds) * 1000:.0f}; {p95 * 1000:.0f}"
                )
            figures[f"{reported}: records a second in pushes of 1,000 (at least 5,000)"] = (
                f"{_batches(client, company):,.0f}"
            )
        finally:
            engine.dispose()
    return figures


def _push(client: FlaskClient, body: dict[str, Any]) -> None:
    answer = client.post("/directory/app/changes", json=body, headers={"Authorization": f"Bearer {PUSH}"})
    assert answer.status_code == 200, answer.get_data(as_text=True)
    assert answer.get_json()["leftOut"] == []


def _until_answered(client: FlaskClient, company: Company, number: int, holder: str) -> float:
    organization, document = company.organization_of(number), f"pushed-{holder}-{number}"
    ids = {"organizationId": organization, "documentId": document}
    named = f"user-{number}" if holder == "userId" else f"User-{number}@Company.example"
    records = [
        {"kind": "document", **ids, "documentName": f"Pushed {number}", "accessType": "restricted"},
        {"kind": "grant", **ids, holder: named},
    ]
    sequence = number + 1 if holder == "userId" else _TRIES + number + 1
    resource = {"type": "document", "id": document, "organizationId": organization}
    question = {"userId": f"user-{number}", "resource": resource}
    began = time.perf_counter()
    _push(client, {"sequence": sequence, "upsert": records})
    answer = client.post(
        "/permissions/check", json={"data": {"requests": [question]}}, headers={"Authorization": f"Bearer {ASK}"}
    )
    took = time.perf_counter() - began
    assert answer.get_json()["data"][0]["hasAccess"] is True
    return took


def _batches(client: FlaskClient, company: Company) -> float:
    bodies = [
        {
            "sequence": 1_000 + batch,
            "upsert": [
                {
                    "kind": "document",
                    "organizationId": company.organization_of(number),
                    "documentId": f"batch-{batch}-{number}",
                    "documentName": f"Document {number}",
                }
                for number in range(_BATCH)
            ],
        }
        for batch in range(10)
    ]
    began = time.perf_counter()
    for body in bodies:
        _push(client, body)
    return len(bodies) * _BATCH / (time.perf_counter() - began)
