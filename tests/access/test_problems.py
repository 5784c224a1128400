"""Stored problems of the directory: counted for each source and sort, with the first hundred as rows."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Engine, event

from app.access.problem_list import ProblemList
from app.access.problems import Problem, ProblemCause, ProblemSort
from app.access.records import Grant, Membership, Organization, Record, User
from app.access.refresh.reads import CHANGES, ReadResult
from app.access.refresh.refresh import Refresh
from app.access.stored_problems import count_problems, first_problems, problem_counts
from app.commands.schema import METADATA
from app.foundation.database.engine import open_engine, reading
from tests.tables import make_tables

NOW = datetime(2026, 11, 1, tzinfo=UTC)

GOOD: list[Record] = [
    Organization(organization_id="o", organization_name=""),
    User(user_id="u", name="", email=""),
    Membership(organization_id="o", user_id="u"),
]


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield engine
    engine.dispose()


SourceRecords = tuple[Sequence[Record], int]
"""Records, and the number of malformed ones."""


def refresh(
    engine: Engine, sources: dict[str, SourceRecords | None], verdict: str = "complete", how: ReadResult | None = None
) -> ProblemList:
    """Reads these sources. None: the source is configured, but not read."""
    problems = ProblemList()
    with Refresh(engine, clock=lambda: NOW, problems=problems) as refreshing:
        refreshing.begin(list(sources), only=[name for name, one in sources.items() if one is not None])
        for position, (name, one) in enumerate(sources.items()):
            if one is None:
                continue
            records, malformed = one
            for number in range(malformed):
                problems.add(Problem(ProblemSort.MALFORMED, name, f"{name}:{number}", "is \0 no record"))
            for line, record in enumerate(records):
                refreshing.staging.add(record, f"{name}:{line}", position=position)
            result = replace(how or ReadResult(), records=len(records), verdict=verdict, malformed=malformed)
            refreshing.staging.end(result, position=position)
        refreshing.finish()
    count_problems(engine, lambda: NOW)
    return problems


def counts(engine: Engine) -> dict[str, dict[str, int]]:
    with reading(engine) as connection:
        return {
            source: {one.sort: one.problems for one in known} for source, known in problem_counts(connection).items()
        }


def first(engine: Engine, source: str, sort: str) -> list[str]:
    with reading(engine) as connection:
        return [str(problem) for problem in first_problems(connection, source, sort)]


def grants(count: int, document: str = "nowhere") -> list[Record]:
    return [Grant(organization_id="o", document_id=f"{document}-{number:03}", user_id="u") for number in range(count)]


def test_each_source_and_sort_has_its_first_hundred(engine: Engine) -> None:
    problems = refresh(engine, {"people": ([*GOOD, *grants(150)], 120), "more": ([*grants(3, "lost"), GOOD[1]], 0)})
    assert counts(engine) == {
        "people": {"malformed": 120, "dangling": 150},
        "more": {"dangling": 3, "ownedElsewhere": 1},
    }
    assert [len(first(engine, "people", sort)) for sort in ("malformed", "dangling", "remark")] == [100, 100, 0]
    assert first(engine, "people", "malformed")[99] == "people:99: is � no record"
    dangling = first(engine, "more", "dangling")
    assert [one.partition(": ")[0] for one in dangling] == ["more:0", "more:1", "more:2"]
    assert "refers to the document 'lost-000'" in dangling[0]
    assert first(engine, "nobody", "dangling") == first(engine, "", "dangling") == []
    # A report keeps three of those with the same sentence.
    assert len(problems.listed) == 3
    assert problems.counts == {"malformed": 120}


def test_refresh_replaces_the_problems_of_the_sources_that_it_read(engine: Engine) -> None:
    refresh(engine, {"people": (GOOD, 2), "more": (grants(2), 1)})
    refresh(engine, {"people": (GOOD, 0), "more": None})
    assert counts(engine) == {"more": {"malformed": 1, "dangling": 2}}
    refresh(engine, {"people": None, "more": ([], 0)}, verdict="failed")
    assert counts(engine) == {"more": {"malformed": 1, "dangling": 2}}
    refresh(engine, {"people": (GOOD, 0), "more": (grants(1), 0)})
    assert counts(engine) == {"more": {"dangling": 1}}
    assert len(first(engine, "more", "dangling")) == 1
    # The problems of a source that is no longer configured cannot be fixed.
    refresh(engine, {"people": (GOOD, 0)})
    assert counts(engine) == {}


def test_read_of_changes_replaces_the_problems_of_its_objects(engine: Engine) -> None:
    def malformed(*objects: str) -> list[Problem]:
        return [Problem(ProblemSort.MALFORMED, "people", one, "no record", origin=one) for one in objects]

    def read(found: Sequence[Problem], how: ReadResult, gone: Sequence[str] = ()) -> list[str]:
        problems = ProblemList()
        with Refresh(engine, clock=lambda: NOW, problems=problems) as refreshing:
            refreshing.begin(["people"])
            for problem in found:
                problems.add(problem)
                refreshing.staging.add_malformed(problem.origin, disabled=False)
            for origin in gone:
                refreshing.staging.add_gone(origin)
            for record in GOOD:
                refreshing.staging.add(record, "", origin="good")
            verdict = "partial" if found else "complete"
            refreshing.staging.end(replace(how, records=3, verdict=verdict, malformed=len(found)))
            refreshing.finish()
        return first(engine, "people", "malformed")

    whole, changes = (
        ReadResult(except_malformed=True),
        ReadResult(answered=CHANGES, cursor="next", except_malformed=True),
    )
    assert read(malformed("a", "b", "c"), whole) == ["a: no record", "b: no record", "c: no record"]
    assert read([], ReadResult(answered=CHANGES, cursor="next"), gone=["b"]) == ["a: no record", "c: no record"]
    assert read(malformed("a", "d"), changes) == ["c: no record", "a: no record", "d: no record"]
    assert counts(engine) == {"people": {"malformed": 3}}
    assert read([], ReadResult()) == []
    assert counts(engine) == {}


def test_read_of_changes_adds_a_problem_without_object_once(engine: Engine) -> None:
    refresh(engine, {"people": (GOOD, 2), "more": (grants(2), 0)})
    for _ in range(2):
        refresh(engine, {"people": ([], 3), "more": None}, how=ReadResult(answered=CHANGES, cursor="next"))
        assert counts(engine) == {"people": {"malformed": 3}, "more": {"dangling": 2}}


def test_the_same_problems_are_written_once(engine: Engine) -> None:
    sources: dict[str, SourceRecords | None] = {"people": ([*GOOD, *grants(3)], 0)}
    refresh(engine, sources | {"more": ([], 4)}, verdict="partial")
    written: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def note(*arguments: Any) -> None:
        if "INTO problem" in arguments[2] or "FROM problem" in arguments[2]:
            written.append(arguments[2].partition(" ")[0])

    refresh(engine, sources | {"more": ([], 4)}, verdict="partial")
    assert set(written) <= {"SELECT"}


GROUPS = (
    "the groups '0', '1', '2', '3', '4', '5', '6', '7', … of 'o' contain each other;"
    " all have the union of their members"
)


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (Problem(ProblemSort.MALFORMED, "a", "a:1", "email: 'x' is {no} address"), "email: 'x' is {no} address"),
        (
            Problem(
                ProblemSort.DUPLICATE,
                "a",
                "a:1",
                cause=ProblemCause.REPLACED,
                kind="user",
                key=("u{0}",),
                detail=("a:'2",),
            ),
            "user userId='u{0}' is repeated at a:'2, which replaces this record",
        ),
        (
            Problem(
                ProblemSort.DUPLICATE, "a", "a:1", cause=ProblemCause.REPEATED, kind="user", key=("u",), detail=("a:2",)
            ),
            "user userId='u' is also provided at a:2, which is used instead",
        ),
        (
            Problem(
                ProblemSort.OWNED_ELSEWHERE,
                "b",
                "",
                cause=ProblemCause.OWNED,
                kind="user",
                key=("u",),
                detail=("a", "a:2"),
            ),
            "user userId='u' belongs to the source 'a', which provides it at a:2",
        ),
        (
            Problem(
                ProblemSort.AMBIGUOUS,
                "a",
                "a:1",
                cause=ProblemCause.SHARED_ALIAS,
                kind="membership",
                key=("o", "", "x"),
                detail=("x", "u1"),
            ),
            (
                "membership organizationId='o', userAlias='x' refers to the user 'x' (userAlias),"
                " an alias of several: 'u1'"
            ),
        ),
        (
            Problem(ProblemSort.GROUP_CYCLE, "", "", cause=ProblemCause.TOO_MANY, kind="group", key=("o", "")),
            "'o' has too many groups in groups to search them for cycles",
        ),
        (
            Problem(
                ProblemSort.GROUP_CYCLE,
                "a",
                "",
                cause=ProblemCause.GROUP_CYCLE,
                kind="group",
                key=("o", "0"),
                detail=tuple("012345678"),
            ),
            GROUPS,
        ),
    ],
)
def test_problems_are_rendered(problem: Problem, reason: str) -> None:
    assert problem.reason == reason
