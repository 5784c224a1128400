"""What does the configured permission provider say?

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

from app.backend.call import Sleep
from app.backend.outgoing import at_most
from app.contract import limits
from app.contract.permission_call import Question

QUESTIONS_PER_CALL = 500
_LARGEST_ANSWER = 8 * 1024 * 1024
_CHUNK = 64 * 1024
SOURCE = "getPermissions"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One answer. `expires_at` is epoch milliseconds."""

    has_access: bool
    access_role: str | None = None
    expires_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Where to ask, and how patiently."""

    url: str
    auth_token: str
    timeout: float
    tries: int
    pause: float


class CallError(Exception):
    """One try that brought no answer; the text is for the log and holds no secret."""


def ask(
    provider: Provider, questions: Sequence[Question], session: requests.Session, sleep: Sleep
) -> list[Verdict | None]:
    """The verdict on each question, in order; None where there is none.

    Once a call has failed for good the remaining questions are not asked: a provider that is down would hold up the
    caller for every one.
    """
    verdicts: list[Verdict | None] = []
    for start in range(0, len(questions), QUESTIONS_PER_CALL):
        part = questions[start : start + QUESTIONS_PER_CALL]
        answered = _patiently(provider, partial(_one_call, provider, part, session), sleep)
        if answered is None:
            break
        verdicts.extend(answered)
    return [*verdicts, *([None] * (len(questions) - len(verdicts)))]


def _patiently(provider: Provider, call: Callable[[], list[Verdict]], sleep: Sleep) -> list[Verdict] | None:
    log = structlog.stdlib.get_logger(__name__)
    for number in range(1, provider.tries + 1):
        try:
            return call()
        except CallError as failure:
            log.warning("provider_call_failed", attempt=number, problem=str(failure))
            if number < provider.tries:
                sleep(provider.pause)
    return None


def _one_call(provider: Provider, questions: Sequence[Question], session: requests.Session) -> list[Verdict]:
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    if provider.auth_token:
        headers["Authorization"] = f"Bearer {provider.auth_token}"
    body = orjson.dumps({"data": {"requests": [_to_wire(question) for question in questions]}})
    deadline = monotonic() + provider.timeout
    try:
        with (
            at_most(provider.timeout) as watch,
            session.post(
                provider.url, data=body, headers=headers, timeout=provider.timeout, allow_redirects=False, stream=True
            ) as response,
        ):
            if not 200 <= response.status_code < 300:
                raise CallError(f"HTTP {response.status_code}")
            raw = _read(response, deadline)
            if watch.was_cut:
                # What was cut off may read like an answer that ended there.
                raise CallError("the answer took too long")
    except (requests.RequestException, HTTPError, OSError, ValueError) as error:
        raise CallError(type(error).__name__) from error
    return _verdicts(raw, questions)


def _read(response: requests.Response, deadline: float) -> bytes:
    raw = bytearray()
    # One read of the socket at a time: waiting for a full chunk would let a slow sender stretch the time without end.
    while chunk := response.raw.read1(_CHUNK):
        raw += chunk
        if len(raw) > _LARGEST_ANSWER:
            raise CallError("the answer is too large")
        if monotonic() > deadline:
            raise CallError("the answer took too long")
    return bytes(raw)


def _verdicts(raw: bytes, questions: Sequence[Question]) -> list[Verdict]:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise CallError("the answer is not JSON") from error
    if not isinstance(body, dict) or body.get("success") is not True or not isinstance(body.get("data"), list):
        raise CallError("the answer has another shape than the contract's")
    results = body["data"]
    if len(results) != len(questions):
        raise CallError(f"{len(results)} results for {len(questions)} questions")
    return [_verdict(result, question) for result, question in zip(results, questions, strict=True)]


def _verdict(result: object, question: Question) -> Verdict:
    if not isinstance(result, Mapping) or not _is_about(result, question):
        raise CallError("a result is not about the question in its place")
    has_access = result.get("hasAccess")
    if has_access is False:
        return Verdict(has_access=False)
    role = result.get("accessRole")
    expires_at = result.get("expiresAt")
    if has_access is not True or not (role is None or (isinstance(role, str) and role in {"viewer", "editor"})):
        raise CallError("a result has another shape than the contract's")
    if expires_at is not None and not _is_time(expires_at):
        raise CallError("a result's expiresAt is no time")
    return Verdict(True, role or "editor", None if expires_at is None else int(expires_at))


def _is_time(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= limits.EPOCH_MS_MAX


def _is_about(result: Mapping[str, object], question: Question) -> bool:
    return (
        result.get("userId") == question.user_id
        and result.get("resourceId") == question.resource_id
        and result.get("type") == question.type
        and result.get("organizationId", question.organization_id) == question.organization_id
    )


def _to_wire(question: Question) -> dict[str, object]:
    return {
        "userId": question.user_id,
        "resource": {
            "type": question.type,
            "id": question.resource_id,
            "organizationId": question.organization_id,
            "source": SOURCE,
        },
    }
