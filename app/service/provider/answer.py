"""The answer to one permission-provider call, which contains several questions.

All questions are decided from one revision of the access model, and answered in their order. A question that cannot be
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
"""Opens the view of one revision for these questions, if possible not before the revision that is given. In the
service: ``AccessIndex.view``."""

Picker = Callable[[Decision], bool]
"""Whether a decision is written to the decision log."""

OriginsLoader = Callable[[Sequence[Record]], Origins]
"""Finds the records of the sources behind records of the access model."""


class ProviderObserver(Protocol):
    """Observes every answered call."""

    def answered(self, allowed: int, denied: Mapping[Rule, int], errors: int, seconds: float) -> None:
        """Counts one call. ``denied`` is by rule. ``errors`` is the number of questions that could not be parsed."""
        ...


@dataclass(slots=True)
class PermissionAnswer:
    """The results of one call, in the order of its questions, and their numbers."""

    revision: int
    decided_at: datetime
    results: list[dict[str, object]] = field(default_factory=list)
    allowed: int = 0
    denied: dict[Rule, int] = field(default_factory=dict)
    """Rule → number of denials by it."""
    errors: int = 0
    signature: str | None = None
    """The signature of the results, for an answer to a browser."""
    picked: list[tuple[Question, Decision]] = field(default_factory=list)
    """The decisions for the decision log."""

    def add(self, question: Question, decision: Decision) -> dict[str, object]:
        """Appends the result of a decision, and returns it."""
        result = _question_fields(question)
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

    def add_error(self, question: MalformedQuestion) -> None:
        """Appends the error of a question that could not be parsed."""
        result = _question_fields(question)
        result["hasAccess"] = False
        result["error"] = question.error
        self.errors += 1
        self.results.append(result)

    def envelope(self) -> dict[str, object]:
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
    """Parses the questions of a body. Raises ``InvalidArgument`` if it is malformed, or has too many."""
    requests = requests_of(body)
    if len(requests) > max_requests:
        raise InvalidArgument(f"data.requests: must contain at most {max_requests} requests, not {len(requests)}")
    return [parse_question(request) for request in requests]


def requested_moment(body: Any) -> datetime | None:
    """``data.at`` of a body that ``read_questions`` has accepted: the moment of the decisions. None: now. Raises
    ``InvalidArgument``, also for unknown fields."""
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
    questions: Sequence[Question | MalformedQuestion],
    open_view: ViewOpener,
    now: datetime,
    policy: DecisionPolicy,
    *,
    min_revision: int = 0,
    pick: Picker | None = None,
) -> PermissionAnswer:
    """Decides all questions of a call at the moment ``now``, from a revision that is at least ``min_revision``.

    The decisions that ``pick`` accepts are also in ``picked``.

    Raises ``Unavailable`` if there is no such revision, and until the directory has been read for the first time. An
    empty model would deny everybody, and the backend would cache these answers. After an error it retries, and
    denies only meanwhile.
    """
    with _checked_view(questions, open_view, min_revision) as view:
        answer = PermissionAnswer(view.revision, now)
        for question in questions:
            if isinstance(question, Question):
                decision = decide(view, question, now, policy)
                answer.add(question, decision)
                if pick is not None and pick(decision):
                    answer.picked.append((question, decision))
            else:
                answer.add_error(question)
    return answer


def explain_questions(
    questions: Sequence[Question | MalformedQuestion],
    open_view: ViewOpener,
    find_origins: OriginsLoader,
    now: datetime,
    policy: DecisionPolicy,
    *,
    min_revision: int = 0,
) -> PermissionAnswer:
    """Decides the questions, with reasons. Raises ``Unavailable`` as ``answer_questions``. Results of parsed questions
    also have ``reason`` and ``path``, whose records have their ``origins``."""
    explained: list[tuple[dict[str, object], Explanation]] = []
    with _checked_view(questions, open_view, min_revision) as view:
        answer = PermissionAnswer(view.revision, now)
        for question in questions:
            if isinstance(question, MalformedQuestion):
                answer.add_error(question)
            else:
                explanation = explain(view, question, now, policy)
                result = answer.add(question, explanation.decision)
                result["reason"] = explanation.reason
                explained.append((result, explanation))
    origins = find_origins([record for _, explanation in explained for record in explanation.records])
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
def _checked_view(
    questions: Sequence[Question | MalformedQuestion], open_view: ViewOpener, min_revision: int
) -> Iterator[AccessView]:
    try:
        with open_view([question for question in questions if isinstance(question, Question)], min_revision) as view:
            require_revision(view.revision, min_revision)
            yield view
    except IndexDamagedError as error:
        raise Unavailable("this node's index cannot be read; try again") from error
    except SchemaNewerError as error:
        raise Unavailable(str(error)) from error


def _question_fields(question: Question | MalformedQuestion) -> dict[str, object]:
    """The fields of a result that repeat its question."""
    return {
        "userId": question.user_id,
        "resourceId": question.resource_id,
        "type": question.type,
        "organizationId": question.organization_id,
    }
