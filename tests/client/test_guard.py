"""A guard stops all tries of a call."""

from collections.abc import Callable
from typing import Any

import pytest

from app.client.client import BackendClient
from app.client.errors import NotReached, OutcomeUnknown, RateLimited
from app.contract.operations import GET_ORGANIZATIONS
from app.contract.organizations import GetOrganizationsRequest

ALL = GetOrganizationsRequest()


def allowed(times: int) -> Callable[[], bool]:
    left = [times]

    def may_send() -> bool:
        left[0] -= 1
        return left[0] >= 0

    return may_send


@pytest.mark.process
@pytest.mark.parametrize(("code", "error"), [(500, OutcomeUnknown), (429, RateLimited)])
def test_guard_ends_a_call_between_its_tries(
    client: BackendClient, server: Any, script: Any, code: int, error: type[OutcomeUnknown | RateLimited]
) -> None:
    server.will(script.responds(code, raw=b"no"))
    with pytest.raises(error) as caught:
        client.guarded(allowed(2)).call(GET_ORGANIZATIONS, ALL)
    assert caught.value.stopped
    assert len(server.received) == 2


@pytest.mark.process
def test_guard_blocks_calls_of_the_guarded_client_alone(client: BackendClient, server: Any, script: Any) -> None:
    server.will(script.succeeds([]))
    with pytest.raises(NotReached):
        client.guarded(allowed(0)).call(GET_ORGANIZATIONS, ALL)
    assert server.received == []
    client.call(GET_ORGANIZATIONS, ALL)
    assert len(server.received) == 1
