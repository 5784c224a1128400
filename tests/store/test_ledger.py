"""The ledger: one per backend, with a revision that moves on."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, insert, select

from app.database.engine import open_engine, reading, writing
from app.store.base import METADATA
from app.store.ledger import (
    FINGERPRINT,
    epoch_ms,
    fingerprint,
    forget_failures,
    from_epoch_ms,
    held_by_kind,
    mark_verified,
    move_on,
    open_ledger,
    read_ledger,
)
from app.store.statements import run
from app.store.sync_tables import ItemFailureRow, LedgerItemRow, LedgerRow
from tests.tables import make_tables

NOW = datetime(2026, 3, 2, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture
def engine(database_url: str) -> Engine:
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


def test_ledger_moves_on_by_one(engine):
    ledger = ledger_of(engine)
    assert ledger.ledger_revision == 0

    with writing(engine) as connection:
        assert move_on(connection, ledger.ledger_id) == 1
        assert move_on(connection, ledger.ledger_id) == 2
    assert ledger_of(engine).ledger_revision == 2


def test_ledger_wants_a_verify_until_one_ended(engine):
    ledger = ledger_of(engine)
    assert ledger.wants_verify

    with writing(engine) as connection:
        mark_verified(connection, ledger.ledger_id, NOW)
    again = ledger_of(engine)
    assert not again.wants_verify
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

    assert held_by_kind(engine, mine.ledger_id) == {"document": 2, "group": 1}


@pytest.mark.parametrize("disabled", [False, True])
def test_fingerprint_is_the_same_in_sql_and_in_memory(engine, disabled):
    columns = {"digest": "abc", "access_type": "public", "access_role": "", "disabled": disabled, "parent_id": "p|1"}
    ledger = ledger_of(engine)
    put_item(engine, ledger.ledger_id, **columns)

    with reading(engine) as connection:
        found = run(connection, f"SELECT {FINGERPRINT.replace('{row}', 'ledger_item')} FROM ledger_item").scalar_one()

    assert found == fingerprint(**columns)


def test_failures_are_forgotten_when_someone_says_retry(engine):
    ledger = ledger_of(engine)
    failures = [("acme", "d1", True), ("acme", "d2", False), ("other", "d1", True)]
    with writing(engine) as connection:
        for organization, item, parked in failures:
            connection.execute(
                insert(ItemFailureRow.__table__).values(
                    ledger_id=ledger.ledger_id,
                    kind="document",
                    organization_id=organization,
                    container_id="",
                    item_id=item,
                    deleting=False,
                    fingerprint="f",
                    failures=1,
                    retry_at=0,
                    parked=parked,
                    message="no",
                )
            )
        assert forget_failures(connection, ledger.ledger_id, organization_id="other") == 1
        assert forget_failures(connection, ledger.ledger_id) == 1
        assert forget_failures(connection, ledger.ledger_id, parked_only=False) == 1


def test_times_survive_the_way_to_the_database_and_back():
    moment = NOW.replace(microsecond=999_000)

    assert from_epoch_ms(epoch_ms(moment)) == moment
    assert epoch_ms(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == 1000
