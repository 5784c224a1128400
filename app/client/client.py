"""The typed client of the backend: ``BackendClient.call`` calls any operation of the contract."""

import random as random_module
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeVar

import orjson
import structlog
from pydantic import SecretStr
from requests.adapters import BaseAdapter

from app.client.errors import ClientError, CredentialsRefused, OutcomeUnknown
from app.client.hearing import Heard, masked, tell
from app.client.rate import RateLimiter
from app.client.retry import Retrying, RetryPolicy, Throttled, Unclear
from app.client.settings import BackendSettings
from app.client.transport import RawResponse, Transport
from app.client.verdict import read_reply, refusal
from app.contract.base import Request
from app.contract.envelope import Answer
from app.contract.errors import ResourceExhausted, Status, Unavailable
from app.contract.headers import HeaderNames
from app.contract.operation import AnyOperation, AuthLevel, Operation
from app.foundation.clock import Clock, Sleep, utc_now
from app.foundation.outbound.route import Route

RequestT = TypeVar("RequestT", bound=Request)
ResultT = TypeVar("ResultT")

_STOP_LOOK = 0.25
"""Seconds of a wait after which the stop event is looked at, where the wait is not the event's own."""


@dataclass(frozen=True, slots=True)
class WorkspaceCredentials:
    """What the operations of auth level W need."""

    workspace_id: SecretStr
    auth_token: SecretStr


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call that has ended, for metrics. ``http_status`` is that of the last response, None when there was none."""

    operation: str
    seconds: float
    http_status: int | None
    tries: int
    succeeded: bool


class Observer(Protocol):
    """Is told of every call when it has ended, in the thread that made it; must not raise."""

    def call_ended(self, record: CallRecord) -> None: ...


class BackendClient:
    """Calls the backend that ``settings`` names. One object serves many threads; at most ``max_in_flight`` calls are
    under way.

    ``transport`` replaces the network: a ``requests`` adapter such as one for WSGI. ``sleep`` replaces real waiting.
    Setting ``stop`` ends every wait at once: the call then raises what is known about it so far.
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
            monotonic=monotonic,
            route=Route(settings.ca_file, settings.proxy),
            adapter=transport,
        )
        self._limiter = RateLimiter(
            settings.max_in_flight, monotonic=monotonic, pause=self._pause, stopped=self._stop.is_set
        )
        self._retrying = Retrying(
            policy or RetryPolicy(),
            self._limiter,
            clock=clock or utc_now,
            pause=self._pause,
            stopped=self._stop.is_set,
            may_send=lambda: self._may_send(),  # noqa: PLW0108 - it changes
            # Jitter needs no secrecy.
            random_source=random or random_module.Random(),  # noqa: S311
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
        """Within it ``may_send`` is asked before every try of every call, repeats included, after all waiting; when it
        says no, the call ends as if the stop event had been set. Any thread may ask it. Guards do not nest."""
        self._may_send = may_send
        try:
            yield
        finally:
            self._may_send = _always

    def call(
        self, operation: Operation[RequestT, ResultT], request: RequestT, *, twin: bool = False
    ) -> Answer[ResultT]:
        """Calls ``operation`` and returns its answer; retries as often as the rules allow. ``twin`` uses the path under
        the other version of the API, if there is one.

        A batch that failed in part is an answer: see ``items``. Raises ``ClientError``.
        """
        began = self._monotonic()
        attempts = _Attempts()
        body, headers = self._body(operation, request), self._headers(operation)
        path = operation.twin_path if twin and operation.twin_path else operation.path
        url = self._settings.base_url + path
        repeatable = operation.is_repeatable
        succeeded = False

        def send() -> Answer[ResultT]:
            attempts.count += 1
            attempts.http_status = None
            try:
                attempts.body = b""
                reply = self._transport.post(url, headers, body)
                attempts.http_status, attempts.body = reply.http_code, reply.body
                return self._read(operation, reply, repeatable=repeatable)
            except Unclear:
                attempts.any_unclear = True
                raise

        try:
            answer = self._retrying.run(operation.name, send, repeatable=repeatable)
            succeeded = True
        except ClientError as error:
            error.repeated_blindly = attempts.any_unclear
            attempts.problem = error.message
            raise
        finally:
            tell(Heard(attempts.http_status, attempts.count, attempts.body, attempts.problem, self._mask))
            self._ended(operation, self._monotonic() - began, attempts, succeeded=succeeded)
        return replace(answer, repeated_blindly=True) if attempts.any_unclear else answer

    def pages(
        self, operation: Operation[RequestT, ResultT], request: RequestT, *, twin: bool = False
    ) -> Iterator[Answer[ResultT]]:
        """Every page from where ``request`` points, one call each. ``request`` is of a model with a ``page_token``."""
        seen: set[str] = set()
        while True:
            answer = self.call(operation, request, twin=twin)
            yield answer
            token = answer.next_page_token
            if token is None:
                return
            if token in seen:
                raise OutcomeUnknown(operation.name, "the backend gave the same page token twice", tries=len(seen) + 1)
            seen.add(token)
            request = request.model_copy(update={"page_token": token})

    def _read(
        self, operation: Operation[RequestT, ResultT], reply: RawResponse, *, repeatable: bool
    ) -> Answer[ResultT]:
        try:
            return read_reply(operation, reply, self._mask)
        except Throttled as throttled:
            if repeatable or (reply.http_code == 429 and self._retrying.is_worth_waiting(throttled)):
                raise
            # It may be a quota that no waiting mends, or a gateway that gave up on a call that went through.
            kind = Unavailable if reply.http_code == 503 else ResourceExhausted
            raise refusal(operation, kind(throttled.reason, http_code=reply.http_code)) from throttled

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
            headers[self._names.api_key] = self._shown(operation, self._settings.api_key, "api_key")
            headers[self._names.auth_token] = self._shown(operation, self._settings.auth_token, "auth_token")
        elif operation.auth is AuthLevel.W:
            workspace = self._workspace
            workspace_id, token = (None, None) if workspace is None else (workspace.workspace_id, workspace.auth_token)
            headers[self._names.workspace_id] = self._shown(operation, workspace_id, "workspace id")
            headers[self._names.workspace_auth_token] = self._shown(operation, token, "workspace auth token")
        return headers

    def _shown(self, operation: AnyOperation, secret: SecretStr | None, name: str) -> str:
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
            return
        while seconds > 0 and not self._stop.is_set():
            step = min(seconds, _STOP_LOOK) if self._sleep is time.sleep else seconds
            self._sleep(step)
            seconds -= step

    def _ended(self, operation: AnyOperation, seconds: float, attempts: "_Attempts", *, succeeded: bool) -> None:
        structlog.stdlib.get_logger(__name__).debug(
            "call",
            operation=operation.name,
            http_status=attempts.http_status,
            tries=attempts.count,
            duration_ms=round(seconds * 1000, 1),
            succeeded=succeeded,
        )
        if self._observer is not None:
            self._observer.call_ended(
                CallRecord(operation.name, seconds, attempts.http_status, attempts.count, succeeded)
            )


@dataclass(slots=True)
class _Attempts:
    count: int = 0
    http_status: int | None = None
    body: bytes = b""
    problem: str = ""
    any_unclear: bool = False


def _secrets(settings: BackendSettings, workspace: WorkspaceCredentials | None) -> tuple[str, ...]:
    """What must not show up in any text, the longest first."""
    secrets = [settings.api_key, settings.auth_token]
    if workspace is not None:
        secrets += [workspace.workspace_id, workspace.auth_token]
    # Shorter ones would hit innocent words.
    return tuple(sorted({text for one in secrets if len(text := one.get_secret_value()) >= 4}, key=len, reverse=True))


def _always() -> bool:
    return True
