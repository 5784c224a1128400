"""The self-hosted backend's calls to the permission provider that is registered in it.

A response is accepted only if it is a 2xx of limited size, arrives in time, and contains one well-formed result for
each question, in order. Otherwise the call is retried. Without a valid response the verdict is None, and callers
deny access.
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

from app.backend.permissions.provider_config import ProviderConfig
from app.backend.security.outgoing import time_limit
from app.backend.settings import SelfHostedBackendSettings
from app.contract import limits
from app.contract.permission_call import Question
from app.foundation.batches import batches
from app.foundation.clock import Sleep

_log = structlog.stdlib.get_logger(__name__)

QUESTIONS_PER_CALL = 500
_MAX_RESPONSE_BYTES = 8 * 1024 * 1024
_CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True)
class AccessVerdict:
    """Whether the user has access, as what, and until when (epoch milliseconds)."""

    has_access: bool
    access_role: str | None = None
    expires_at: int | None = None


DENIED = AccessVerdict(has_access=False)


class CallError(Exception):
    """A failed call. The text is logged and contains no secret."""


def ask(
    provider: ProviderConfig,
    settings: SelfHostedBackendSettings,
    questions: Sequence[Question],
    session: requests.Session,
    sleep: Sleep,
) -> list[AccessVerdict | None]:
    """The verdict on each question, in order. None: there is no valid response.

    After a failed call the remaining questions are not asked: a provider that is down would delay the request further.
    """
    verdicts: list[AccessVerdict | None] = []
    deadline = monotonic() + settings.provider_deadline
    for batch in batches(questions, QUESTIONS_PER_CALL):
        try:
            verdicts.extend(_with_retries(settings, partial(_call, provider, batch, session), sleep, deadline))
        except CallError:
            break
    return [*verdicts, *([None] * (len(questions) - len(verdicts)))]


def _with_retries(
    settings: SelfHostedBackendSettings, call: Callable[[float], list[AccessVerdict]], sleep: Sleep, deadline: float
) -> list[AccessVerdict]:
    """Retries ``call``, which takes a timeout. Raises the last ``CallError``."""
    last_error = CallError("no time left to ask")
    for attempt in range(1, settings.provider_tries + 1):
        remaining = deadline - monotonic()
        if remaining <= 0:
            break
        try:
            return call(min(settings.provider_timeout, remaining))
        except CallError as error:
            last_error = error
            _log.warning("provider_call_failed", attempt=attempt, problem=str(error))
            if attempt == settings.provider_tries or monotonic() + settings.provider_pause >= deadline:
                break
            sleep(settings.provider_pause)
    raise last_error


def _call(
    provider: ProviderConfig, questions: Sequence[Question], session: requests.Session, timeout: float
) -> list[AccessVerdict]:
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
                # The part that arrived may look like a complete response.
                raise CallError("the response took too long")
    except (requests.RequestException, HTTPError, OSError, ValueError) as error:
        raise CallError(type(error).__name__) from error
    return _verdicts(raw, questions)


def _read(response: requests.Response, deadline: float) -> bytes:
    raw = bytearray()
    # ``read1`` returns after one read of the socket. Waiting for a full chunk could exceed the deadline.
    while chunk := response.raw.read1(_CHUNK):
        raw += chunk
        if len(raw) > _MAX_RESPONSE_BYTES:
            raise CallError("the response is too large")
        if monotonic() > deadline:
            raise CallError("the response took too long")
    return bytes(raw)


def _verdicts(raw: bytes, questions: Sequence[Question]) -> list[AccessVerdict]:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise CallError("the response is not JSON") from error
    if not isinstance(body, dict) or body.get("success") is not True or not isinstance(body.get("data"), list):
        raise CallError("the response violates the contract")
    results = body["data"]
    if len(results) != len(questions):
        raise CallError(f"{len(results)} results for {len(questions)} questions")
    return [_verdict(result, question) for result, question in zip(results, questions, strict=True)]


def _verdict(result: object, question: Question) -> AccessVerdict:
    if not isinstance(result, Mapping) or not _is_about(result, question):
        raise CallError("a result does not belong to its question")
    has_access = result.get("hasAccess")
    if has_access is False:
        return DENIED
    role = result.get("accessRole")
    expires_at = result.get("expiresAt")
    if has_access is not True or not (role is None or (isinstance(role, str) and role in {"viewer", "editor"})):
        raise CallError("a result violates the contract")
    if expires_at is not None and not _is_time(expires_at):
        raise CallError("a result's expiresAt is not a time")
    # The reference of the call: an allow without a role is one of an editor.
    return AccessVerdict(True, role or "editor", None if expires_at is None else int(expires_at))


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
            "source": "getPermissions",
        },
    }
