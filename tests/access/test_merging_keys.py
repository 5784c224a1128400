"""Merging the changed keys has the same result as merging all keys: a second database merges all keys each time."""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, event, insert, literal, select, text, update

from app.access.change_counts import SourceCounts
from app.access.problem_list import ProblemList
from app.access.records import (
    Document,
    Fill,
    Folder,
    Grant,
    Key,
    Membership,
    Organization,
    Record,
    User,
)
from app.access.refresh.reads import CHANGES, PARTIAL, ReadResult, StagedRead
from app.access.refresh.refresh import Refresh, RefreshResult
from app.access.refresh.source_changes import compute_source_changes, total
from app.access.refresh.sources import SOURCE
from app.access.refresh.tables import MODEL_TABLES, REFRESH_TABLES, RowChange
from app.access.revisions import ModelChange
from app.commands.schema import METADATA
from app.foundation.database.engine import is_sqlite, open_engine, reading, writing
from tests.access.test_merging import BASE, SOURCES, Read, emptied, model_of, reads, records, run_refresh
from tests.tables import make_tables

NOW = datetime(2026, 11, 1, tzinfo=UTC)


KEPT = {tables.kind: tables for tables in REFRESH_TABLES}


def push(engine: Engine, source: str, upserted: Sequence[Record], removed: Sequence[Record] = ()) -> ModelChange:
    """Adds, replaces and removes records of a source, as one change."""
    with reading(engine) as connection:
        source_id = connection.execute(select(SOURCE.c.source_id).where(SOURCE.c.name == source)).scalar_one()

    def compare(connection: Connection) -> None:
        read = StagedRead(source_id=source_id, name=source, records=len(upserted), verdict=PARTIAL)
        compute_source_changes(connection, [read])
        for record in removed:
            tables = KEPT[record.kind]
            source_table = tables.source
            same = (source_table.c[name] == (getattr(record, name) or "") for name in tables.pushed_keys)
            gone = select(*(source_table.c[name] for name in tables.source_keys), literal(int(RowChange.REMOVE)))
            connection.execute(
                insert(tables.source_delta).from_select(
                    [*tables.source_keys, "change"], gone.where(source_table.c.source_id == source_id, *same)
                )
            )

    def keep(connection: Connection, counts: SourceCounts) -> None:
        changed = total(counts)
        records = SOURCE.c.records + changed.added - changed.removed
        connection.execute(update(SOURCE).where(SOURCE.c.source_id == source_id).values(records=records))

    with Refresh(engine, clock=lambda: NOW, problems=ProblemList()) as refresh:
        refresh.staging.open_source(source_id)
        for line, record in enumerate(upserted):
            refresh.staging.add(record, f"push[{line}]")
        refresh.staging.flush()
        with refresh.changing() as connection:
            compare(connection)
            counts = refresh.write_records(connection)
            keep(connection, counts)
            return refresh.merge(connection, counts)


@dataclass(frozen=True)
class Change:
    """One push to an existing source, chosen by number."""

    source: int
    upserted: dict[Key, Record]
    removed: dict[Key, Record]


def _change(source: int, upserted: list[Record], removed: list[Record]) -> Change:
    given = {record.key: record for record in upserted}
    return Change(source, given, {record.key: record for record in removed if record.key not in given})


@dataclass(frozen=True)
class ObjectChanges:
    """Changed objects of a source: all their records, or none if they are gone."""

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
object_changes = st.builds(
    ObjectChanges, st.integers(0, 2), st.lists(st.tuples(records, objects), max_size=6), st.lists(objects, max_size=2)
)
first_reads = st.fixed_dictionaries(dict.fromkeys(SOURCES, reads))
steps = st.lists(changes | object_changes | first_reads, min_size=1, max_size=6)


def merge_everything(engine: Engine) -> None:
    """Lets the next refresh merge all keys."""
    with writing(engine) as connection:
        connection.execute(text("UPDATE directory_state SET merge_all = true"))


