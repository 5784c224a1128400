"""The merge by key leaves what the merge of everything leaves: a second database merges everything each time."""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, event, insert, literal, select, text, update

import app.model.refresh.refresh
from app.access.records import (
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
from app.database.engine import is_sqlite, open_engine, reading
from app.model.kept_problems import first_problems, problem_counts
from app.model.refresh.changes import counted_by_source
from app.model.refresh.intake import HowRead
from app.model.refresh.kept import carry_out_kept, compute_source_changes
from app.model.refresh.keyed import KeyedMerge, is_merged
from app.model.refresh.problems import ProblemList
from app.model.refresh.refresh import Applied, Refresh, Refreshed
from app.model.refresh.replace import Replaced
from app.model.refresh.scratch import MODEL_TABLES, SCRATCH_TABLES, RowChange
from app.model.refresh.staging import CHANGES, PARTIAL, SOURCE, StagedRead
from app.store.schema import METADATA
from tests.model.test_merging import BASE, SOURCES, Read, emptied, model_of, reads, records, run_refresh
from tests.tables import make_tables

NOW = datetime(2026, 11, 1, tzinfo=UTC)


KEPT = {tables.kind: tables for tables in SCRATCH_TABLES}


def push(engine: Engine, source: str, upserted: Sequence[Record], removed: Sequence[Record] = ()) -> Applied[None]:
    """Adds and replaces records of a source, and takes others away, as one change."""
    with reading(engine) as connection:
        source_id = connection.execute(select(SOURCE.c.source_id).where(SOURCE.c.name == source)).scalar_one()

    def compare(connection: Connection) -> bool:
        read = StagedRead(source_id, source, 0, 0, len(upserted), PARTIAL, "")
        compute_source_changes(connection, [read], [])
        for record in removed:
            tables = KEPT[record.kind]
            source_table = tables.source
            same = (source_table.c[name] == (getattr(record, name) or "") for name in tables.owned_keys)
            gone = select(*(source_table.c[name] for name in tables.source_keys), literal(int(RowChange.REMOVE)))
            connection.execute(
                insert(tables.delta).from_select(
                    [*tables.source_keys, "change"], gone.where(source_table.c.source_id == source_id, *same)
                )
            )
        return True

    def keep(connection: Connection, _: bool) -> None:
        for tables in SCRATCH_TABLES:
            counts = counted_by_source(connection, tables).get(source_id)
            if counts:
                carry_out_kept(connection, tables, counts)
                connection.execute(
                    update(SOURCE)
                    .where(SOURCE.c.source_id == source_id)
                    .values(records=SOURCE.c.records + counts.added - counts.removed)
                )

    with Refresh(engine, clock=lambda: NOW, problems=ProblemList()) as refresh:
        refresh.open_source(source_id)
        for line, record in enumerate(upserted):
            refresh.add(record, f"push[{line}]")
        applied = refresh.apply_changes(compare, keep)
    assert applied is not None
    return applied


@dataclass(frozen=True)
class Change:
    """One push: of a source that is there, chosen by number."""

    source: int
    upserted: dict[Key, Record]
    removed: dict[Key, Record]


def _change(source: int, upserted: list[Record], removed: list[Record]) -> Change:
    given = {record.key: record for record in upserted}
    return Change(source, given, {record.key: record for record in removed if record.key not in given})


@dataclass(frozen=True)
class Told:
    """What a source says has changed: of each object all of its records, or that it is gone."""

    source: int
    records: list[tuple[Record, str]]
    gone: list[str]


changes = st.builds(
    _change,
    st.integers(0, 2),
    st.lists(records, max_size=6),
    st.lists(records | st.sampled_from(BASE), max_size=4),
)
objects = st.sampled_from(["users\x1f1", "users\x1f2", "groups\x1fß"])
told_changes = st.builds(
    Told, st.integers(0, 2), st.lists(st.tuples(records, objects), max_size=6), st.lists(objects, max_size=2)
)
first_reads = st.fixed_dictionaries(dict.fromkeys(SOURCES, reads))
steps = st.lists(changes | told_changes | first_reads, min_size=1, max_size=6)


@contextmanager
def merging_everything() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app.model.refresh.refresh, "is_merged", lambda _: False)
        yield


