"""Parses schedules, such as a cron line or "every 15m", and computes their due times.

All workers compute the same due times, so that a due time identifies its run. Therefore intervals start at the epoch,
not at the start of a process. Unlike in cron, day and weekday must both match if both are restricted.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from app.foundation.clock import EPOCH

_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LOOK_BACK = (
    timedelta(minutes=2),
    timedelta(hours=1),
    *(timedelta(days=days) for days in (1, 8, 32, 366, 8 * 366)),
)
"""The spans in which the latest due time is searched. The last one covers 29 February across a century that is not a
leap year."""

_FIX = 'write five cron fields, such as "*/15 * * * *", or an interval, such as "every 15m"'

_INTERVAL = re.compile(r"every\s+(?P<count>[1-9][0-9]{0,5})\s*(?P<unit>[smhd])")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class ScheduleError(ValueError):
    """The text is not a schedule. The message is for the operator."""


def interval_seconds(schedule: str) -> int | None:
    """The seconds between two runs of a schedule like ``every 15m``. None for a cron schedule."""
    match = _INTERVAL.fullmatch(schedule.strip())
    return int(match["count"]) * _UNIT_SECONDS[match["unit"]] if match else None


def trigger_of(schedule: str, timezone: str) -> BaseTrigger:
    """APScheduler's trigger for a schedule. Raises ``ScheduleError``."""
    zone = zone_of(timezone)
    seconds = interval_seconds(schedule)
    if seconds is not None:
        return IntervalTrigger(seconds=seconds, start_date=EPOCH, timezone=zone)
    fields = schedule.split()
    if fields[:1] == ["every"]:
        raise ScheduleError(f"is not an interval: a number from 1 to 999999, and s, m, h or d; {_FIX}")
    if len(fields) != 5:
        raise ScheduleError(f"has {len(fields)} fields; {_FIX}")
    minute, hour, day, month, weekday = fields
    try:
        return CronTrigger(
            minute=minute, hour=hour, day=day, month=month, day_of_week=_weekdays(weekday), timezone=zone
        )
    except (ValueError, TypeError) as error:
        raise ScheduleError(f"{str(error).rstrip('.').lower()}; {_FIX}") from error


def latest_due_time(trigger: BaseTrigger, now: datetime) -> datetime:
    """The latest due time that is not after ``now``."""
    if isinstance(trigger, IntervalTrigger):
        interval: timedelta = trigger.interval
        return now - (now - EPOCH) % interval
    # Increasing steps are cheap for frequent schedules and correct for rare ones.
    for back in _LOOK_BACK:
        latest: datetime | None = None
        moment: datetime | None = trigger.get_next_fire_time(None, now - back)
        while moment is not None and moment <= now:
            latest = moment
            moment = trigger.get_next_fire_time(moment, moment + timedelta(seconds=1))
        if latest is not None:
            return latest.astimezone(UTC)
    return now.replace(second=0, microsecond=0)


def first_due_after(moment: datetime, schedules: Sequence[str], timezone: str) -> datetime | None:
    """The first due time of the schedules after ``moment``. None if none is ever due. Raises ``ScheduleError``."""
    after = moment + timedelta(seconds=1)
    dates = [trigger_of(schedule, timezone).get_next_fire_time(None, after) for schedule in schedules]
    return min((date for date in dates if date is not None), default=None)


def zone_of(name: str) -> tzinfo:
    """The time zone with this name. Raises ``ScheduleError``."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ScheduleError(f"{name!r} is not a time zone; write one like UTC or Europe/Berlin") from error


def _weekdays(field: str) -> str:
    """Converts weekdays to names: cron counts from Sunday (0 or 7), APScheduler from Monday."""
    if field == "*":
        return field
    days: set[str] = set()
    for part in field.lower().split(","):
        match = re.fullmatch(r"(\*|[0-7a-z]+)(?:-([0-7a-z]+))?(?:/([1-7]))?", part)
        if match is None:
            raise ScheduleError(f"{field!r} is not a day of the week; {_FIX}")
        first = 0 if match[1] == "*" else _weekday(match[1])
        last = _weekday(match[2]) if match[2] else 6 if match[1] == "*" or match[3] else first
        if last < first:
            last += 7
        days |= {_DAYS[day % 7] for day in range(first, last + 1, int(match[3] or 1))}
    return ",".join(sorted(days, key=_DAYS.index))


def _weekday(text: str) -> int:
    if text in _DAYS:
        return _DAYS.index(text)
    if text.isdigit() and len(text) == 1 and int(text) <= 7:
        return int(text)
    raise ScheduleError(f"{text!r} is not a day of the week; {_FIX}")
