"""Schedules: weekdays of cron, common intervals, and due times."""

from datetime import UTC, datetime

import pytest

from app.sync.runs.schedule import ScheduleError, latest_due_time, trigger_of

FRIDAY = datetime(2026, 11, 20, 23, 7, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("schedule", "due"),
    [
        ("*/15 * * * *", "2026-11-20 23:15"),
        ("17 3 * * *", "2026-11-21 03:17"),
        ("0 0 * * 0", "2026-11-22 00:00"),  # cron's Sunday
        ("0 0 * * 7", "2026-11-22 00:00"),
        ("0 0 * * 1", "2026-11-23 00:00"),
        ("0 0 * * 1-5", "2026-11-23 00:00"),
        ("0 0 * * sun,sat", "2026-11-21 00:00"),
        ("0 0 * * 6-1", "2026-11-21 00:00"),
        ("0 0 * * 1,thu", "2026-11-23 00:00"),  # Monday
        ("0 0 * * sun-thu", "2026-11-22 00:00"),
        ("0 0 * * 1-thu", "2026-11-23 00:00"),
        ("0 0 1 * 1", "2027-02-01 00:00"),  # day and weekday
        ("0 0 * * */3", "2026-11-21 00:00"),  # Sunday, Wednesday, Saturday
        ("every 15m", "2026-11-20 23:15"),
        ("every 2h", "2026-11-21 00:00"),
    ],
)
def test_trigger_is_due_by_cron(schedule: str, due: str) -> None:
    found = trigger_of(schedule, "UTC").get_next_fire_time(None, FRIDAY)
    assert f"{found:%Y-%m-%d %H:%M}" == due


def test_trigger_reads_cron_in_its_time_zone() -> None:
    found = trigger_of("0 1 * * *", "Europe/Berlin").get_next_fire_time(None, FRIDAY)
    assert found is not None
    assert found.astimezone(UTC) == datetime(2026, 11, 21, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    "schedule", ["", "soon", "* * * *", "61 * * * *", "* * * * 8", "* * * * monday-", "* * * * 1#2", "every 0m"]
)
def test_trigger_refuses_what_is_no_schedule(schedule: str) -> None:
    with pytest.raises(ScheduleError):
        trigger_of(schedule, "UTC")


@pytest.mark.parametrize("schedule", ["every 0s", "every 15 minutes", "every"])
def test_trigger_names_the_fault_of_an_interval(schedule: str) -> None:
    with pytest.raises(ScheduleError, match="is not an interval: a number from 1 to 999999, and s, m, h or d; write "):
        trigger_of(schedule, "UTC")


def test_trigger_refuses_unknown_time_zones() -> None:
    with pytest.raises(ScheduleError, match="Europe/Berlin"):
        trigger_of("* * * * *", "Mars/Base")


@pytest.mark.parametrize(
    ("schedule", "latest"),
    [
        ("*/15 * * * *", "2026-11-20 23:00:00"),
        ("17 3 * * *", "2026-11-20 03:17:00"),
        ("0 0 * * 0", "2026-11-15 00:00:00"),
        ("0 0 1 1 *", "2026-01-01 00:00:00"),
        ("0 0 29 2 *", "2024-02-29 00:00:00"),
        ("every 15m", "2026-11-20 23:00:00"),
        ("every 10s", "2026-11-20 23:07:30"),
    ],
)
def test_latest_moment_is_the_last_one_that_was_due(schedule: str, latest: str) -> None:
    assert f"{latest_due_time(trigger_of(schedule, 'UTC'), FRIDAY):%Y-%m-%d %H:%M:%S}" == latest
