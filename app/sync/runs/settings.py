"""The settings of synchronization: when it runs by itself, and how much it may delete without being asked."""

from datetime import UTC, datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from app.sync.plan.settings import LimitSettings
from app.sync.runs.schedule import ScheduleError, first_due_after

_ANY_MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
"""Whether a schedule is ever due does not depend on when one asks."""


def _usable_schedule(schedule: str) -> str:
    schedule = schedule.strip()
    if schedule:
        try:
            never = first_due_after(_ANY_MOMENT, [schedule], "UTC") is None
        except ScheduleError as error:
            raise ValueError(f"{schedule!r} {error}") from error
        if never:
            raise ValueError(f"{schedule!r} names a day that no month has; it would never be due")
    return schedule


def _known_timezone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (LookupError, ValueError, OSError) as error:
        raise ValueError(f"{name!r} is not a time zone; write one like UTC or Europe/Berlin") from error
    return name


Schedule = Annotated[str, AfterValidator(_usable_schedule)]
"""Cron (five fields), ``every`` and a number with s, m, h or d, or nothing for never."""


class SyncSettings(BaseModel):
    """The section ``sync``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schedule: Schedule = "*/15 * * * *"
    """When a sync starts by itself: cron, or an interval like ``every 15m``; empty: never."""
    timezone: Annotated[str, AfterValidator(_known_timezone)] = "UTC"
    """The time zone that cron schedules are read in."""
    jitter: int = Field(default=30, ge=0, le=3600)
    """Seconds by which a start is put off at random at most, so that installations do not all call at once."""
    verify_schedule: Schedule = "17 3 * * *"
    """When a sync begins with reading the backend back: cron, or an interval; empty: never."""
    push_delay: float = Field(default=2.0, ge=0, le=3600)
    """Seconds after which a sync of what was pushed follows at the latest, so that several pushes make one."""
    limits: LimitSettings = Field(default_factory=LimitSettings)
    """How much may be deleted without approval."""
