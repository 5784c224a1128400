"""The typed client of the backend: ``BackendClient.call`` calls any operation of the contract, and records the call."""

import json
import random as random_module
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import orjson
import structlog
from pydantic import SecretStr
from requests.adapters import BaseAdapter

from app.client.errors import ClientError, CredentialsRefused, OutcomeUnknown
from app.client.response import read_response, refusal
from app.client.retry import CallState, RateLimiter, Retrying, RetryPolicy, Throttled
from app.client.settings import BackendSettings
from app.client.transport import RawResponse, Transport
from app.contract.base import Request
from app.contract.errors import ResourceExhausted, Status, Unavailable
from app.contract.operation import Answer, AnyOperation, AuthLevel, HeaderNames, Operation
from app.foundation.clock import Clock, Sleep, utc_now
from app.foundation.outbound.route import Route

RequestT = TypeVar("RequestT", bound=Request)
ResultT = TypeVar("ResultT")

MAX_EXCERPT = 2000
"""Characters of a response in an excerpt."""

_MASKED_BYTES = 64 * 1024
"""Bytes of a response that are searched for secrets before it is cut."""

_FAILED_ITEM = re.compile(rb'"success"\s*:\s*false')


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """An ended call. Recording is cheap: the response becomes text only in ``excerpt``."""

    operation: str
    seconds: float
    http_status: int | None
    """Of the last response; None if there was none."""
    tries: int
    succeeded: bool
    body: bytes = b""
    """The last response."""
    problem: str = ""
    """The error of the call; empty if it succeeded."""
    mask: Callable[[str], str] = str
    """Removes credentials from a text."""

    @property
    def has_failures(self) -> bool:
        """Whether the call failed or its response contains failed items."""
        return bool(self.problem) or _FAILED_ITEM.search(self.body) is not None

    def excerpt(self) -> str:
        """The beginning of the response, or the error if there is none; without credentials."""
        text = self.body[:_MASKED_BYTES].decode("utf-8", "replace").replace("\0", "\ufffd").strip() or self.problem
        return self.mask(text)[:MAX_EXCERPT]


_RECORDS: ContextVar[list[CallRecord] | None] = ContextVar("records", default=None)


@contextmanager
def recorded_calls() -> Iterator[list[CallRecord]]:
    """Yields a list to which this thread's calls are appended as they end."""
    records: list[CallRecord] = []
    token = _RECORDS.set(records)
    try:
        yield records
    finally:
        _RECORDS.reset(token)


def record_call(record: CallRecord) -> None:
    """Appends the record to the list of the innermost ``recorded_calls``, if there is one."""
    records = _RECORDS.get()
    if records is not None:
        records.append(record)


def masked(text: str, secrets: Sequence[str]) -> str:
    """The text with ``***`` in place of the secrets, plain or escaped as in JSON."""
    for secret in secrets:
        for spelling in {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}:
            text = text.replace(spelling, "***")
    return text


@dataclass(frozen=True, slots=True)
class WorkspaceCredentials:
    """The credentials of operations with auth level W."""

    workspace_id: SecretStr
    auth_token: SecretStr


Observer = Callable[[CallRecord], None]
"""Receives every ended call, in the thread that made it. Must not raise."""


