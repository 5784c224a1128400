"""The answer to one permission-provider call.

The body's questions are read one by one, decided from one revision of the access model, and answered in their order. A
question that cannot be understood is answered with an ``error`` and costs its neighbours nothing.
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
"""Loads the part of the current revision that these questions need."""


OriginsLoader = Callable[[Sequence[Record]], Origins]
"""Finds the rows of the sources behind records of the access model."""


class ProviderObserver(Protocol):
    """Observes every call that was answered."""

    def answered(self, allowed: int, denied: Mapping[Rule, int], errors: int, seconds: float) -> None:
        """One call: how many of its questions were allowed, denied by which rule, and could not be understood, and how
        long it took."""
        ...


@dataclass(slots=True)
class PermissionAnswer:
    """The results of one call, in the order of its questions, and how many there are of each sort."""

    results: list[dict[str, object]]
    allowed: int = 0
    denied: dict[Rule, int] = field(default_factory=dict)
    """By the rule that did it."""
    errors: int = 0
    signature: str | None = None
    """Over the results, for an answer that goes to a browser."""

    def add(self, question: RequestEntry, decision: Decision) -> dict[str, object]:
        """Appends the decision's result at its position, and returns it."""
        result = _echo(question)
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
        """Puts what was wrong with a question at its position."""
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
    """The questions of a decoded body. Raises ``InvalidArgument`` when there are too many or none can be read."""
    requests = requests_of(body)
    if len(requests) > max_requests:
        raise InvalidArgument(f"data.requests: must hold at most {max_requests} requests, not {len(requests)}")
    return [parse_entry(request) for request in requests]


def answer_entries(
    asked: Sequence[RequestEntry | EntryError], load: ViewLoader, now: datetime, policy: DecisionPolicy
) -> PermissionAnswer:
    """Decides all questions of a call at the moment ``now``.

    Raises ``Unavailable`` until the directory has been read for the first time. An empty model would deny everybody,
    and the backend would cache these answers; after an error it retries and denies only meanwhile.
    """
    view = _load(asked, load)
    answer = PermissionAnswer([])
    for item in asked:
        if type(item) is RequestEntry:
            answer.add(item, decide(view, item, now, policy))
        else:
            answer.add_error(item)
    return answer


def explain_entries(
    asked: Sequence[RequestEntry | EntryError],
    load: ViewLoader,
    origins_of: OriginsLoader,
    now: datetime,
    policy: DecisionPolicy,
) -> PermissionAnswer:
    """The same with the reasons: each result that was understood also has ``reason`` and ``path``, each record of which
    has its ``origins``."""
    view = _load(asked, load)
    answer = PermissionAnswer([])
    explained: list[tuple[dict[str, object], Explanation]] = []
    for item in asked:
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


def _load(asked: Sequence[RequestEntry | EntryError], load: ViewLoader) -> AccessView:
    view = load([item for item in asked if type(item) is RequestEntry])
    if view.revision == 0:
        raise Unavailable("the directory was not read yet; try again")
    return view


def _echo(item: RequestEntry | EntryError) -> dict[str, object]:
    return {
        "userId": item.user_id,
        "resourceId": item.resource_id,
        "type": item.type,
        "organizationId": item.organization_id,
    }