def state_of(engine: Engine) -> dict[str, list[tuple[object, ...]]]:
    """The tables after a merge, without times."""
    queries = {
        **{tables.model.name: f"SELECT * FROM {tables.model.name}" for tables in MODEL_TABLES},
        **{tables.source.name: f"SELECT * FROM {tables.source.name}" for tables in REFRESH_TABLES},
        "model_user_alias": "SELECT * FROM model_user_alias",
        "fill_binding": "SELECT * FROM fill_binding",
        "former_payload": "SELECT * FROM former_payload",
        "access_name": "SELECT * FROM access_name",
        "access_count": "SELECT * FROM access_count WHERE records <> 0",
        "directory_source": "SELECT source_id, name, position, records FROM directory_source",
        "directory_state": "SELECT merge_all FROM directory_state",
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


def read_changes(engine: Engine, changes: ObjectChanges) -> RefreshResult:
    """A read of changes."""
    with Refresh(engine, clock=lambda: NOW, problems=ProblemList()) as refresh:
        refresh.begin(SOURCES, only=[SOURCES[changes.source]])
        for line, (record, origin) in enumerate(changes.records):
            if origin not in changes.gone:
                refresh.staging.add(record, f"changes[{line}]", origin=origin, rule=f"{line % 2}")
        for origin in changes.gone:
            refresh.staging.add_gone(origin)
        how = ReadResult(answered=CHANGES, cursor="next")
        refresh.staging.end(replace(how, records=len(changes.records), verdict="complete"))
        return refresh.finish()


@pytest.fixture
def engines(database_url: str, tmp_path: Path) -> Iterator[tuple[Engine, Engine]]:
    """An engine that merges by key, and one that merges everything."""
    made = open_engine(database_url), open_engine(f"sqlite:///{tmp_path / 'everything.db'}")
    for engine in made:
        make_tables(engine, METADATA)
    yield made
    for engine in made:
        engine.dispose()


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.timeout(300)
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(first_reads, steps)
def test_merging_by_key_has_the_result_of_merging_everything(
    engines: tuple[Engine, Engine], first: dict[str, Read], then: list[Change | ObjectChanges | dict[str, Read]]
) -> None:
    keyed, everything = engines
    for engine in engines:
        emptied(engine)
    for step in [first, *then]:
        merge_everything(everything)
        if isinstance(step, dict):
            assert run_refresh(keyed, step)[1:] == run_refresh(everything, step)[1:]
        elif isinstance(step, ObjectChanges):
            assert read_changes(keyed, step).change == read_changes(everything, step).change
        else:
            pushed = SOURCES[step.source], [*step.upserted.values()], [*step.removed.values()]
            assert push(keyed, *pushed) == push(everything, *pushed)
        assert state_of(keyed) == state_of(everything)


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
    ("first", [User(user_id="u2", name="", email="", aliases=("a",))], []),  # two holders
    ("first", [User(user_id="u1", name="", email="")], []),  # one holder
    ("second", [Grant(organization_id="o", document_id="d", user_id="u2")], []),  # the first source owns it
    ("first", [], [User(user_id="u2", name="", email="")]),  # no holder
    ("second", [User(user_id="u3", name="", email="", aliases=("a",))], []),  # a new user, whom two fills name
    ("first", [], [Fill(user_alias="a")]),
]


def test_records_that_name_an_alias_follow_its_holder(engines: tuple[Engine, Engine]) -> None:
    keyed, everything = engines
    for engine in engines:
        run_refresh(engine, {"first": Read("complete", [(one, "") for one in HELD]), "second": Read("partial", [])})
    for source, upserted, removed in IN_TURN:
        push(keyed, source, upserted, removed)
        merge_everything(everything)
        push(everything, source, upserted, removed)
        assert state_of(keyed) == state_of(everything)
    people = {one.key[1]: one for one in model_of(keyed).values() if isinstance(one, User)}
    assert (people["u3"].name, people["u3"].disabled) == ("", True)


MERGES = re.compile("refresh_(?:changed|merged|delta|alias|user_alias|binding|filled)")
READS_ALL = re.compile(r"SCAN (?:source|model)_|Seq Scan on (?:source|model)_")


def test_change_reads_no_whole_table(database_url: str) -> None:
    """A folder, a document and grants are added in a large organization."""
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
    assert push(engine, "first", pushed).changes["grant"].added == 1
    # An alias changes hands.
    pushed = [User(user_id="u2", name="", email=""), User(user_id="u3", name="", email="", aliases=("a2", "a3"))]
    changes = push(engine, "first", pushed).changes
    assert (changes["grant"].added, changes["grant"].removed, changes["user"].updated) == (300, 300, 1)
    assert len(plans) > 60
    assert [(statement, plan) for statement, plan in plans if READS_ALL.search(plan)] == []
    engine.dispose()
