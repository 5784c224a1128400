"""Concurrent refreshes, and their temporary tables."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

import app.access.refresh.session
from app.access.change_counts import ChangeCounts
from app.access.export import export_records
from app.access.problem_list import ProblemList
from app.access.records import Fill, Membership, User
from app.access.refresh.reads import ReadResult
from app.access.refresh.refresh import Refresh
from app.access.refresh.tables import TEMPORARY_TABLES
from app.access.revisions import current_revision
from app.access.source_states import source_states
from app.access.source_tables import origin_text
from app.commands.schema import METADATA
from app.foundation.database.engine import is_sqlite, open_engine, reading
from tests.hearing import heard
from tests.tables import make_tables

NOW = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield engine
    engine.dispose()


def refresh(engine: Engine, *user_ids: str) -> int:
    """Reads one source with these users. Returns the revision."""
    with Refresh(engine, clock=lambda: NOW, problems=ProblemList()) as refreshing:
        refreshing.begin(["people"])
        for line, user_id in enumerate(user_ids, 1):
            refreshing.staging.add(User(user_id=user_id, name=user_id, email=""), f"people:{line}")
        refreshing.staging.end(ReadResult(records=len(user_ids)))
        return refreshing.finish().change.revision


def users(engine: Engine) -> set[str]:
    with reading(engine) as connection:
        return {record.user_id for record in export_records(connection) if isinstance(record, User)}


def test_of_two_reads_the_one_that_began_last_wins(engine: Engine) -> None:
    refresh(engine, "ada")
    with Refresh(engine, clock=lambda: NOW, problems=ProblemList()) as earlier:
        earlier.begin(["people"])
        earlier.staging.add(User(user_id="bob", name="bob", email=""), "people:1")
        earlier.staging.end(ReadResult(records=1))
        assert refresh(engine, "ada", "cleo") == 2
        finished = earlier.finish()
    (read,) = finished.reads
    assert (read.verdict, read.overtaken) == ("failed", True)
    assert finished.change.revision == 2
    assert users(engine) == {"ada", "cleo"}


def test_readers_keep_their_revision_while_the_model_is_replaced(engine: Engine) -> None:
    refresh(engine, "ada")
    with reading(engine) as connection:
        assert current_revision(connection) == 1
        refresh(engine, "bob")
        assert current_revision(connection) == 1
        assert connection.execute(text("SELECT user_id FROM model_user")).scalars().all() == ["ada"]
    assert users(engine) == {"bob"}


def test_missing_rows_are_searched_only_if_there_are_any(engine: Engine) -> None:
    refresh(engine, "ada", "bob", "cid")
    looked: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def _note(_: Any, __: Any, statement: str, *___: Any) -> None:
        if "NOT EXISTS (SELECT 1 FROM refresh_staged_" in statement:
            looked.append(statement.split()[2])

    for user_ids, expected in (
        (["cid", "bob", "ada"], []),
        (["ada", "bob", "cid", "dan"], []),
        (["ada", "eve", "bob", "cid", "eve"], ["refresh_source_delta_user"]),
        (["ada", "bob", "cid"], ["refresh_source_delta_user"]),
    ):
        looked.clear()
        refresh(engine, *user_ids)
        assert users(engine) == {*user_ids}
        assert looked == expected


def test_small_refresh_leaves_its_tables_empty_for_the_next_one(engine: Engine) -> None:
    refresh(engine, "ada", "bob")
    statements = heard(engine)
    refresh(engine, "bob", "cid")
    assert users(engine) == {"bob", "cid"}
    assert [statement for statement in statements if "CREATE TEMP" in statement] == []
    with engine.connect() as connection:
        for table in TEMPORARY_TABLES:
            assert connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one() == 0, table


@pytest.mark.parametrize("few", [0, 1, 2, 3, 4, 5, 100])
def test_refreshes_of_any_size_share_a_connection(engine: Engine, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(app.access.refresh.session, "_FEW_ROWS", few)
    for user_ids in (["ada"], ["ada", "bob", "bob"], ["bob"], ["cid", "dan", "eve", "dan"], ["cid"], ["cid", "ada"]):
        refresh(engine, *user_ids)
        assert users(engine) == {*user_ids}


def test_large_refresh_leaves_no_temporary_tables_in_the_pool(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.access.refresh.session, "_FEW_ROWS", 1)
    refresh(engine, "ada", "bob")
    refresh(engine, "bob", "cid")
    statement = (
        "SELECT count(*) FROM sqlite_temp_master"
        if is_sqlite(engine)
        else "SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()"
    )
    with engine.connect() as first, engine.connect() as second:
        assert first.execute(text(statement)).scalar_one() == 0
        if not is_sqlite(engine):  # where a second transaction would wait for the first
            assert second.execute(text(statement)).scalar_one() == 0


def test_read_of_some_sources_does_not_change_the_others(engine: Engine) -> None:
    def read(only: set[str] | None, **found: list[str]) -> tuple[str, ...]:
        with Refresh(engine, clock=lambda: NOW, problems=ProblemList()) as refreshing:
            names = ["first", "second", "third"]
            refreshing.begin(names, only=only)
            for source, user_ids in found.items():
                position = names.index(source)
                for user_id in user_ids:
                    refreshing.staging.add(User(user_id=user_id, name=source, email=""), source, position=position)
                refreshing.staging.end(ReadResult(records=len(user_ids)), position=position)
            return refreshing.finish().retained

    assert read(None, first=["ann"], second=["ann", "bob"], third=["cid"]) == ()
    with reading(engine) as connection:
        before = {state.name: state for state in source_states(connection)}
    # New sources get their positions, and sources that are not read are not retained.
    assert read({"second"}, second=["dan"]) == ()
    assert users(engine) == {"ann", "cid", "dan"}
    with reading(engine) as connection:
        after = {state.name: state for state in source_states(connection)}
    assert {name for name in before if after[name] != before[name]} == {"second"}
    # A read without changes keeps the counts of the last one with changes.
    assert after["second"].changes == {"user": ChangeCounts(added=1, removed=2)}
    assert read({"second"}, second=["dan"]) == ()
    with reading(engine) as connection:
        (second,) = (state for state in source_states(connection) if state.name == "second")
    assert second.changes == after["second"].changes
    assert all(state.is_configured for state in after.values())


def test_aliases_of_a_fill_are_not_added_to_the_user(engine: Engine) -> None:
    """Old versions stored them."""
    with Refresh(engine, clock=lambda: NOW, problems=ProblemList()) as refreshing:
        refreshing.begin(["people"])
        refreshing.staging.add(User(user_id="ann", name="Ann", email="", aliases=("a@b.example",)), "people:1")
        refreshing.staging.add(Fill(user_id="ann", extra_fields={"aliases": ["x@b.example"], "site": 4}), "people:2")
        refreshing.staging.end(ReadResult(records=2))
        refreshing.finish()
    with reading(engine) as connection:
        [ann] = export_records(connection)
    assert isinstance(ann, User)
    assert (ann.aliases, ann.extra_fields) == (("a@b.example",), {"site": 4})


def test_objects_of_a_user_include_those_that_name_an_alias(engine: Engine) -> None:
    with Refresh(engine, clock=lambda: NOW, problems=ProblemList()) as refreshing:
        refreshing.begin(["people"])
        refreshing.staging.add(
            User(user_id="ann", name="Ann", email="", aliases=("a", "b")), "1", origin=origin_text("users", "1")
        )
        for number, alias in enumerate(("a", "c")):
            origin = origin_text("rows", str(number))
            refreshing.staging.add(Membership(organization_id="o", user_alias=alias), "2", origin=origin)
        refreshing.staging.end(ReadResult(records=3))
        refreshing.finish()
        assert refreshing.staging.find_aliases(["ann"]) == ["a", "b"]
        assert refreshing.staging.find_objects(0, [], ["ann"]) == [("rows", "0"), ("users", "1")]
