"""One HTTP exchange with the backend.

A ``Transport`` sends one request over the configured route and reads one bounded response. It follows no redirects and
does not retry. Each failure is either ``Unreached``, if nothing was sent, or ``Unclear``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import NoReturn

import requests
from requests.adapters import BaseAdapter
from urllib3.exceptions import HTTPError as PoolError
from urllib3.exceptions import TimeoutError as PoolTimeout

from app.client.retry import Unclear, Unreached
from app.foundation.outbound.failure import (
    CALL_ERRORS,
    CallFailure,
    FailureKind,
    call_failure,
    failure_of,
    refused_by_proxy,
    requires_tls,
)
from app.foundation.outbound.probe import probed_failure_of
from app.foundation.outbound.route import Route
from app.foundation.outbound.session import UnusableResponseError, VerifyingAdapter, read_bounded, session_for
from app.foundation.outbound.urls import address_of

MAX_RESPONSE_BYTES = 64 * 1024 * 1024
"""Far more than any page of results. A longer response is not read."""

CONNECT_TIMEOUT = 10.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class RawResponse:
    """A response of any status. The names of ``headers`` are in lower case."""

    http_code: int
    headers: Mapping[str, str]
    body: bytes


class Transport:
    """A pooled session for one backend, which threads may share.

    ``timeout`` is for one exchange, in seconds. ``pool_size`` connections are kept open. ``adapter`` replaces the
    network.
    """

    def __init__(
        self,
        *,
        timeout: float,
        pool_size: int,
        route: Route | None = None,
        adapter: BaseAdapter | None = None,
    ) -> None:
        self._timeouts = (min(timeout, CONNECT_TIMEOUT), timeout)
        self._route = route or Route()
        self._session = session_for(self._route, pool_size=pool_size, adapter=adapter)
        # After a first exchange the protocol is known to be right, so failures need no probe of the port.
        self._is_probed = not isinstance(self._session.get_adapter("https://"), VerifyingAdapter)

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> RawResponse:
        """One exchange. Raises ``Unreached`` or ``Unclear``."""
        deadline = monotonic() + sum(self._timeouts)
        try:
            request = requests.Request("POST", url, headers=dict(headers), data=body).prepare()
            response = self._session.send(request, stream=True, timeout=self._timeouts, allow_redirects=False)
        except CALL_ERRORS as error:
            self._raise_failure(error, url)
        try:
            with response:
                content = read_bounded(response, MAX_RESPONSE_BYTES, deadline)
        except UnusableResponseError as error:
            raise Unclear(f"the answer cannot be used: {error}") from error
        except PoolTimeout as error:
            raise Unclear("the answer stopped half way") from error
        except (PoolError, OSError) as error:
            raise Unclear("the connection was lost in the middle of the answer") from error
        if refused := refused_by_proxy(response.status_code, self._route):
            raise _attempt_failed(refused)
        if not self._is_probed and requires_tls(response.status_code, content):
            raise _attempt_failed(call_failure(FailureKind.TLS_REQUIRED, address_of(url)))
        self._is_probed = True
        return RawResponse(
            response.status_code, {name.lower(): value for name, value in response.headers.items()}, content
        )

    def _raise_failure(self, error: Exception, url: str) -> NoReturn:
        classify = failure_of if self._is_probed else probed_failure_of
        self._is_probed = True
        raise _attempt_failed(classify(error, url, self._route)) from error

    def close(self) -> None:
        """Closes the pooled connections."""
        self._session.close()


def _attempt_failed(failure: CallFailure) -> Unreached | Unclear:
    if failure.may_have_been_sent:
        return Unclear(failure.message, failure)
    if not failure.is_lasting:
        return Unreached(failure.message, failure)
    advice = failure.advice(address="backend.base_url", section="backend")
    return Unreached(f"{failure.message}: {advice}", failure)
