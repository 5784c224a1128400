"""The counted problems against a naive evaluation in plain Python, on random directories."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from app.access.kinds import KINDS
from app.access.problems import Problem, ProblemSort
from app.access.records import (
    ContextGrant,
    Document,
    Fill,
    Folder,
    Grant,
    Group,
    GroupMember,
    Key,
    Membership,
    Organization,
    Record,
    User,
)
from app.access.refresh.problems import _statement, find_problems
from app.access.refresh.tables import REFRESH_TABLES_OF_KIND
from app.access.stored_problems import (
    COUNT_EVERY_MS,
    LastCount,
    count_problems,
    first_problems,
    last_count,
    problem_counts,
)
from app.commands.schema import METADATA
from app.foundation.database.engine import is_sqlite, open_engine, reading
from app.foundation.database.statements import run
from tests.access.test_merging import BASE, SOURCES, Read, emptied, origins, records, run_refresh
from tests.tables import make_tables
from tests.worlds.record_references import references

NOW = datetime(2026, 11, 1, tzinfo=UTC)
NAMED = (Organization, User, Group, Folder, Document)

Directory = Mapping[str, Mapping[tuple[Key, str], Record]]
"""Source, in the order of the configuration → its records, by key and object."""

Finding = tuple[str, str, str, Key]
"""Source, sort, kind and key of a problem."""


class NaiveProblems:
    """``app/access/README.md``, "Problems", one record at a time."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._model: dict[Key, tuple[str, Record]] = {}
        self._holders: dict[str, set[str]] = {}
        for users in (True, False):
            for source, mine in directory.items():
                for (_, origin), record in sorted(mine.items(), key=lambda one: one[0][1].encode()):
                    if isinstance(record, User) == users and not isinstance(record, Fill):
                        resolved = self._resolved(record)
                        if resolved is not None and not self._is_hidden(source, record, origin):
                            self._model.setdefault(resolved.key, (source, resolved))
            for _, record in self._model.values():
                for alias in record.aliases if isinstance(record, User) else ():
                    self._holders.setdefault(alias, set()).add(record.key[1])
        self._effective = {key: record for key, (_, record) in self._model.items()}
        while gone := [key for key, record in self._effective.items() if not self._has_references(record)]:
            for key in gone:
                del self._effective[key]

    def find(self) -> Counter[Finding]:
        findings: Counter[Finding] = Counter()
        for source, mine in self._directory.items():
            for (key, origin), record in mine.items():
                if not self._is_hidden(source, record, origin):
                    sort = self._sort(source, record, origin)
                    if sort:
                        findings[source, sort, record.kind, key[1:]] += 1
        return findings

    def group_cycles(self) -> set[tuple[str, frozenset[str]]]:
        inside: dict[Key, set[Key]] = {}
        for record in self._effective.values():
            if isinstance(record, GroupMember) and record.member_group_id:
                outer = (record.organization_id, record.organization_user_group_id)
                inside.setdefault(outer, set()).add((record.organization_id, record.member_group_id))
        reached = {group: self._reached(group, inside) for group in inside}
        return {
            (group[0], frozenset(other[1] for other in reached[group] if group in reached.get(other, set())))
            for group in inside
            if group in reached[group]
        }

    @staticmethod
    def _reached(group: Key, inside: Mapping[Key, set[Key]]) -> set[Key]:
        reached: set[Key] = set()
        waiting = [group]
        while waiting:
            for other in inside.get(waiting.pop(), set()) - reached:
                reached.add(other)
                waiting.append(other)
        return reached

    def _sort(self, source: str, record: Record, origin: str) -> str:
        if isinstance(record, NAMED) and any(
            other and other.encode() < origin.encode() and key == record.key for key, other in self._directory[source]
        ):
            return "duplicate"
        resolved = self._resolved(record)
        if resolved is None:
            return "ambiguous" if self._holders.get(record.user_alias or "") else "dangling"  # type: ignore[union-attr]
        if isinstance(record, Fill):
            return "" if (User.kind, resolved.key[1]) in self._model else "dangling"
        if self._model[resolved.key][0] != source:
            return "ownedElsewhere"
        if resolved.key in self._effective:
            return ""
        return "folderCycle" if isinstance(record, Folder) and self._is_in_cycle(record) else "dangling"

    def _is_in_cycle(self, folder: Folder) -> bool:
        if (Organization.kind, folder.organization_id) not in self._model:
            return False
        at, seen = folder.key, set[Key]()
        while at in self._model and at not in seen:
            seen.add(at)
            above = self._model[at][1]
            assert isinstance(above, Folder)
            at = (Folder.kind, folder.organization_id, above.parent_folder_id or "")
        return at == folder.key

    def _has_references(self, record: Record) -> bool:
        if any(key not in self._effective for key in references(record)):
            return False
        seen = set[Key]()
        at = record
        while isinstance(at, Folder) and at.parent_folder_id:
            if at.key in seen:
                return False
            seen.add(at.key)
            above = self._effective.get((Folder.kind, at.organization_id, at.parent_folder_id))
            if above is None:
                return False
            at = above
        return True

    def _is_hidden(self, source: str, record: Record, origin: str) -> bool:
        return bool(origin) and isinstance(record, NAMED) and (record.key, "") in self._directory[source]

    def _resolved(self, record: Record) -> Record | None:
        """With the user's id instead of an alias. None: nobody has the alias alone."""
        if not isinstance(record, Membership | GroupMember | Grant | ContextGrant | Fill) or not record.user_alias:
            return record
        holders = self._holders.get(record.user_alias, set())
        return replace(record, user_id=min(holders), user_alias=None) if len(holders) == 1 else None


