"""The answer to one permission-provider call, which contains several permission requests.

All requests are decided from one revision of the access model, and answered in their order. A request that cannot be
parsed is answered with an ``error``. It does not affect the others.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from app.access.decision.decide import Decision, DecisionPolicy, QuestionLike, Rule, decide
from app.access.decision.explain import Explanation, explain
from app.access.decision.view import AccessView
from app.access.index.file import IndexDamagedError
from app.access.origins import Origins, path_with_origins
from app.access.records import Record
from app.contract.errors import InvalidArgument, Unavailable
from app.contract.permission_call import MalformedQuestion, Question, parse_question, requests_of
from app.foundation.clock import epoch_ms, parse_time
from app.foundation.database.programs import SchemaNewerError
from app.foundation.text import named

ViewOpener = Callable[[Sequence[QuestionLike], int], AbstractContextManager[AccessView]]
"""Opens the view of one revision for these requests, if possible not before the revision that is given."""

Picker = Callable[[Decision], bool]
"""Whether a decision is written to the decision log."""

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

    revision: int
    results: list[dict[str, object]] = field(default_factory=list)
    allowed: int = 0
    denied: dict[Rule, int] = field(default_factory=dict)
    """By rule."""
    errors: int = 0
    signature: str | None = None
    """Of the results, for an answer to a browser."""
    picked: list[tuple[Question, Decision]] = field(default_factory=list)
    """For the decision log."""

    def add(self, entry: Question, decision: Decision) -> dict[str, object]:
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

    def add_error(self, item: Question | MalformedQuestion) -> None:
        """Appends the error of a request that could not be parsed."""
        result = _echo(item)
        result["hasAccess"] = False
        result["error"] = item.error if isinstance(item, MalformedQuestion) else ""
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


def read_questions(body: object, max_requests: int) -> list[Question | MalformedQuestion]:
    """Parses the requests of a body. Raises ``InvalidArgument`` if it is malformed, or has too many requests."""
    requests = requests_of(body)
    if len(requests) > max_requests:
        raise InvalidArgument(f"data.requests: must contain at most {max_requests} requests, not {len(requests)}")
    return [parse_question(request) for request in requests]


def moment_of(body: Any) -> datetime | None:
    """``data.at`` in a body that has requests: the moment at which operators ask for decisions; None: now.

    Raises ``InvalidArgument``, also for fields of the body and of ``data`` that do not exist.
    """
    for name in body.keys() - {"data"}:
        raise InvalidArgument(f"{named(name, limit=80)}: not a field of this request; allowed: data")
    for name in body["data"].keys() - {"requests", "at"}:
        raise InvalidArgument(f"data.{named(name, limit=80)}: not a field of this request; allowed: requests, at")
    at = body["data"].get("at")
    if at is None:
        return None
    try:
        return parse_time(at)
    except ValueError as error:
        raise InvalidArgument(f"data.at: {error}") from error


def answer_questions(
    entries: Sequence[Question | MalformedQuestion],
    open_view: ViewOpener,
    now: datetime,
    policy: DecisionPolicy,
    *,
    min_revision: int = 0,
    pick: Picker | None = None,
) -> PermissionAnswer:
    """Decides all requests of a call at the moment ``now``, from a revision that is at least ``min_revision``.

    The decisions that ``pick`` accepts are also in ``picked``.

    Raises ``Unavailable`` if there is no such revision, and until the directory has been read for the first time. An
    empty model would deny everybody, and the backend would cache these answers; after an error it retries and denies
    only meanwhile.
    """
    with _opened(entries, open_view, min_revision) as view:
        answer = PermissionAnswer(view.revision)
        for item in entries:
            if type(item) is Question:
                decision = decide(view, item, now, policy)
                answer.add(item, decision)
                if pick is not None and pick(decision):
                    answer.picked.append((item, decision))
            else:
                answer.add_error(item)
    return answer


def explain_questions(
    entries: Sequence[Question | MalformedQuestion],
    open_view: ViewOpener,
    origins_of: OriginsLoader,
    now: datetime,
    policy: DecisionPolicy,
    *,
    min_revision: int = 0,
) -> PermissionAnswer:
    """Decides the entries, with reasons. Raises ``Unavailable`` as ``answer_questions``.

    Results of parsed requests also have ``reason`` and ``path``, whose records have their ``origins``.
    """
    explained: list[tuple[dict[str, object], Explanation]] = []
    with _opened(entries, open_view, min_revision) as view:
        answer = PermissionAnswer(view.revision)
        for item in entries:
            if isinstance(item, MalformedQuestion):
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


def require_revision(revision: int, min_revision: int) -> None:
    """Raises ``Unavailable`` before the first read of the directory, and for a revision that is too old."""
    if revision == 0:
        raise Unavailable("the directory has not been read yet; try again")
    if revision < min_revision:
        raise Unavailable(f"the access model is at revision {revision}, not {min_revision} yet; try again")


@contextmanager
def _opened(
    entries: Sequence[Question | MalformedQuestion], open_view: ViewOpener, min_revision: int
) -> Iterator[AccessView]:
    try:
        with open_view([item for item in entries if type(item) is Question], min_revision) as view:
            require_revision(view.revision, min_revision)
            yield view
    except IndexDamagedError as error:
        raise Unavailable("this node's index is damaged, and is built again; try again") from error
    except SchemaNewerError as error:
        raise Unavailable(str(error)) from error


def _echo(item: Question | MalformedQuestion) -> dict[str, object]:
    return {
        "userId": item.user_id,
        "resourceId": item.resource_id,
        "type": item.type,
        "organizationId": item.organization_id,
    }
