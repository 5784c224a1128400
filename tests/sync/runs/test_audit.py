"""Audit rows of reads of the directory, and crashes."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count

import pytest
from sqlalchemy import Engine, select

from app.access.refresh.sources import STATE
from app.access.revisions import current_revision
from app.access.source_states import source_states
from app.commands.schema import METADATA
from app.foundation.audit import DONE, Actor, Audit, audit_page
from app.foundation.audit_tables import AuditRow
from app.foundation.database.engine import open_engine, reading
from app.sync.runs.audit import audited_forgetting, audited_refresh
from app.sync.runs.directory_reads import forget, read_directory
from tests.dying import Died, dying_at
from tests.sync.runs.test_directory_reads import GivenSource, organization, user
from tests.tables import make_tables

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
AUDIT = Audit(lambda: NOW)
MIRA = Actor(name="mira (command line)", role="admin", way="command")


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield engine
    engine.dispose()


def rows(engine: Engine) -> list[AuditRow]:
    """The oldest first."""
    with reading(engine) as connection:
        return audit_page(connection)[::-1]


def state(engine: Engine) -> object:
    """What a read changes that decisions, or later reads, go by."""
    with reading(engine) as connection:
        changes = connection.execute(select(STATE.c.changes)).scalar()
        held = {one.name: one.records for one in source_states(connection) if one.records}
        return changes, current_revision(connection), held


def die_at_every_commit(engine: Engine, prepare: Callable[[int], Callable[[], object]]) -> list[AuditRow]:
    """Tries something, dying at its first commit, at its second, and so on, until it gets through; and sees each time
    that there is a row where something has changed, and none otherwise. The rows of the time when it got through."""
    for number in count(1):
        act = prepare(number)
        before, known = state(engine), len(rows(engine))
        try:
            with dying_at(engine, number):
                act()
        except Died:
            assert bool(rows(engine)[known:]) == (state(engine) != before), number
            continue
        assert number > 2
        return rows(engine)[known:]
    raise AssertionError


def test_no_death_hides_a_read_of_the_directory(engine: Engine) -> None:
    def source(number: int) -> GivenSource:
        return GivenSource("people", organization(), *(user(f"u{one}") for one in range(number)))

    read_directory(engine, [source(1)], clock=lambda: NOW)
    assert rows(engine) == []
    audit_hook = audited_refresh(AUDIT, MIRA, "--accept-shrink people", "the move")

    def prepare(number: int) -> Callable[[], object]:
        return lambda: read_directory(engine, [source(number + 1)], clock=lambda: NOW, change_hook=audit_hook)

    found = die_at_every_commit(engine, prepare)
    assert [one.outcome for one in found] == [DONE]
    with reading(engine) as connection:
        assert found[-1].subject == f"revision {current_revision(connection)} --accept-shrink people"
    assert {(one.actor, one.action, one.reason) for one in found} == {(MIRA.name, "directory refreshed", "the move")}
    # What changes nothing is an act all the same.
    known = len(rows(engine))
    read_directory(engine, [source(100)], clock=lambda: NOW)
    assert len(rows(engine)) == known
    read_directory(engine, [source(100)], clock=lambda: NOW, change_hook=audit_hook)
    assert [one.outcome for one in rows(engine)[known:]] == [DONE]


def test_no_death_hides_a_source_that_is_forgotten(engine: Engine) -> None:
    people = GivenSource("people", organization())

    def prepare(_number: int) -> Callable[[], object]:
        read_directory(engine, [people, GivenSource("old", user("ann"), user("bob"))], clock=lambda: NOW)
        read_directory(engine, [people], clock=lambda: NOW)
        return lambda: forget(
            engine, "old", [people], clock=lambda: NOW, audit_hook=audited_forgetting(AUDIT, MIRA, "old", "it moved")
        )

    found = die_at_every_commit(engine, prepare)
    assert [one.outcome for one in found] == [DONE]
    assert {(one.action, one.subject, one.reason) for one in found} == {
        ("source forgotten", "old: 2 users", "it moved")
    }
