"""How does one permission-provider call become its answer?

The body's questions are read one by one, decided from one revision of the access model, and answered in their places. A
question that cannot be understood is answered with an ``error`` and costs its neighbours nothing.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from app.access.decide import Decision, DecisionPolicy, Question, decide
from app.access.explain import explain
from app.access.view import AccessView
from app.contract.errors import InvalidArgument, Unavailable
from app.contract.permission_call import Question as AskedQuestion
from app.contract.permission_call import QuestionError, parse_question, requests_of


class Snapshot(Protocol):
    """One revision of the access model."""

    @property
    def revision(self) -> int:
        """The revision's number; 0 before the directory was ever read."""
        ...

    def view(self, questions: Sequence[Question]) -> AccessView:
        """What the model says about these questions."""
        ...


class ViewLoader(Protocol):
    """Where the access model is read."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """The revision in force, for as long as the block takes."""
        ...


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
    asked: Sequence[AskedQuestion | QuestionError], loader: ViewLoader, now: datetime, policy: DecisionPolicy
) -> Answer:
    """Decides what was asked at the moment ``now``.

    Raises ``Unavailable`` while the directory was never read: an empty model would deny everybody, and the caller would
    keep that for an answer. So it is told to try again, and shuts everybody out by itself until then.
    """
    questions = [None if isinstance(item, QuestionError) else _question(item) for item in asked]
    with loader.snapshot() as snapshot:
        _refuse_never_read(snapshot)
        view = snapshot.view([question for question in questions if question is not None])
    answer = Answer([])
    for item, question in zip(asked, questions, strict=True):
        if question is None or isinstance(item, QuestionError):
            answer.add_error(item)
        else:
            answer.add(item, decide(view, question, now, policy))
    return answer


def explain_questions(
    asked: Sequence[AskedQuestion | QuestionError], loader: ViewLoader, now: datetime, policy: DecisionPolicy
) -> Answer:
    """The same with the reasons: each result that was understood also has ``reason`` and ``path``."""
    questions = {number: _question(item) for number, item in enumerate(asked) if type(item) is AskedQuestion}
    with loader.snapshot() as snapshot:
        _refuse_never_read(snapshot)
        view = snapshot.view(list(questions.values()))
    answer = Answer([])
    for number, item in enumerate(asked):
        if isinstance(item, QuestionError):
            answer.add_error(item)
        else:
            explanation = explain(view, questions[number], now, policy)
            result = answer.add(item, explanation.decision)
            result["reason"] = explanation.reason
            result["path"] = explanation.path
    return answer


def _refuse_never_read(snapshot: Snapshot) -> None:
    if snapshot.revision == 0:
        raise Unavailable("the directory was not read yet; try again")


def _question(asked: AskedQuestion) -> Question:
    return Question(
        user_id=asked.user_id,
        type=asked.resource_type,
        resource_id=asked.resource_id,
        organization_id=asked.organization_id,
        parent_folder_id=asked.parent_folder_id,
        context=asked.context or None,
    )


def _echo(item: AskedQuestion | QuestionError) -> dict[str, object]:
    return {
        "userId": item.user_id,
        "resourceId": item.resource_id,
        "type": item.resource_type,
        "organizationId": item.organization_id,
    }
