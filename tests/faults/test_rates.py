"""The call rate while the backend throttles."""

from collections import Counter
from random import Random

import pytest

from app.client.client import BackendClient
from app.client.errors import RateLimited
from app.contract.operations import GET_ORGANIZATIONS
from app.contract.organizations import GetOrganizationsRequest
from app.sync.runs.run import RunStatus
from tests.faults.layer import Fault, Weather
from tests.faults.world import FaultyWorld
from tests.worlds.company import Company

THROTTLES = (Fault.THROTTLED, Fault.THROTTLED_SECONDS, Fault.THROTTLED_ABSURD, Fault.UNAVAILABLE)

CALLS_PER_MINUTE = 24
"""With eight calls side by side; an unhindered worker makes thousands."""
CALLS_IN_ALL = 8 * 40
"""Each of those that are under way is repeated for at most five minutes of waiting, then the run ends."""


@pytest.fixture
def world(any_world: FaultyWorld) -> FaultyWorld:
    """Something to send, many calls side by side."""
    any_world.begin(Company(Random(21), size=3), batch_size=1, max_in_flight=8)
    assert any_world.sync().status is RunStatus.DONE
    any_world.begin(Company(Random(21), size=3), batch_size=1, max_in_flight=8)
    any_world.sync(verify=True)
    return any_world


def by_minute(world: FaultyWorld) -> list[int]:
    began = world.layer.calls[0].at
    counted = Counter(int((call.at - began) // 60) for call in world.layer.calls)
    return [counted[minute] for minute in range(max(counted) + 1)]


@pytest.mark.extended
@pytest.mark.parametrize("fault", THROTTLES)
def test_rate_falls_under_a_backend_that_throttles_everything(world: FaultyWorld, fault: Fault) -> None:
    for key, record in list(world.company.records.items()):
        if record.kind == "document":
            del world.company.records[key]
    world.layer.calls.clear()
    world.layer.weather = Weather(1, (fault,), 100)
    run = world.sync()
    assert run.status is RunStatus.FAILED
    assert "the backend does not answer" in (run.error or "")
    rates = by_minute(world)
    assert max(rates) <= CALLS_PER_MINUTE, rates
    assert sum(rates) <= CALLS_IN_ALL, rates


@pytest.mark.extended
def test_rate_recovers_when_the_backend_does(world: FaultyWorld) -> None:
    client = world.client()
    everything = GetOrganizationsRequest()

    def call() -> None:
        client.call(GET_ORGANIZATIONS, everything)

    world.layer.weather = Weather(1, (Fault.THROTTLED,), 100)
    with pytest.raises(RateLimited):
        call()
    assert int(client._retrying.limiter._allowed) == 1
    world.layer.clear_up()
    calls = _until_all_are_allowed(client, call)
    assert 8 < calls < 300


def _until_all_are_allowed(client: BackendClient, call: object) -> int:
    for number in range(1, 1000):
        call()  # type: ignore[operator]
        if client._retrying.limiter._allowed == 8:
            return number
    raise AssertionError("never")