@contextmanager
def watching_keyed_merges() -> Iterator[list[int]]:
    """The revisions that merges by key led to meanwhile."""
    carried: list[int] = []
    carry_out = KeyedMerge.carry_out

    def noted(merge: KeyedMerge, *arguments: Any) -> Replaced:
        replaced = carry_out(merge, *arguments)
        carried.append(replaced.revision)
        return replaced

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KeyedMerge, "carry_out", noted)
        yield carried


def state_of(engine: Engine) -> dict[str, list[tuple[object, ...]]]:
    """All that a merge leaves, without when."""
    queries = {
        **{tables.access.name: f"SELECT * FROM {tables.access.name}" for tables in MODEL_TABLES},
        **{tables.source.name: f"SELECT * FROM {tables.source.name}" for tables in SCRATCH_TABLES},
        "model_user_alias": "SELECT * FROM model_user_alias",
        "fill_binding": "SELECT * FROM fill_binding",
        "former_payload": "SELECT * FROM former_payload",
        "access_name": "SELECT * FROM access_name",
        "access_count": "SELECT * FROM access_count WHERE records <> 0",
        "directory_source": "SELECT source_id, name, position, records, dangling FROM directory_source",
        "directory_state": "SELECT generation - merged_generation, merge_problems FROM directory_state",
        "access_revision": "SELECT revision, changes FROM access_revision",
    }
    with reading(engine) as connection:
        sources = {row.source_id: row.name for row in connection.execute(select(SOURCE.c.source_id, SOURCE.c.name))}
        found = {name: connection.execute(text(query)).mappings().all() for name, query in queries.items()}
    return {
        name: sorted(
            (
                # Databases count from elsewhere, and spell yes and no in their own ways.
                tuple(
                    sources[value] if column == "source_id" else int(value) if isinstance(value, bool) else value
                    for column, value in row.items()
                )
                for row in rows
            ),
            key=repr,
        )
        for name, rows in found.items()
    }


WHY = re.compile(r" (?:refers to|lies below|is in a cycle|belongs to the source)\b.*")


def kept_of(engine: Engine) -> tuple[dict[tuple[str, str], int], list[tuple[str, str, str]]]:
    """How many problems of the merge are kept, and of which records; which way up from a folder is a cycle is known
    of a sample alone, and why something is left out, and where it stands, may be told as it was before: an unchanged
    record that is pushed and then read stands at another place for the read, and at the first for a later merge."""
    numbers: dict[tuple[str, str], int] = {}
    first = []
    with reading(engine) as connection:
        for source, kept in problem_counts(connection).items():
            for one in kept:
                if one.sort in {"malformed", "remark", "duplicate"}:
                    continue
                sort = "dangling" if one.sort == "folderCycle" else one.sort
                numbers[source, sort] = numbers.get((source, sort), 0) + one.problems
                first += [
                    (source, sort, WHY.sub("", reason)) for _, reason in first_problems(connection, source, one.sort)
                ]
    return numbers, sorted(first)


def tell(engine: Engine, told: Told) -> tuple[ProblemList, Refreshed]:
    """A read of changes."""
    problems = ProblemList()
    with Refresh(engine, clock=lambda: NOW, problems=problems) as refresh:
        refresh.begin(SOURCES, only=[SOURCES[told.source]])
        for line, (record, origin) in enumerate(told.records):
            if origin not in told.gone:
                refresh.add(record, f"told[{line}]", origin=origin, rule=f"{line % 2}")
        for origin in told.gone:
            refresh.gone(origin)
        how = HowRead(answered=CHANGES, cursor="next")
        refresh.end(records=len(told.records), verdict="complete", reason="", how=how)
        return problems, refresh.finish()


def above_of(engine: Engine, source: str) -> set[Key]:
    """The keys that sources further up give."""
    found: set[Key] = set()
    with reading(engine) as connection:
        position = select(SOURCE.c.position).where(SOURCE.c.name == source).scalar_subquery()
        for tables in MODEL_TABLES:
            given = select(*(tables.source.c[name] for name in tables.keys)).join(
                SOURCE, SOURCE.c.source_id == tables.source.c.source_id
            )
            found |= {(tables.kind, *row) for row in connection.execute(given.where(SOURCE.c.position < position))}
    return found


def told(problems: ProblemList) -> list[str]:
    return sorted(str(problem) for problem in problems.kept)


@pytest.fixture
def engines(database_url: str, tmp_path: Path) -> Iterator[tuple[Engine, Engine]]:
    """One that merges by key, and one that merges everything."""
    made = open_engine(database_url), open_engine(f"sqlite:///{tmp_path / 'everything.db'}")
    for engine in made:
        make_tables(engine, METADATA)
    yield made
    for engine in made:
        engine.dispose()


