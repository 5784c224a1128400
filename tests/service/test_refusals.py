"""Audit rows for refused HTTP requests: their number is limited by caller and in total."""

from app.commands.schema import METADATA
from app.foundation.audit import Actor, Audit, audit_page
from app.foundation.database.engine import open_engine, reading
from app.service.refusals import AN_HOUR, MORE, OF_ALL_ADDRESSES, Rations, Refusals
from tests.tables import make_tables
from tests.worlds.clock import SimulatedTime


def test_of_one_sort_some_are_written_down_each_hour() -> None:
    time = SimulatedTime()
    rations = Rations(time.monotonic)
    assert [rations.end_of("one") for _ in range(AN_HOUR + 2)] == [*[""] * (AN_HOUR - 1), MORE, None, None]
    assert rations.end_of("another") == ""
    time.move_on(minutes=59)
    assert rations.end_of("one") is None
    time.move_on(minutes=2)
    assert rations.end_of("one") == ""


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
        refusals.wrong_token(Actor(name="", way="api", address=f"2001:db8:{number:x}::1"), "/resync")
    assert len(rows()) == OF_ALL_ADDRESSES
    assert rows()[0].endswith(MORE)
    refusals.note(Actor(name="ann", way="console", address="192.0.2.1"), "/console/doctor", "no", sort="ann")
    assert len(rows()) == OF_ALL_ADDRESSES + 1
    time.move_on(minutes=61)
    refusals.wrong_token(Actor(name="", way="api", address="192.0.2.1"), "/resync")
    assert len(rows()) == OF_ALL_ADDRESSES + 2
    engine.dispose()


def test_a_row_about_an_unknown_caller_has_no_text_of_theirs(database_url: str) -> None:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    refusals = Refusals(Audit(SimulatedTime()), engine)
    refusals.wrong_token(Actor(name="", way="api", address="192.0.2.1", request_id="call-555-now"), "/resync")
    with reading(engine) as connection:
        (row,) = audit_page(connection)
    assert (row.request_id, row.address) == ("", "192.0.2.1")
    engine.dispose()
