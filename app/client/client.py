"""The typed client of the backend: ``BackendClient.call`` calls any operation of the contract, and records the call."""

import random as random_module
import threading
import time
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from typing import Self, TypeVar

import orjson
import structlog
from requests.adapters import BaseAdapter

from app.client.credentials import BackendCredentials, WorkspaceCredentials
from app.client.errors import ClientError, OutcomeUnknown
from app.client.records import CallRecord, Observer, record_call
from app.client.response import read_response, refusal
from app.client.retry import CallState, RateLimiter, Retrying, RetryPolicy, Throttled
from app.client.settings import BackendSettings
from app.client.transport import RawResponse, Transport
from app.contract.base import Request
from app.contract.errors import ResourceExhausted, Unavailable
from app.contract.operation import Answer, Operation
from app.foundation.clock import Clock, Sleep, utc_now
from app.foundation.outbound.route import Route

_log = structlog.stdlib.get_logger(__name__)

RequestT = TypeVar("RequestT", bound=Request)
ResultT = TypeVar("ResultT")

_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": "usher",
}


class BackendClient:
    """Calls the backend of ``settings``. Threads may share it. At most ``max_in_flight`` calls run concurrently.

    ``transport`` replaces the network by a ``requests`` adapter, such as one for WSGI. ``sleep`` replaces waiting.
    Setting ``stop`` ends every wait at once: the call then raises the error of its tries so far.
    """

    def __init__(
        self,
        settings: BackendSettings,
        *,
        workspace: WorkspaceCredentials | None = None,
        transport: BaseAdapter | None = None,
        clock: Clock | None = None,
        sleep: Sleep | None = None,
        random: random_module.Random | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        stop: threading.Event | None = None,
        observer: Observer | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        self._base_url = settings.base_url
        self._credentials = BackendCredentials(settings, workspace)
        self._monotonic = monotonic
        self._sleep = sleep
        self._stop = stop or threading.Event()
        self._observer = observer
        self._transport = Transport(
            timeout=settings.timeout,
            pool_size=settings.max_in_flight,
            route=Route(settings.ca_file, settings.proxy),
            adapter=transport,
        )
        self._retrying = Retrying(
            policy=policy or RetryPolicy(),
            limiter=RateLimiter(
                settings.max_in_flight, monotonic=monotonic, pause=self._pause, stopped=self._stop.is_set
            ),
            clock=clock or utc_now,
            pause=self._pause,
            random=random or random_module.Random(),  # noqa: S311 - jitter needs no secrecy
        )

    def __repr__(self) -> str:
        return f"<BackendClient of {self._base_url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the pooled connections."""
        self._transport.close()

    def guarded(self, may_send: Callable[[], bool]) -> Self:
        """This client with a guard: ``may_send`` is called before every try, after all waits. If it returns False, the
        call ends as if the stop event were set. It must be thread-safe."""
        guarded = copy(self)
        guarded._retrying = replace(self._retrying, may_send=may_send)  # noqa: SLF001 - of the same class
        return guarded

    def call(
        self, operation: Operation[RequestT, ResultT], request: RequestT, *, other_version: bool = False
    ) -> Answer[ResultT]:
        """Calls ``operation`` with retries and returns its answer. ``other_version`` uses the path in the
        other version of the API, if there is one.

        A batch with failed items is an answer: see ``response``. Raises ``ClientError``.
        """
        started_at = self._monotonic()
        path = (operation.other_version_path if other_version else None) or operation.path
        headers = _HEADERS | self._credentials.headers(operation)
        body = orjson.dumps(self._credentials.body(operation, request))
        response: RawResponse | None = None

        def send() -> Answer[ResultT]:
            nonlocal response
            response = None
            response = self._transport.post(self._base_url + path, headers, body)
            return self._read(operation, response)

        state = CallState(operation.name)
        succeeded, problem = False, ""
        try:
            answer = self._retrying.run(state, send, repeatable=operation.is_repeatable)
            succeeded = True
        except ClientError as error:
            error.maybe_applied_earlier = state.unclear
            problem = error.message
            raise
        finally:
            self._record(
                CallRecord(
                    operation=operation.name,
                    seconds=self._monotonic() - started_at,
                    http_status=response.http_code if response is not None else None,
                    tries=state.tries,
                    succeeded=succeeded,
                    body=response.body if response is not None else b"",
                    problem=problem,
                    mask=self._credentials.mask,
                )
            )
        return replace(answer, maybe_applied_earlier=True) if state.unclear else answer

    def pages(self, operation: Operation[RequestT, ResultT], request: RequestT) -> Iterator[Answer[ResultT]]:
        """All pages from that of ``request`` on, one call each. ``request`` has a field ``page_token``."""
        seen: set[str] = set()
        while True:
            answer = self.call(operation, request)
            yield answer
            token = answer.next_page_token
            if token is None:
                return
            if token in seen:
                raise OutcomeUnknown(operation.name, "the backend repeated a page token")
            seen.add(token)
            request = request.model_copy(update={"page_token": token})

    def _read(self, operation: Operation[RequestT, ResultT], response: RawResponse) -> Answer[ResultT]:
        try:
            return read_response(operation, response, self._credentials.mask)
        except Throttled as throttled:
            if operation.is_repeatable or (response.http_code == 429 and self._retrying.is_worth_waiting(throttled)):
                raise
            # It may be a permanent quota, or a gateway timeout of a call that was applied.
            kind = Unavailable if response.http_code == 503 else ResourceExhausted
            raise refusal(operation, kind(throttled.reason, http_code=response.http_code)) from throttled

    def _pause(self, seconds: float) -> None:
        if self._sleep is None:
            self._stop.wait(seconds)
        elif seconds > 0 and not self._stop.is_set():
            self._sleep(seconds)

    def _record(self, record: CallRecord) -> None:
        record_call(record)
        _log.debug(
            "call",
            operation=record.operation,
            http_status=record.http_status,
            tries=record.tries,
            duration_ms=round(record.seconds * 1000, 1),
            succeeded=record.succeeded,
        )
        if self._observer is not None:
            self._observer(record)