@pytest.mark.slow
@pytest.mark.timeout(300)
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(first_reads, steps)
def test_merging_by_key_leaves_what_merging_everything_leaves(
    engines: tuple[Engine, Engine], first: dict[str, Read], then: list[Change | Told | dict[str, Read]]
) -> None:
    keyed, everything = engines
    for engine in engines:
        emptied(engine)
    for step in [first, *then]:
        if isinstance(step, dict):
            found = run_refresh(keyed, step)
            with merging_everything():
                expected = run_refresh(everything, step)
            assert found[0].counts == expected[0].counts
            assert told(found[0]) == told(expected[0])
            assert found[1:] == expected[1:]
        elif isinstance(step, Told):
            problems, refreshed = tell(keyed, step)
            with merging_everything():
                all_problems, other_refreshed = tell(everything, step)
            assert refreshed.replaced == other_refreshed.replaced
            assert set(told(problems)) <= set(told(all_problems))
        else:
            source = SOURCES[step.source]
            with reading(keyed) as connection:
                could_be_keyed = is_merged(connection)
            with watching_keyed_merges() as carried:
                applied = push(keyed, source, [*step.upserted.values()], [*step.removed.values()])
            assert len(carried) == int(could_be_keyed)
            with merging_everything():
                other = push(everything, source, [*step.upserted.values()], [*step.removed.values()])
            assert applied.replaced == other.replaced
            assert sorted(applied.left_out) == sorted(other.left_out)
            model = model_of(keyed)
            above = above_of(keyed, source)
            # What names an alias counts under another key, or not at all; a fill has none.
            by_id = [
                one
                for one in step.upserted.values()
                if not isinstance(one, Fill) and len(one.key) == len(KEPT[one.kind].keys) + 1
            ]
            wrong = {one.key for one in by_id if one.key not in model or one.key in above}
            places = {one.place for one in applied.left_out}
            assert {f"push[{line}]" for line, key in enumerate(step.upserted) if key in wrong} <= places
        assert state_of(keyed) == state_of(everything)
        assert kept_of(keyed) == kept_of(everything)


HELD: list[Record] = [
    Organization(organization_id="o", organization_name="o"),
    Document(organization_id="o", document_id="d", document_name=""),
    User(user_id="u1", name="", email="", aliases=("a",)),
    User(user_id="u2", name="", email=""),
    Grant(organization_id="o", document_id="d", user_alias="a"),
    Fill(user_alias="a", name="Filled"),
    Fill(user_id="u3", disabled=True),
]
IN_TURN: list[tuple[str, list[Record], list[Record]]] = [
    ("first", [User(user_id="u2", name="", email="", aliases=("a",))], []),  # nobody's, being of two
    ("first", [User(user_id="u1", name="", email="")], []),  # the other one's
    ("second", [Grant(organization_id="o", document_id="d", user_id="u2")], []),  # belongs to the first source
    ("first", [], [User(user_id="u2", name="", email="")]),  # nobody's at all
    ("second", [User(user_id="u3", name="", email="", aliases=("a",))], []),  # a new user's, whom two fills await
    ("first", [], [Fill(user_alias="a")]),
]


def test_what_is_named_by_an_alias_goes_where_the_alias_goes(engines: tuple[Engine, Engine]) -> None:
    keyed, everything = engines
    for engine in engines:
        run_refresh(engine, {"first": Read("complete", [(one, "") for one in HELD]), "second": Read("partial", [])})
    for source, upserted, removed in IN_TURN:
        with watching_keyed_merges() as carried:
            push(keyed, source, upserted, removed)
        assert len(carried) == 1
        with merging_everything():
            push(everything, source, upserted, removed)
        assert state_of(keyed) == state_of(everything)
        assert kept_of(keyed) == kept_of(everything)
    people = {one.key[1]: one for one in model_of(keyed).values() if isinstance(one, User)}
    assert (people["u3"].name, people["u3"].disabled) == ("", True)


MERGES = re.compile("refresh_(?:touched|combined|left_out|former|alias|user_alias)")
READS_ALL = re.compile(r"SCAN (?:source|access)_|Seq Scan on (?:source|access)_")


