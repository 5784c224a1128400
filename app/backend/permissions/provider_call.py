"""The call to the configured permission provider.

Asked over HTTP, in as few calls as the questions need, and never believed unless everything about an answer is as it
must be: a 2xx that is no redirect, of bounded size and in time, one well-formed result for each question, in order,
about that very question. Anything else is repeated and at last counts as no answer: access is then denied.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TypeGuard

import orjson
import requests
import structlog
from urllib3.exceptions import HTTPError

from app.backend.security.outgoing import time_limit
from app.contract import limits
from app.contract.permission_call import RequestEntry
from app.foundation.clock import Sleep

QUESTIONS_PER_CALL = 500
_LARGEST_ANSWER = 8 * 1024 * 1024
_CHUNK = 64 * 1024
SOURCE = "getPermissions"


@dataclass(frozen=True, slots=True)
class ProviderVerdict:
    """One answer. ``expires_at`` is epoch milliseconds."""

    has_access: bool
    access_role: str | None = None
    expires_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Where to ask, and how patiently."""

    url: str
    auth_token: str
    timeout: float
    """Seconds that one call may take."""
    tries: int
    pause: float
    deadline: float
    """Seconds that all calls and pauses may take together."""


class CallError(Exception):
    """One try that brought no answer; the text is for the log and holds no secret. ``is_silence``: there was no sign of
    life at all.
    """

    def __init__(self, problem: str, *, is_silence: bool = False) -> None:
        super().__init__(problem)
        self.is_silence = is_silence


def ask(
    provider: Provider,
    questions: Sequence[RequestEntry],
    session: requests.Session,
    sleep: Sleep,
    on_silence: Callable[[], None] = lambda: None,
) -> list[ProviderVerdict | None]:
    """The verdict on each question, in order; None where there is none. ``on_silence`` is told when the last try
    brought no sign of life.

    Once a call has failed for good the remaining questions are not asked: a provider that is down would hold up the
    caller for every one.
    """
    verdicts: list[ProviderVerdict | None] = []
    ends = monotonic() + provider.deadline
    for start in range(0, len(questions), QUESTIONS_PER_CALL):
        part = questions[start : start + QUESTIONS_PER_CALL]
        try:
            verdicts.extend(_patiently(provider, partial(_one_call, provider, part, session), sleep, ends))
        except CallError as failure:
            if failure.is_silence:
                on_silence()
            break
    return [*verdicts, *([None] * (len(questions) - len(verdicts)))]


def _patiently(
    provider: Provider, call: Callable[[float], list[ProviderVerdict]], sleep: Sleep, ends: float
) -> list[ProviderVerdict]:
    """What a call brings that is told how many seconds it has. Raises ``CallError``: the last one."""
    log = structlog.stdlib.get_logger(__name__)
    failure = CallError("no time left to ask")
    for number in range(1, provider.tries + 1):
        left = ends - monotonic()
        if left <= 0:
            break
        try:
            return call(min(provider.timeout, left))
        except CallError as error:
            failure = error
            log.warning("provider_call_failed", attempt=number, problem=str(failure))
            if number == provider.tries or monotonic() + provider.pause >= ends:
                break
            sleep(provider.pause)
    raise failure


def _one_call(
    provider: Provider, questions: Sequence[RequestEntry], session: requests.Session, timeout: float
) -> list[ProviderVerdict]:
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    if provider.auth_token:
        headers["Authorization"] = f"Bearer {provider.auth_token}"
    body = orjson.dumps({"data": {"requests": [_to_wire(question) for question in questions]}})
    deadline = monotonic() + timeout
    try:
        with (
            time_limit(timeout) as watch,
            session.post(
                provider.url, data=body, headers=headers, timeout=timeout, allow_redirects=False, stream=True
            ) as response,
        ):
            if not 200 <= response.status_code < 300:
                raise CallError(f"HTTP {response.status_code}")
            raw = _read(response, deadline)
            if watch.was_cut:
                # What was cut off may read like an answer that ended there.
                raise CallError("the answer took too long", is_silence=True)
    except (requests.RequestException, HTTPError, OSError, ValueError) as error:
        raise CallError(type(error).__name__, is_silence=True) from error
    return _verdicts(raw, questions)


def _read(response: requests.Response, deadline: float) -> bytes:
    raw = bytearray()
    # One read of the socket at a time: waiting for a full chunk would let a slow sender stretch the time without end.
    while chunk := response.raw.read1(_CHUNK):
        raw += chunk
        if len(raw) > _LARGEST_ANSWER:
            raise CallError("the answer is too large")
        if monotonic() > deadline:
            raise CallError("the answer took too long", is_silence=True)
    return bytes(raw)


def _verdicts(raw: bytes, questions: Sequence[RequestEntry]) -> list[ProviderVerdict]:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise CallError("the answer is not JSON") from error
    if not isinstance(body, dict) or body.get("success") is not True or not isinstance(body.get("data"), list):
        raise CallError("the answer does not have the shape of the contract")
    results = body["data"]
    if len(results) != len(questions):
        raise CallError(f"{len(results)} results for {len(questions)} questions")
    return [_verdict(result, question) for result, question in zip(results, questions, strict=True)]


def _verdict(result: object, question: RequestEntry) -> ProviderVerdict:
    if not isinstance(result, Mapping) or not _is_about(result, question):
        raise CallError("a result is about another question than the one asked")
    has_access = result.get("hasAccess")
    if has_access is False:
        return ProviderVerdict(has_access=False)
    role = result.get("accessRole")
    expires_at = result.get("expiresAt")
    if has_access is not True or not (role is None or (isinstance(role, str) and role in {"viewer", "editor"})):
        raise CallError("a result does not have the shape of the contract")
    if expires_at is not None and not _is_time(expires_at):
        raise CallError("a result's expiresAt is not a time")
    return ProviderVerdict(True, role or "editor", None if expires_at is None else int(expires_at))


def _is_time(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= limits.EPOCH_MS_MAX


def _is_about(result: Mapping[str, object], question: RequestEntry) -> bool:
    return (
        result.get("userId") == question.user_id
        and result.get("resourceId") == question.resource_id
        and result.get("type") == question.type
        and result.get("organizationId", question.organization_id) == question.organization_id
    )


def _to_wire(question: RequestEntry) -> dict[str, object]:
    return {
        "userId": question.user_id,
        "resource": {
            "type": question.type,
            "id": question.resource_id,
            "organizationId": question.organization_id,
            "source": SOURCE,
        },
    }
