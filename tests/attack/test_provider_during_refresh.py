"""Every response is consistent with one revision while the directory changes and runs are written.

Each call's answers are compared with a plain reading of the rules (``app/access/decision/README.md``, "The decision")
over the records of the revision it was answered from.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from time import monotonic

import pytest
from sqlalchemy import Engine

from app.access.decision.decide import DecisionPolicy, PlainQuestion
from app.access.problem_list import ProblemList
from app.access.records import Record
from app.access.refresh.reads import ReadResult
from app.access.refresh.refresh import Refresh
from app.access.sql_view import opened_sql_view
from app.commands.schema import METADATA
from app.contract.permission_call import Question
from app.foundation.database.engine import open_engine
from app.service.provider.answer import PermissionAnswer, answer_questions
from app.sync.runs.lifecycle import Runs
from app.sync.runs.run import RunRequest
from tests.access.decision.test_decide_against_rules import Rulebook
from tests.tables import make_tables
from tests.worlds.random_directories import NOW, Company

SECONDS = 5.0
REVISIONS = 3
POLICY = DecisionPolicy(decision_ttl=0)


def drawn_question(company: Company) -> Question:
    question = company.question()
    return Question(
        user_id=question.user_id,
        type=question.type,
        resource_id=question.resource_id,
        organization_id=question.organization_id,
        parent_folder_id=question.parent_folder_id,
        context=dict(question.context or {}),
    )


def expected(records: Sequence[Record], asked: Sequence[Question]) -> list[tuple[bool, object]]:
    book = Rulebook(list(records), POLICY)
    verdicts = [
        book.verdict(
            PlainQuestion(
                user_id=one.user_id,
                type=one.type,
                resource_id=one.resource_id,
                organization_id=one.organization_id,
                parent_folder_id=one.parent_folder_id,
                context=one.context or None,
            )
        )
        for one in asked
    ]
    return [(verdict.allowed, verdict.role.value if verdict.role else None) for verdict in verdicts]


def decisions(answer: PermissionAnswer) -> list[tuple[object, object]]:
    return [(result["hasAccess"], result.get("accessRole")) for result in answer.results]


class Busy:
    """A database with concurrent refreshes, runs and permission calls."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.open_view = partial(opened_sql_view, engine)
        self.records_of: dict[int, list[Record]] = {}
        self.calls: list[tuple[int, list[Question], PermissionAnswer]] = []
        self.began = monotonic()
        self.seen: set[int] = set()

    def goes_on(self) -> bool:
        """True for some seconds, and until a few revisions were used."""
        passed = monotonic() - self.began
        return passed < SECONDS or (len(self.seen) <= REVISIONS and passed < 12 * SECONDS)

    def refresh(self, number: int) -> None:
        records = Company(number).records()
        with Refresh(self.engine, clock=lambda: NOW, problems=ProblemList()) as reading:
            reading.begin(["company"])
            for place, record in enumerate(records):
                reading.staging.add(record, f"company:{place}")
            reading.staging.end(ReadResult(records=len(records)))
            self.records_of[reading.finish().change.revision] = records

    def keep_refreshing(self) -> None:
        number = 1
        while self.goes_on():
            self.refresh(number)
            number += 1

    def keep_writing(self) -> None:
        runs = Runs(self.engine, lambda: NOW, Random(7))
        number = 0
        while self.goes_on():
            runs.enqueue(RunRequest(trigger="command", idempotency_key=f"run {number}"))
            number += 1
            # SQLite knows no queue: who writes without a pause keeps the refresh waiting.
            threading.Event().wait(0.03)

    def keep_asking(self, seed: int) -> None:
        lot = Random(seed)
        while self.goes_on():
            company = Company(lot.randrange(1 << 30))
            requests = [drawn_question(company) for _ in range(20)]
            answer = answer_questions(requests, self.open_view, NOW, POLICY)
            self.calls.append((answer.revision, requests, answer))
            self.seen.add(answer.revision)


@pytest.mark.timeout(120)
def test_every_response_is_consistent_with_its_revision(database_url: str) -> None:
    engine = open_engine(database_url, pool_size=8)
    make_tables(engine, METADATA)
    busy = Busy(engine)
    busy.refresh(0)
    with ThreadPoolExecutor(4) as pool:
        work = [pool.submit(busy.keep_refreshing), pool.submit(busy.keep_writing)]
        work += [pool.submit(busy.keep_asking, seed) for seed in (1, 2)]
        for one in work:
            one.result()
    engine.dispose()
    calls = busy.calls if len(busy.calls) < 1500 else Random(3).sample(busy.calls, 1500)
    wrong = [
        revision
        for revision, requests, answer in calls
        if decisions(answer) != expected(busy.records_of[revision], requests)
    ]
    assert wrong == []
    assert len(calls) > 100
    assert len(busy.seen) > REVISIONS