def test_a_change_reads_no_table_from_end_to_end(database_url: str) -> None:
    """A folder with a document that others were granted comes, among others that nobody is to look at."""
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    company: list[Record] = [Organization(organization_id="o", organization_name="o")]
    company += [User(user_id=f"u{number}", name="", email="", aliases=(f"a{number}",)) for number in range(300)]
    company += [Fill(user_alias=f"a{number}", name="Filled") for number in range(300)]
    company += [Membership(organization_id="o", user_id=f"u{number}") for number in range(300)]
    company += [Document(organization_id="o", document_id=f"d{number}", document_name="") for number in range(300)]
    company += [Grant(organization_id="o", document_id=f"d{number}", user_id="u1") for number in range(300)]
    company += [Grant(organization_id="o", document_id=f"d{number}", user_alias="a2") for number in range(300)]
    company += [Grant(organization_id="o", document_id="new", user_id="u1")]
    run_refresh(engine, {"first": Read("complete", [(one, "") for one in company])})
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("ANALYZE"))
    plans: list[tuple[str, str]] = []

    @event.listens_for(engine, "after_cursor_execute")
    def explain(*arguments: Any) -> None:
        connection, _, statement, parameters, _, is_many = arguments
        if MERGES.search(statement) and not is_many and not {"DELETE", "CREATE", "DROP"} & set(statement.split()):
            with closing(connection.connection.cursor()) as cursor:
                cursor.execute(f"EXPLAIN {'QUERY PLAN ' if is_sqlite(engine) else ''}{statement}", parameters)
                plans.append((statement, "\n".join(str(row[-1]) for row in cursor.fetchall())))

    pushed: list[Record] = [
        Folder(organization_id="o", folder_id="f", folder_name=""),
        Document(organization_id="o", document_id="new", document_name="", folder_id="f"),
        Grant(organization_id="o", document_id="new", user_alias="a3"),
        Fill(user_alias="a4", disabled=True),
    ]
    assert push(engine, "first", pushed).replaced.changes["grant"].added == 2
    # An alias changes hands.
    pushed = [User(user_id="u2", name="", email=""), User(user_id="u3", name="", email="", aliases=("a2", "a3"))]
    changes = push(engine, "first", pushed).replaced.changes
    assert (changes["grant"].added, changes["grant"].removed, changes["user"].updated) == (300, 300, 1)
    assert len(plans) > 60
    assert [(statement, plan) for statement, plan in plans if READS_ALL.search(plan)] == []
    engine.dispose()


def told_of(engine: Engine, source: str, sort: str) -> tuple[int, list[str]]:
    """How many problems are kept, and what is said of the first."""
    with reading(engine) as connection:
        numbers = {one.sort: one.problems for one in problem_counts(connection).get(source, ())}
        return numbers.get(sort, 0), [
            f"{place}: {reason}" for place, reason in first_problems(connection, source, sort)
        ]


def grants(first: int, last: int) -> list[Record]:
    return [Grant(organization_id="o", document_id=f"d{number:03}", user_id="u") for number in range(first, last)]


def test_kept_problems_follow_pushes(database_url: str) -> None:
    """What a push mends is told no more, what it leaves dangling is told at once, and the rest stands."""
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    base: list[Record] = [
        Organization(organization_id="o", organization_name=""),
        User(user_id="u", name="", email=""),
        *grants(0, 150),
    ]
    run_refresh(engine, {"first": Read("complete", [(one, "") for one in base]), "second": Read("complete", [])})
    number, first = told_of(engine, "first", "dangling")
    assert (number, len(first)) == (150, 100)
    come: list[Record] = [Document(organization_id="o", document_id=f"d{n:03}", document_name="") for n in range(3)]
    come.append(Document(organization_id="o", document_id="d149", document_name=""))
    push(engine, "second", come)
    number, first = told_of(engine, "first", "dangling")
    assert (number, len(first)) == (146, 97)
    assert "documentId='d003'" in first[0]
    push(engine, "second", grants(200, 202))
    assert told_of(engine, "first", "dangling")[0] == 146
    number, first = told_of(engine, "second", "dangling")
    assert number == 2
    assert first[0].startswith("push[0]: grant ")
    assert first[0].endswith("refers to the document 'd200' (documentId), which is nowhere in the directory")
    # Taken away, and belonging to another source.
    push(engine, "second", [User(user_id="u", name="", email="")], grants(200, 201))
    assert told_of(engine, "second", "dangling")[0] == 1
    assert told_of(engine, "second", "ownedElsewhere")[0] == 1
    push(engine, "first", [], grants(0, 150))
    assert told_of(engine, "first", "dangling") == (0, [])
    assert told_of(engine, "second", "dangling")[0] == 1
    engine.dispose()


