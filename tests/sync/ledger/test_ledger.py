"""Ledgers and their revisions."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, insert, select

from app.foundation.database.engine import open_engine, reading, writing
from app.foundation.database.tables import METADATA
from app.sync.ledger.ledger import increment_revision, items_by_kind, mark_verified, open_ledger, read_ledger
from app.sync.ledger.tables import LedgerItemRow, LedgerRow
from tests.tables import make_tables

NOW = datetime(2026, 3, 2, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield engine
    engine.dispose()


def ledger_of(engine, base_url="http://backend.example", api_key="key"):
    return open_ledger(engine, base_url, api_key, lambda: NOW)


def put_item(engine, ledger_id, **columns):
    row = {"kind": "document", "organization_id": "acme", "container_id": "", "item_id": "d", "digest": "x"} | columns
    with writing(engine) as connection:
        connection.execute(insert(LedgerItemRow.__table__).values(ledger_id=ledger_id, **row))


def test_ledger_is_the_same_for_the_same_backend(engine):
    first = ledger_of(engine)

    assert ledger_of(engine, "http://backend.example/") == first
    assert ledger_of(engine, api_key="another").ledger_id != first.ledger_id
    assert ledger_of(engine, "http://elsewhere.example").ledger_id != first.ledger_id


def test_ledger_does_not_keep_the_key(engine):
    ledger_of(engine, api_key="very secret")

    with reading(engine) as connection:
        row = connection.execute(select(LedgerRow.__table__)).one()
    assert not [value for value in row if "secret" in str(value)]


def test_revision_is_incremented(engine):
    ledger = ledger_of(engine)
    assert ledger.ledger_revision == 0

    with writing(engine) as connection:
        increment_revision(connection, ledger.ledger_id)
        increment_revision(connection, ledger.ledger_id)
    assert ledger_of(engine).ledger_revision == 2


def test_ledger_needs_a_verify_until_one_ended(engine):
    ledger = ledger_of(engine)
    assert ledger.needs_verify

    with writing(engine) as connection:
        mark_verified(connection, ledger.ledger_id, NOW)
    again = ledger_of(engine)
    assert not again.needs_verify
    assert NOW - again.verified_at < timedelta(milliseconds=1)


def test_ledger_that_is_not_there_is_an_error(engine):
    with reading(engine) as connection, pytest.raises(LookupError, match="no ledger 7"):
        read_ledger(connection, 7)


def test_ledger_counts_what_it_holds(engine):
    mine, other = ledger_of(engine), ledger_of(engine, api_key="another")
    put_item(engine, mine.ledger_id, item_id="d1")
    put_item(engine, mine.ledger_id, item_id="d2")
    put_item(engine, mine.ledger_id, kind="group", item_id="g")
    put_item(engine, other.ledger_id)

    with reading(engine) as connection:
        assert items_by_kind(connection, mine.ledger_id) == {"document": 2, "group": 1}
