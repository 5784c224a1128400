"""The retry policy, at its limits."""

import random
from datetime import timedelta

import pytest

from app.backend.webhooks.retries import DELAYS, backoff_ms, is_failing, next_attempt_at

DAY = 24 * 3600 * 1000
FIRST = 1_800_000_000_000


class NoJitter(random.Random):
    def random(self) -> float:
        return 0.0


class MaximumJitter(random.Random):
    def random(self) -> float:
        return 0.999999


def test_delays_grow_and_last_three_days_in_total() -> None:
    assert list(DELAYS) == sorted(DELAYS)
    assert timedelta(days=3) < sum(DELAYS, timedelta()) < timedelta(days=4)


@pytest.mark.parametrize("attempts", range(1, len(DELAYS) + 1))
def test_jitter_extends_a_delay_by_a_fifth_at_most(attempts: int) -> None:
    earliest = next_attempt_at(attempts, FIRST, FIRST, 0, NoJitter())
    latest = next_attempt_at(attempts, FIRST, FIRST, 0, MaximumJitter())

    delay = DELAYS[attempts - 1].total_seconds() * 1000
    assert earliest == FIRST + delay
    assert latest is not None
    assert FIRST + delay * 1.19 < latest < FIRST + delay * 1.2


def test_a_delivery_is_given_up_after_the_last_attempt() -> None:
    assert next_attempt_at(len(DELAYS), FIRST, FIRST, 0, NoJitter()) is not None
    assert next_attempt_at(len(DELAYS) + 1, FIRST, FIRST, 0, NoJitter()) is None


def test_a_delivery_is_given_up_after_five_days() -> None:
    """Behind many failing deliveries one gets few attempts."""
    assert next_attempt_at(2, FIRST + 5 * DAY - 1, FIRST, 0, NoJitter()) is not None
    assert next_attempt_at(2, FIRST + 5 * DAY, FIRST, 0, NoJitter()) is None


@pytest.mark.parametrize(
    ("retry_after_s", "waits_s"), [(0, 5), (4, 5), (6, 6), (86_400, 86_400), (999_999_999, 86_400)]
)
def test_retry_after_extends_a_delay_up_to_a_day(retry_after_s: float, waits_s: int) -> None:
    assert next_attempt_at(1, FIRST, FIRST, retry_after_s, NoJitter()) == FIRST + waits_s * 1000


def test_an_endpoint_with_a_success_is_not_failing() -> None:
    assert is_failing(FIRST + 2 * DAY, FIRST, delivered_at=FIRST - 1)
    assert not is_failing(FIRST + 2 * DAY - 1, FIRST, delivered_at=FIRST - 1)
    assert not is_failing(FIRST + 2 * DAY, FIRST, delivered_at=FIRST)


def test_the_backoff_doubles_up_to_five_minutes() -> None:
    assert [backoff_ms(failures) for failures in (1, 2, 3, 9, 10, 1000)] == [
        1000,
        2000,
        4000,
        256_000,
        300_000,
        300_000,
    ]