def test_fills_that_several_objects_add_to_nobody_are_one_problem(database_url: str) -> None:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    base: list[tuple[Record, str]] = [
        (Organization(organization_id="o", organization_name=""), ""),
        (Fill(user_id="u", name="Ada"), "users\x1f2"),
        (Fill(user_id="u", email="ada@acme.example"), "users\x1f1"),
        (Grant(organization_id="o", document_id="d", user_id="u"), ""),
    ]
    run_refresh(engine, {"first": Read("complete", base), "second": Read("complete", [])})
    number, first = told_of(engine, "first", "dangling")
    assert (number, len(first)) == (2, 2)
    assert "first:3: fill userId='u' refers to the user 'u' (userId), which is nowhere in the directory" in first
    push(engine, "second", [Document(organization_id="o", document_id="d", document_name="")])
    assert told_of(engine, "first", "dangling")[0] == 2
    push(engine, "second", [User(user_id="u", name="", email="")])
    assert told_of(engine, "first", "dangling") == (0, [])
    engine.dispose()


def test_groups_in_each_other_are_told_as_pushes_join_and_part_them(database_url: str) -> None:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    names = ("a", "b", "c", "d", "e", "f")
    base: list[Record] = [
        Organization(organization_id="o", organization_name=""),
        *(Group(organization_id="o", organization_user_group_id=one, group_name="") for one in names),
        *(into("o", *pair) for pair in ("ab", "ba", "cd", "dc", "ef")),
        *grants(0, 1),  # it goes on being left out
    ]
    run_refresh(engine, {"first": Read("complete", [(one, "") for one in base]), "second": Read("complete", [])})
    assert told_of(engine, "first", "groupCycle")[0] == 2
    push(engine, "second", [into("o", "f", "e")])
    assert sum(told_of(engine, one, "groupCycle")[0] for one in ("first", "second")) == 3
    push(engine, "first", [], [into("o", "b", "a")])
    found = [text for one in ("first", "second") for text in told_of(engine, one, "groupCycle")[1]]
    assert len(found) == 2
    assert not any("'a', 'b'" in text for text in found)
    assert sum(told_of(engine, one, "groupCycle")[0] for one in ("first", "second", "")) == 2
    engine.dispose()


def into(organization_id: str, group: str, member: str) -> Record:
    return GroupMember(organization_id=organization_id, organization_user_group_id=group, member_group_id=member)


def test_what_is_given_again_is_told_until_a_read_of_changes_mends_it(database_url: str) -> None:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    organization = Organization(organization_id="o", organization_name="")
    document = Document(organization_id="o", document_id="d", document_name="")
    other = Document(organization_id="o", document_id="e", document_name="")
    base: list[tuple[Record, str]] = [
        (organization, ""),
        *((document, f"docs\x1f{n}") for n in range(3)),
        (grants(0, 1)[0], ""),
    ]
    base += [(other, "docs\x1f1"), (other, "docs\x1f2")]
    run_refresh(engine, {"first": Read("complete", base), "second": Read("complete", [])})
    number, first = told_of(engine, "first", "duplicate")
    assert (number, len(first)) == (3, 3)
    assert all("stands at" in text for text in first)
    tell(engine, Told(0, [(document, "docs\x1f1")], ["docs\x1f2"]))
    number, first = told_of(engine, "first", "duplicate")
    assert (number, len(first)) == (1, 1)
    assert "documentId='d'" in first[0]
    tell(engine, Told(0, [], ["docs\x1f1"]))
    assert told_of(engine, "first", "duplicate") == (0, [])
    assert told_of(engine, "first", "dangling")[0] == 1
    engine.dispose()


def test_a_push_that_leaves_problems_as_they_are_writes_none(database_url: str) -> None:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    base: list[Record] = [
        Organization(organization_id="o", organization_name=""),
        User(user_id="u", name="", email=""),
        *grants(0, 3),
    ]
    run_refresh(engine, {"first": Read("complete", [(one, "") for one in base]), "second": Read("complete", [])})
    asked: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def note(*arguments: Any) -> None:
        if "directory_problem" in arguments[2]:
            asked.append(arguments[2])

    document = Document(organization_id="o", document_id="elsewhere", document_name="")
    push(engine, "second", [document])
    assert asked == []
    assert told_of(engine, "first", "dangling")[0] == 3
    engine.dispose()
