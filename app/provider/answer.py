"""How does one permission-provider call become its answer?

The body's questions are read one by one, decided from one revision of the access model, and answered in their places. A
question that cannot be understood is answered with an ``error`` and costs its neighbours nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from app.access.decide import Asked, Decision, DecisionPolicy, decide
from app.access.explain import explain
from app.access.view import AccessView
from app.contract.errors import InvalidArgument, Unavailable
from app.contract.permission_call import Question as AskedQuestion
from app.contract.permission_call import QuestionError, parse_question, requests_of

ViewLoader = Callable[[Sequence[Asked]], AccessView]
"""Loads what the revision in force says about these questions."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class ProviderObserver(Protocol):
    """Is told of every call that was answered."""

    def answered(self, decisions_allowed: int, decisions_denied: int, errors: int, seconds: float) -> None:
        """One call: how its questions came out (``errors``: could not be understood), and how long it took."""
        ...


@dataclass(slots=True)
class Answer:
    """The results of one call, in the order of its questions, and how many there are of each sort."""

    results: list[dict[str, object]]
    allowed: int = 0
    denied: int = 0
    errors: int = 0

    def add(self, question: AskedQuestion, decision: Decision) -> dict[str, object]:
        """Puts the decision in its place, and gives the result for what else is to be said."""
        result = _echo(question)
        result["hasAccess"] = decision.has_access
        if decision.has_access:
            self.allowed += 1
        else:
            self.denied += 1
        if decision.access_role is not None:
            result["accessRole"] = decision.access_role.value
        if decision.expires_at is not None:
            result["expiresAt"] = (decision.expires_at - _EPOCH) // _MILLISECOND
        self.results.append(result)
        return result

    def add_error(self, item: AskedQuestion | QuestionError) -> None:
        """Puts what was wrong with a question in its place."""
        result = _echo(item)
        result["hasAccess"] = False
        result["error"] = item.error if isinstance(item, QuestionError) else ""
        self.errors += 1
        self.results.append(result)

    def envelope(self) -> dict[str, object]:
        """The body of the answer."""
        return {"data": self.results, "success": True, "statusCode": 200, "message": "Permissions decided."}


def read_questions(body: object, max_requests: int) -> list[AskedQuestion | QuestionError]:
    """The questions of a decoded body. Raises ``InvalidArgument`` when there are too many or none can be read."""
    requests = requests_of(body)
    if len(requests) > max_requests:
        raise InvalidArgument(f"data.requests: must hold at most {max_requests} requests, not {len(requests)}")
    return [parse_question(request) for request in requests]


def answer_questions(
    asked: Sequence[AskedQuestion | QuestionError], load: ViewLoader, now: datetime, policy: DecisionPolicy
) -> Answer:
    """Decides what was asked at the moment ``now``.

    Raises ``Unavailable`` while the directory was never read: an empty model would deny everybody, and the caller would
    keep that for an answer. So it is told to try again, and shuts everybody out by itself until then.
    """
    view = _load(asked, load)
    answer = Answer([])
    for item in asked:
        if type(item) is AskedQuestion:
            answer.add(item, decide(view, item, now, policy))
        else:
            answer.add_error(item)
    return answer


def explain_questions(
    asked: Sequence[AskedQuestion | QuestionError], load: ViewLoader, now: datetime, policy: DecisionPolicy
) -> Answer:
    """The same with the reasons: each result that was understood also has ``reason`` and ``path``."""
    view = _load(asked, load)
    answer = Answer([])
    for item in asked:
        if isinstance(item, QuestionError):
            answer.add_error(item)
        else:
            explanation = explain(view, item, now, policy)
            result = answer.add(item, explanation.decision)
            result["reason"] = explanation.reason
            result["path"] = explanation.path
    return answer


def _load(asked: Sequence[AskedQuestion | QuestionError], load: ViewLoader) -> AccessView:
    view = load([item for item in asked if type(item) is AskedQuestion])
    if view.revision == 0:
        raise Unavailable("the directory was not read yet; try again")
    return view


def _echo(item: AskedQuestion | QuestionError) -> dict[str, object]:
    return {
        "userId": item.user_id,
        "resourceId": item.resource_id,
        "type": item.type,
        "organizationId": item.organization_id,
    }
