"""After faults end, at most two runs reach the state of the directory."""

import pytest

from tests.choice import sampled
from tests.faults.layer import Fault
from tests.faults.schedule import Drawn, run_schedule
from tests.faults.world import FaultyWorld

SCHEDULES = 160
TOGETHER = 5
"""Schedules to a test: enough tests to share out, and few enough to read."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("first", sampled(range(1, SCHEDULES + 1, TOGETHER), sample=1))
def test_backend_converges_after_any_faults(any_world: FaultyWorld, first: int) -> None:
    outcomes = [run_schedule(seed, any_world) for seed in range(first, first + TOGETHER)]
    found = [outcome.summary() for outcome in outcomes if outcome.problems]
    assert not found, "\n".join(found)


def test_schedules_bring_every_fault_about() -> None:
    drawn = [Drawn.of(seed) for seed in range(1, SCHEDULES + 1)]
    assert {fault for one in drawn for fault in one.weather.faults} == set(Fault)
    assert {one.runs for one in drawn} == {1, 2, 3, 4}


@pytest.mark.extended
def test_schedule_can_be_repeated_from_its_seed(any_world: FaultyWorld) -> None:
    seed = next(seed for seed in range(1, 100) if Drawn.of(seed).max_in_flight == 1 and Drawn.of(seed).runs > 1)
    one, again = run_schedule(seed, any_world), run_schedule(seed, any_world)
    assert (one.statuses, one.calls, one.injected) == (again.statuses, again.calls, again.injected)
    assert one.injected.total()
