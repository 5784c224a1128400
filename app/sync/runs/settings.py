"""The settings of synchronization: schedules and limits."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, Field

from app.foundation.configuration.schema import SettingsSection
from app.sync.plan.settings import LimitSettings
from app.sync.runs.schedule import ScheduleError, first_due_after, zone_of

_ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)


def _usable_schedule(schedule: str) -> str:
    schedule = schedule.strip()
    if schedule:
        try:
            never = first_due_after(_ANY_TIME, [schedule], "UTC") is None
        except ScheduleError as error:
            raise ValueError(f"{schedule!r} {error}") from error
        if never:
            raise ValueError(f"{schedule!r} names a day that no month has; it would never be due")
    return schedule


def _known_timezone(name: str) -> str:
    zone_of(name)
    return name


Schedule = Annotated[str, AfterValidator(_usable_schedule)]
"""Five cron fields, ``every`` with a number and s, m, h or d, or empty for never."""


class SyncSettings(SettingsSection):
    """The section ``sync``."""

    schedule: Schedule = "*/15 * * * *"
    """When a sync starts: cron, or an interval like ``every 15m``; empty means never."""
    timezone: Annotated[str, AfterValidator(_known_timezone)] = "UTC"
    """The time zone of cron schedules."""
    jitter: int = Field(default=30, ge=0, le=3600)
    """The maximum random delay of a start, in seconds, so that installations do not all start at once."""
    verify_schedule: Schedule = "17 3 * * *"
    """When a sync reads the backend back first: cron, or an interval; empty means never."""
    push_delay: float = Field(default=2.0, ge=0, le=3600)
    """The maximum delay of a sync after a push, in seconds. Several pushes share a sync."""
    limits: LimitSettings = Field(default_factory=LimitSettings)
    """The deletes that need no approval."""
