"""The section ``sync``."""

import pytest
from pydantic import ValidationError

from app.sync.plan.settings import LimitSettings
from app.sync.runs.schedule import interval_seconds
from app.sync.runs.settings import SyncSettings


def test_defaults_match_the_documentation():
    settings = SyncSettings()

    assert (settings.schedule, settings.timezone, settings.jitter) == ("*/15 * * * *", "UTC", 30)
    assert settings.verify_schedule == "17 3 * * *"
    assert settings.limits == LimitSettings(delete_count=500, delete_percent=20)


@pytest.mark.parametrize(
    ("schedule", "seconds"), [("every 15m", 900), ("every 1 h", 3600), ("every 2d", 172800), ("5 4 * * 1", None)]
)
def test_settings_accept_intervals_and_cron(schedule, seconds):
    assert interval_seconds(SyncSettings(schedule=schedule).schedule) == seconds


def test_settings_accept_no_schedule_at_all():
    assert SyncSettings(schedule="", verify_schedule=" ").verify_schedule == ""


@pytest.mark.parametrize(
    ("values", "field", "text"),
    [
        ({"schedule": "every minute"}, "schedule", "five cron fields"),
        ({"schedule": "every 0m"}, "schedule", "or an interval"),
        ({"verify_schedule": "61 * * * *"}, "verify_schedule", "five cron fields"),
        ({"schedule": "* * * *"}, "schedule", "five cron fields"),
        ({"timezone": "Mars/Olympus"}, "timezone", "is not a time zone"),
        ({"timezone": "../etc/passwd"}, "timezone", "is not a time zone"),
        ({"jitter": -1}, "jitter", "greater than or equal to 0"),
        ({"limits": {"delete_percent": 101}}, "limits", "less than or equal to 100"),
        ({"limits": {"deletes": 1}}, "limits", "Extra inputs"),
        ({"shedule": "* * * * *"}, "shedule", "Extra inputs"),
    ],
)
def test_settings_refuse_what_cannot_be(values, field, text):
    with pytest.raises(ValidationError) as refused:
        SyncSettings.model_validate(values)

    (error,) = refused.value.errors()
    assert error["loc"][0] == field
    assert text in error["msg"]
