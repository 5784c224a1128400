"""The rows that callers over HTTP bring about: some an hour of each sort."""

from app.refusals import AN_HOUR, MORE, Rations
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
