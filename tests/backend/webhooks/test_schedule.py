"""When is a delivery tried again, at the edges of what is promised?"""

import random
from datetime import timedelta

import pytest

from app.backend.webhooks.schedule import DELAYS, fails_for_days, next_attempt, pause

DAY = 24 * 3600 * 1000
FIRST = 1_800_000_000_000


class Least(random.Random):
    def random(self) -> float:
        return 0.0


class Most(random.Random):
    def random(self) -> float:
        return 0.999999


def test_the_attempts_spread_over_three_days_and_each_waits_longer() -> None:
    assert list(DELAYS) == sorted(DELAYS)
    assert timedelta(days=3) < sum(DELAYS, timedelta()) < timedelta(days=4)


@pytest.mark.parametrize("attempts", range(1, len(DELAYS) + 1))
def test_a_delay_is_stretched_by_a_fifth_at_most(attempts: int) -> None:
    least = next_attempt(attempts, FIRST, FIRST, 0, Least())
    most = next_attempt(attempts, FIRST, FIRST, 0, Most())

    delay = DELAYS[attempts - 1].total_seconds() * 1000
    assert least == FIRST + delay
    assert most is not None
    assert FIRST + delay * 1.19 < most < FIRST + delay * 1.2


def test_after_the_last_attempt_there_is_no_other() -> None:
    assert next_attempt(len(DELAYS), FIRST, FIRST, 0, Least()) is not None
    assert next_attempt(len(DELAYS) + 1, FIRST, FIRST, 0, Least()) is None


def test_a_message_is_given_up_after_five_days_however_few_its_attempts() -> None:
    """Behind many others that fail, a message gets few of them."""
    assert next_attempt(2, FIRST + 5 * DAY - 1, FIRST, 0, Least()) is not None
    assert next_attempt(2, FIRST + 5 * DAY, FIRST, 0, Least()) is None


@pytest.mark.parametrize(("asked_s", "waits_s"), [(0, 5), (4, 5), (6, 6), (86_400, 86_400), (999_999_999, 86_400)])
def test_a_receiver_may_ask_for_more_time_up_to_a_day_but_not_for_less(asked_s: float, waits_s: int) -> None:
    assert next_attempt(1, FIRST, FIRST, asked_s, Least()) == FIRST + waits_s * 1000


def test_an_endpoint_fails_for_days_only_when_nothing_got_through_meanwhile() -> None:
    assert fails_for_days(FIRST + 2 * DAY, FIRST, delivered_at=FIRST - 1)
    assert not fails_for_days(FIRST + 2 * DAY - 1, FIRST, delivered_at=FIRST - 1)
    assert not fails_for_days(FIRST + 2 * DAY, FIRST, delivered_at=FIRST)


def test_a_target_that_fails_is_left_alone_longer_and_longer_up_to_five_minutes() -> None:
    assert [pause(failures) for failures in (1, 2, 3, 9, 10, 1000)] == [1000, 2000, 4000, 256_000, 300_000, 300_000]
