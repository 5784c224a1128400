"""The answer to one permission-provider call, which contains several permission requests.

All requests are decided from one revision of the access model, and answered in their order. A request that cannot be
parsed is answered with an ``error``. It does not affect the others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from app.access.decision.decide import Decision, DecisionPolicy, PermissionRequest, Rule, decide
from app.access.decision.explain import Explanation, explain
from app.access.decision.view import AccessView
from app.access.origins import Origins, path_with_origins
from app.access.records import Record
from app.contract.errors import InvalidArgument, Unavailable
from app.contract.permission_call import EntryError, RequestEntry, parse_entry, requests_of
from app.foundation.clock import epoch_ms

ViewLoader = Callable[[Sequence[PermissionRequest]], AccessView]
"""Loads the part of the current revision that these requests need."""

OriginsLoader = Callable[[Sequence[Record]], Origins]
"""Finds the records of the sources behind records of the access model."""


class ProviderObserver(Protocol):
    """Observes every answered call."""

    def answered(self, allowed: int, denied: Mapping[Rule, int], errors: int, seconds: float) -> None:
        """Counts one call. ``denied``: by rule; ``errors``: requests that could not be parsed."""
        ...


@dataclass(slots=True)
class PermissionAnswer:
    """The results of one call, in the order of its requests, and their numbers."""

    results: list[dict[str, object]]
    allowed: int = 0
    denied: dict[Rule, int] = field(default_factory=dict)
    """By rule."""
    errors: int = 0
    signature: str | None = None
    """Of the results, for an answer to a browser."""

    def add(self, entry: RequestEntry, decision: Decision) -> dict[str, object]:
        """Appends the result of a decision, and returns it."""
        result = _echo(entry)
        result["hasAccess"] = decision.has_access
        if decision.has_access:
            self.allowed += 1
        else:
            self.denied[decision.rule] = self.denied.get(decision.rule, 0) + 1
        if decision.access_role is not None:
            result["accessRole"] = decision.access_role.value
        if decision.expires_at is not None:
            result["expiresAt"] = epoch_ms(decision.expires_at)
        self.results.append(result)
        return result

    def add_error(self, item: RequestEntry | EntryError) -> None:
        """Appends the error of a request that could not be parsed."""
        result = _echo(item)
        result["hasAccess"] = False
        result["error"] = item.error if isinstance(item, EntryError) else ""
        self.errors += 1
        self.results.append(result)

    def envelope(self) -> dict[str, object]:
        """The body of the answer."""
        body: dict[str, object] = {
            "data": self.results,
            "success": True,
            "statusCode": 200,
            "message": "Permissions decided.",
        }
        if self.signature is not None:
            body["signature"] = self.signature
        return body


def read_entries(body: object, max_requests: int) -> list[RequestEntry | EntryError]:
    """Parses the requests of a body. Raises ``InvalidArgument`` if it is malformed, or has too many requests."""
    requests = requests_of(body)
    if len(requests) > max_requests:
        raise InvalidArgument(f"data.requests: must contain at most {max_requests} requests, not {len(requests)}")
    return [parse_entry(request) for request in requests]


def answer_entries(
    entries: Sequence[RequestEntry | EntryError], load: ViewLoader, now: datetime, policy: DecisionPolicy
) -> PermissionAnswer:
    """Decides all requests of a call at the moment ``now``.

    Raises ``Unavailable`` until the directory has been read for the first time. An empty model would deny everybody,
    and the backend would cache these answers; after an error it retries and denies only meanwhile.
    """
    view = _load(entries, load)
    answer = PermissionAnswer([])
    for item in entries:
        if type(item) is RequestEntry:
            answer.add(item, decide(view, item, now, policy))
        else:
            answer.add_error(item)
    return answer


def explain_entries(
    entries: Sequence[RequestEntry | EntryError],
    load: ViewLoader,
    origins_of: OriginsLoader,
    now: datetime,
    policy: DecisionPolicy,
) -> PermissionAnswer:
    """Decides the entries, with reasons.

    Results of parsed requests also have ``reason`` and ``path``, whose records have their ``origins``.
    """
    view = _load(entries, load)
    answer = PermissionAnswer([])
    explained: list[tuple[dict[str, object], Explanation]] = []
    for item in entries:
        if isinstance(item, EntryError):
            answer.add_error(item)
        else:
            explanation = explain(view, item, now, policy)
            result = answer.add(item, explanation.decision)
            result["reason"] = explanation.reason
            explained.append((result, explanation))
    origins = origins_of([record for _, explanation in explained for record in explanation.records])
    for result, explanation in explained:
        result["path"] = path_with_origins(explanation, origins)
    return answer


def _load(entries: Sequence[RequestEntry | EntryError], load: ViewLoader) -> AccessView:
    view = load([item for item in entries if type(item) is RequestEntry])
    if view.revision == 0:
        raise Unavailable("the directory has not been read yet; try again")
    return view


def _echo(item: RequestEntry | EntryError) -> dict[str, object]:
    return {
        "userId": item.user_id,
        "resourceId": item.resource_id,
        "type": item.type,
        "organizationId": item.organization_id,
    }
