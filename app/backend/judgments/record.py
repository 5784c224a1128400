"""A judgment's record, as it comes in and as it is given back."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, ValidationError

from app.backend.storage import json_sets
from app.contract.base import Id, JsonObject, LongText, Request, Text
from app.contract.errors import InvalidArgument
from app.contract.judgments import JudgeType, Moment, moment_ms
from app.contract.storable import refuse_unstorable
from app.contract.validation import first_error


def review_text(decision: str, reasoning: object) -> str:
    """What is searched with the embedding type ``review``."""
    return f"{decision}. {reasoning}" if reasoning else decision


class JudgmentInput(Request):
    """A judgment as it is written. One whose ``recordId`` exists takes its place.

    Without ``judgeType`` it is an agent's when ``agent`` tells which, else a human's; without ``reviewerId`` the
    reviewer is ``actionUser.userId``; without ``createdAt`` it was made now.
    """

    record_id: Id
    organization_id: Id
    document_id: Id | None = None
    annotation_id: Id | None = None
    decision: Annotated[Text, Field(min_length=1)]
    reasoning: LongText | None = None
    confidence: int | float | None = None
    action_user: JsonObject | None = None
    reviewer_id: Id | None = None
    judge_type: JudgeType | None = None
    agent: JsonObject | None = None
    content_type: Text | None = None
    content: LongText | None = None
    """What was reviewed; searched with the embedding type ``content``."""
    created_at: Moment | None = None

    @property
    def review_text(self) -> str:
        return review_text(self.decision, self.reasoning)

    @property
    def judged_by(self) -> JudgeType:
        return self.judge_type or ("human" if self.agent is None else "agent")

    @property
    def reviewer(self) -> str:
        """Empty when nobody says who it was."""
        if self.reviewer_id is not None:
            return self.reviewer_id
        user_id = (self.action_user or {}).get("userId")
        return user_id if isinstance(user_id, str) else ""

    def created(self, now: int) -> int:
        """When it was made, in epoch milliseconds."""
        return now if self.created_at is None else moment_ms(self.created_at)

    @property
    def payload(self) -> dict[str, object]:
        """What is told of it but not searched by, with the fields that nobody declared."""
        user = dict(self.action_user or {})
        if "name" not in user and self.reviewer:
            user["name"] = self.reviewer
        return self.unknown_fields() | json_sets.without_none(
            reasoning=self.reasoning,
            confidence=self.confidence,
            actionUser=user or None,
            agent=self.agent,
            content=self.content,
        )


def parse_judgment(record: Mapping[str, object]) -> JudgmentInput:
    """The judgment in a decoded JSON object. Raises ``InvalidArgument`` that names the field
    (``judgment.decision: …``)."""
    refuse_unstorable(dict(record.items()))
    try:
        return JudgmentInput.from_wire({**record})
    except ValidationError as error:
        raise InvalidArgument(first_error(error, {**record}, root="judgment")) from error