directories = st.lists(st.tuples(st.sampled_from(SOURCES), records, origins), max_size=60)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = open_engine(database_url)
    make_tables(made, METADATA)
    yield made
    made.dispose()


def directory_of(rows: list[tuple[str, Record, str]]) -> dict[str, dict[tuple[Key, str], Record]]:
    directory: dict[str, dict[tuple[Key, str], Record]] = {name: {} for name in SOURCES}
    directory[SOURCES[0]] = {(record.key, ""): record for record in BASE}
    for source, record, origin in rows:
        directory[source][record.key, origin] = record
    return directory


def key_of(problem: Problem) -> Key:
    """The key as in ``Record.key``, without the kind."""
    may_use_alias = KINDS[problem.kind].may_use_alias
    return problem.key[:-1] if may_use_alias and not problem.key[-1] else problem.key


@pytest.mark.slow
@pytest.mark.timeout(300)
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(directories)
def test_counts_and_rows_equal_a_naive_evaluation(engine: Engine, rows: list[tuple[str, Record, str]]) -> None:
    emptied(engine)
    directory = directory_of(rows)
    reads = {
        name: Read("complete", [(one, origin) for (_, origin), one in directory[name].items()]) for name in SOURCES
    }
    run_refresh(engine, reads)
    naive = NaiveProblems(directory)
    expected = naive.find()
    with reading(engine) as connection:
        samples = find_problems(connection)
    first = [problem for sample in samples.values() for problem in sample.first]
    assert sum(sample.count for sample in samples.values()) == len(first)
    assert all(problem.reason and problem.place for problem in first)
    cycles = [problem for problem in first if problem.sort is ProblemSort.GROUP_CYCLE]
    assert {(one.key[0], frozenset(one.detail)) for one in cycles} == naive.group_cycles()
    others = [problem for problem in first if problem.sort is not ProblemSort.GROUP_CYCLE]
    assert Counter((one.source, str(one.sort), one.kind, key_of(one)) for one in others) == expected

    count_problems(engine, lambda: NOW)
    totals = Counter[tuple[str, str]]()
    for (source, sort, _, _), count in expected.items():
        totals[source, sort] += count
    with reading(engine) as connection:
        stored = problem_counts(connection)
        counts = {(name, one.sort): one.problems for name, some in stored.items() for one in some}
        assert {key: count for key, count in counts.items() if key[1] != ProblemSort.GROUP_CYCLE} == totals
        for source, sort in totals:
            # Looked up by key, the same problems are found again.
            assert set(first_problems(connection, source, sort, only_remaining=True)) == set(
                first_problems(connection, source, sort)
            )


