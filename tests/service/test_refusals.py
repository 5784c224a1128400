"""Audit rows for refused HTTP requests: their number is limited by caller and in total."""

from app.commands.schema import METADATA
from app.foundation.audit import Actor, Audit, audit_page
from app.foundation.database.engine import open_engine, reading
from app.service.refusals import ANONYMOUS_ROWS_PER_HOUR, LAST_ROW_SUFFIX, ROWS_PER_HOUR, Refusals, RowLimit
from tests.tables import make_tables
from tests.worlds.clock import SimulatedTime


def test_rows_with_one_key_are_limited_per_hour() -> None:
    time = SimulatedTime()
    limit = RowLimit(time.monotonic)
    assert [limit.suffix("one") for _ in range(ROWS_PER_HOUR + 2)] == [
        *[""] * (ROWS_PER_HOUR - 1),
        LAST_ROW_SUFFIX,
        None,
        None,
    ]
    assert limit.suffix("another") == ""
    time.move_on(minutes=59)
    assert limit.suffix("one") is None
    time.move_on(minutes=2)
    assert limit.suffix("one") == ""


def test_wrong_tokens_of_all_addresses_share_one_limit(database_url: str) -> None:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    time = SimulatedTime()
    refusals = Refusals(Audit(time), engine, now=time.monotonic)

    def rows() -> list[str]:
        with reading(engine) as connection:
            return [row.outcome for row in audit_page(connection, limit=1000)]

    # More addresses than a limiter remembers: forgotten ones do not reset the limit of all.
    for number in range(10_100):
        refusals.record_wrong_token(Actor(name="", way="api", address=f"2001:db8:{number:x}::1"), "/resync")
    assert len(rows()) == ANONYMOUS_ROWS_PER_HOUR
    assert rows()[0].endswith(LAST_ROW_SUFFIX)
    refusals.record(Actor(name="ann", way="console", address="192.0.2.1"), "/console/doctor", "no", key="ann")
    assert len(rows()) == ANONYMOUS_ROWS_PER_HOUR + 1
    time.move_on(minutes=61)
    refusals.record_wrong_token(Actor(name="", way="api", address="192.0.2.1"), "/resync")
    assert len(rows()) == ANONYMOUS_ROWS_PER_HOUR + 2
    engine.dispose()


def test_a_row_about_an_unknown_caller_has_no_text_of_theirs(database_url: str) -> None:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    refusals = Refusals(Audit(SimulatedTime()), engine)
    refusals.record_wrong_token(Actor(name="", way="api", address="192.0.2.1", request_id="call-555-now"), "/resync")
    with reading(engine) as connection:
        (row,) = audit_page(connection)
    assert (row.request_id, row.address) == ("", "192.0.2.1")
    engine.dispose()
