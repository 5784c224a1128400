"""Problems of the directory that stay to be looked at: counted for each source and sort, the first hundred in words."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Engine, event

from app.access.records import Grant, Membership, Organization, Record, User
from app.database.engine import open_engine, reading
from app.model.kept_problems import first_problems, problem_counts
from app.model.refresh.intake import AS_A_WHOLE, HowRead
from app.model.refresh.problems import Problem, ProblemList, ProblemSort
from app.model.refresh.refresh import Refresh
from app.model.refresh.staging import CHANGES
from app.store.schema import METADATA
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


Said = tuple[Sequence[Record], int]
"""Records, and how many more could not be understood."""


def refresh(
    engine: Engine, said: dict[str, Said | None], verdict: str = "complete", how: HowRead = AS_A_WHOLE
) -> ProblemList:
    """Reads these sources; None: one that is configured and is not read now."""
    problems = ProblemList()
    with Refresh(engine, clock=lambda: NOW, problems=problems) as refreshing:
        refreshing.begin(list(said), only=[name for name, one in said.items() if one is not None])
        for name, one in said.items():
            if one is None:
                continue
            records, malformed = one
            for number in range(malformed):
                problems.add(Problem(ProblemSort.MALFORMED, name, f"{name}:{number}", "is \0 no record"))
            for line, record in enumerate(records):
                refreshing.add(record, f"{name}:{line}")
            refreshing.end(records=len(records), verdict=verdict, reason="", malformed=malformed, how=how)
        refreshing.finish()
    return problems


def counts(engine: Engine) -> dict[str, dict[str, int]]:
    with reading(engine) as connection:
        return {
            source: {one.sort: one.problems for one in known} for source, known in problem_counts(connection).items()
        }


def first(engine: Engine, source: str, sort: str) -> list[str]:
    with reading(engine) as connection:
        return [f"{place}: {reason}" for place, reason in first_problems(connection, source, sort)]


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
    # What a run keeps is what it kept before: a hundred in all, and of those that say the same three.
    assert len(problems.kept) <= 100
    assert problems.counts == {"malformed": 120, "dangling": 153, "ownedElsewhere": 1}


def test_a_refresh_replaces_what_it_read_and_nothing_else(engine: Engine) -> None:
    refresh(engine, {"people": (GOOD, 2), "more": (grants(2), 1)})
    refresh(engine, {"people": (GOOD, 0), "more": None})
    assert counts(engine) == {"more": {"malformed": 1, "dangling": 2}}
    refresh(engine, {"people": None, "more": ([], 0)}, verdict="failed")
    assert counts(engine) == {"more": {"malformed": 1, "dangling": 2}}
    refresh(engine, {"people": (GOOD, 0), "more": (grants(1), 0)})
    assert counts(engine) == {"more": {"dangling": 1}}
    assert len(first(engine, "more", "dangling")) == 1
    # Nobody can mend what a source says that is not configured any more.
    refresh(engine, {"people": (GOOD, 0)})
    assert counts(engine) == {}


def test_a_read_of_changes_adds_to_what_is_known(engine: Engine) -> None:
    refresh(engine, {"people": (GOOD, 2), "more": (grants(2), 0)})
    for _ in range(2):
        refresh(engine, {"people": ([], 3), "more": None}, how=HowRead(answered=CHANGES, cursor="next"))
        assert counts(engine) == {"people": {"malformed": 3}, "more": {"dangling": 2}}


def test_the_same_problems_are_written_once(engine: Engine) -> None:
    said: dict[str, Said | None] = {"people": ([*GOOD, *grants(3)], 4)}
    refresh(engine, said)
    written: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def note(*arguments: Any) -> None:
        if "directory_problem" in arguments[2] and not arguments[2].startswith("SELECT"):
            written.append(arguments[2])

    refresh(engine, said)
    assert written == []
    refresh(engine, {"people": ([*GOOD, *grants(2)], 4)})
    assert len(written) == 4  # of one sort: away with both, and both anew
