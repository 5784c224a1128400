"""Permission calls while the database sessions are ended."""

import threading
from datetime import UTC, datetime
from itertools import count
from random import Random
from typing import Any

import pytest

from app.commands.bootstrap.databases import STORE_MIGRATIONS
from app.commands.bootstrap.service import service_app
from app.foundation.database.engine import open_engine
from app.foundation.database.migrations import upgrade
from app.settings import Settings
from app.sync.runs.directory_reads import read_directory
from tests.conftest import POSTGRES
from tests.crashes.sessions import end_sessions
from tests.worlds.company import HOME, Company

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(not POSTGRES, reason="USHER_TEST_POSTGRES names no server"),
]

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
ROUNDS = 8


def questions(company: Company) -> dict[str, Any]:
    users = [key[1] for key in company.records if key[0] == "user"]
    documents = [key[2] for key in company.records if key[0] == "document" and key[1] == HOME]
    return {
        "data": {
            "requests": [
                {"userId": user, "resource": {"type": "document", "id": document, "organizationId": HOME}}
                for user in users
                for document in documents
            ]
        }
    }


def test_answers_are_right_or_refused_while_sessions_end(postgres: str) -> None:
    engine = open_engine(postgres)
    upgrade(engine, STORE_MIGRATIONS)
    company = Company(Random(41), size=2)
    read_directory(engine, [company], clock=lambda: NOW)
    settings = Settings.model_validate({"database_url": postgres, "provider": {"allow_anonymous": True}})
    ids = count()
    app = service_app(settings, engine, clock=lambda: NOW, new_id=lambda: f"r{next(ids)}")
    body = questions(company)
    right = app.test_client().post("/permissions/check", json=body).get_json()["data"]
    assert {one["hasAccess"] for one in right} == {True, False}
    answers: list[Any] = []
    done = threading.Event()

    def ask() -> None:
        client = app.test_client()
        while not done.is_set():
            answers.append(client.post("/permissions/check", json=body))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    ended = 0
    for _ in range(ROUNDS):
        before = len(answers)
        while len(answers) < before + 9:
            pass
        ended += end_sessions(postgres, "TRUE")
    done.set()
    for thread in threads:
        thread.join()
    last = app.test_client().post("/permissions/check", json=body)
    engine.dispose()
    assert ended
    assert last.get_json()["data"] == right
    for answer in answers:
        if answer.status_code == 200:
            assert answer.get_json()["data"] == right
        else:
            assert (answer.status_code, answer.get_json()["error"]["status"]) == (503, "UNAVAILABLE")
    refused = sum(answer.status_code != 200 for answer in answers)
    # A session that ends in the middle of an answer costs that answer, no other.
    assert refused <= ROUNDS * len(threads)