def test_documents_without_a_folder_do_not_read_all_folders(engine: Engine) -> None:
    # So many that PostgreSQL's estimate is far above their number.
    folders, many = range(7_000), range(500)
    directory: list[Record] = [Organization(organization_id="o1", organization_name="")]
    directory += [Folder(organization_id="o1", folder_id=f"{one}", folder_name="") for one in folders]
    directory += [
        Document(organization_id="o1", document_id=f"{one}", document_name="", folder_id=f"no {one}") for one in many
    ]
    run_refresh(engine, {"a": Read("complete", [(one, "") for one in directory])})
    documents = REFRESH_TABLES_OF_KIND[Document.kind]
    query = _statement(Document.kind, documents.source.name, few=False)
    with reading(engine) as connection:
        if not is_sqlite(engine):
            run(connection, "ANALYZE model_organization, model_folder")
            plan = run(connection, f"EXPLAIN {query}", {"limit": 1}).scalars().all()
            assert any("hashed SubPlan" in line and "THEN false ELSE true" in line for line in plan), plan
            return
        thousands: list[int] = []
        driver: Any = connection.connection.driver_connection
        driver.set_progress_handler(lambda: thousands.append(1), 1_000)
        assert run(connection, query, {"limit": 1}).one().problems == len(many)
        driver.set_progress_handler(None, 0)
    assert len(thousands) < len(folders) * len(many) // 1_000, len(thousands)


def test_problems_are_counted_if_the_directory_changed_and_not_too_often(engine: Engine) -> None:
    grant = Grant(organization_id="o1", document_id="d9", user_id="u1")

    def refresh(*records: Record) -> None:
        run_refresh(engine, {"first": Read("complete", [(one, "") for one in [*BASE, *records]])})

    def counted(minutes: int, every_ms: int = 0) -> dict[str, int]:
        count_problems(engine, lambda: NOW + timedelta(minutes=minutes), every_ms=every_ms)
        with reading(engine) as connection:
            return {one.sort: one.problems for one in problem_counts(connection).get("first", ())}

    assert counted(0) == {}
    refresh(grant)
    assert counted(0) == {"dangling": 1}
    with reading(engine) as connection:
        last = last_count(connection)
    assert last == LastCount(1, int(NOW.timestamp() * 1000))
    refresh()
    assert counted(4, every_ms=COUNT_EVERY_MS) == {"dangling": 1}
    assert counted(5, every_ms=COUNT_EVERY_MS) == {}
    # A record without a row of its own in the access model does not move the revision.
    refresh(Grant(organization_id="o1", document_id="d9", user_alias="nobody"))
    assert counted(6) == {"dangling": 1}
    with reading(engine) as connection:
        last = last_count(connection)
        [problem] = first_problems(connection, "first", "dangling")
    assert last is not None
    assert last.revision == 2
    assert problem.reason.endswith("refers to the user 'nobody' (userAlias), an alias that no user has")


def test_solved_problem_is_not_shown_but_counted_until_the_next_count(engine: Engine) -> None:
    grants = [Grant(organization_id="o1", document_id=name, user_id="u1") for name in ("d1", "d2")]
    document = Document(organization_id="o1", document_id="d1", document_name="")
    run_refresh(engine, {"first": Read("complete", [(one, "") for one in [*BASE, *grants]])})
    count_problems(engine, lambda: NOW)
    run_refresh(engine, {"first": Read("complete", [(one, "") for one in [*BASE, *grants, document]])})
    with reading(engine) as connection:
        [kept] = problem_counts(connection)["first"]
        shown = first_problems(connection, "first", "dangling", only_remaining=True)
    assert kept.problems == 2
    assert [problem.key[2] for problem in shown] == ["d2"]