class BackendClient:
    """Calls the backend of ``settings``. Threads may share it; at most ``max_in_flight`` calls run concurrently.

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
        self._settings = settings
        self._workspace = workspace
        self._names = HeaderNames(settings.header_prefix)
        self._monotonic = monotonic
        self._sleep = sleep
        self._stop = stop or threading.Event()
        self._observer = observer
        self._may_send: Callable[[], bool] = _always
        self._secrets = _secrets(settings, workspace)
        self._transport = Transport(
            timeout=settings.timeout,
            pool_size=settings.max_in_flight,
            route=Route(settings.ca_file, settings.proxy),
            adapter=transport,
        )
        self._limiter = RateLimiter(
            settings.max_in_flight, monotonic=monotonic, pause=self._pause, stopped=self._stop.is_set
        )
        self._retrying = Retrying(
            policy=policy or RetryPolicy(),
            limiter=self._limiter,
            clock=clock or utc_now,
            pause=self._pause,
            may_send=lambda: self._may_send(),  # noqa: PLW0108 - it changes
            random=random or random_module.Random(),  # noqa: S311 - jitter needs no secrecy
        )

    def __repr__(self) -> str:
        return f"<BackendClient of {self._settings.base_url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the pooled connections."""
        self._transport.close()

    @contextmanager
    def guarded(self, may_send: Callable[[], bool]) -> Iterator[None]:
        """Calls ``may_send`` before every try within the block, after all waits. If it returns False, the call ends as
        if the stop event were set. It must be thread-safe. Guards do not nest."""
        self._may_send = may_send
        try:
            yield
        finally:
            self._may_send = _always

    def call(
        self, operation: Operation[RequestT, ResultT], request: RequestT, *, twin: bool = False
    ) -> Answer[ResultT]:
        """Calls ``operation`` with retries and returns its answer. ``twin`` uses the path in the other version of the
        API, if there is one.

        A batch with failed items is an answer: see ``response``. Raises ``ClientError``.
        """
        started_at = self._monotonic()
        body, headers = self._body(operation, request), self._headers(operation)
        url = self._settings.base_url + (operation.twin_path if twin and operation.twin_path else operation.path)
        repeatable = operation.is_repeatable
        state = CallState(operation.name)
        last: RawResponse | None = None
        succeeded = False
        problem = ""

        def send() -> Answer[ResultT]:
            nonlocal last
            last = None
            last = self._transport.post(url, headers, body)
            return self._read(operation, last, repeatable=repeatable)

        try:
            answer = self._retrying.run(state, send, repeatable=repeatable)
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
                    http_status=last.http_code if last is not None else None,
                    tries=state.tries,
                    succeeded=succeeded,
                    body=last.body if last is not None else b"",
                    problem=problem,
                    mask=self._mask,
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
                raise OutcomeUnknown(operation.name, "the backend repeated a page token", tries=len(seen) + 1)
            seen.add(token)
            request = request.model_copy(update={"page_token": token})

    def _read(
        self, operation: Operation[RequestT, ResultT], response: RawResponse, *, repeatable: bool
    ) -> Answer[ResultT]:
        try:
            return read_response(operation, response, self._mask)
        except Throttled as throttled:
            if repeatable or (response.http_code == 429 and self._retrying.is_worth_waiting(throttled)):
                raise
            # It may be a permanent quota, or a gateway timeout of a call that was applied.
            kind = Unavailable if response.http_code == 503 else ResourceExhausted
            raise refusal(operation, kind(throttled.reason, http_code=response.http_code)) from throttled

    def _body(self, operation: AnyOperation, request: Request) -> bytes:
        body = operation.body(request)
        if operation.auth is AuthLevel.BODY and isinstance(body["data"], dict):
            for field, secret in (("apiKey", self._settings.api_key), ("authToken", self._settings.auth_token)):
                if not body["data"].get(field):
                    body["data"][field] = secret.get_secret_value()
        return orjson.dumps(body)

    def _headers(self, operation: AnyOperation) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "usher",
        }
        if operation.auth is AuthLevel.K:
            headers[self._names.api_key] = self._credential(operation, self._settings.api_key, "api_key")
            headers[self._names.auth_token] = self._credential(operation, self._settings.auth_token, "auth_token")
        elif operation.auth is AuthLevel.W:
            workspace = self._workspace
            workspace_id, token = (None, None) if workspace is None else (workspace.workspace_id, workspace.auth_token)
            headers[self._names.workspace_id] = self._credential(operation, workspace_id, "workspace id")
            headers[self._names.workspace_auth_token] = self._credential(operation, token, "workspace auth token")
        return headers

    def _credential(self, operation: AnyOperation, secret: SecretStr | None, name: str) -> str:
        value = secret.get_secret_value() if secret is not None else ""
        if value:
            return value
        message = f"not sent: no {name} of the backend is configured"
        raise CredentialsRefused(operation.name, Status.UNAUTHENTICATED, message, http_code=0)

    def _mask(self, text: str) -> str:
        return masked(text, self._secrets)

    def _pause(self, seconds: float) -> None:
        if self._sleep is None:
            self._stop.wait(seconds)
        elif seconds > 0 and not self._stop.is_set():
            self._sleep(seconds)

    def _record(self, record: CallRecord) -> None:
        record_call(record)
        structlog.stdlib.get_logger(__name__).debug(
            "call",
            operation=record.operation,
            http_status=record.http_status,
            tries=record.tries,
            duration_ms=round(record.seconds * 1000, 1),
            succeeded=record.succeeded,
        )
        if self._observer is not None:
            self._observer(record)


def _secrets(settings: BackendSettings, workspace: WorkspaceCredentials | None) -> tuple[str, ...]:
    """The credentials to mask in texts, the longest first. Shorter ones than four characters would match words."""
    secrets = [settings.api_key, settings.auth_token]
    if workspace is not None:
        secrets += [workspace.workspace_id, workspace.auth_token]
    texts = {secret.get_secret_value() for secret in secrets}
    return tuple(sorted((text for text in texts if len(text) >= 4), key=len, reverse=True))


def _always() -> bool:
    return True
