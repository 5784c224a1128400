"""The input model of a judgment."""

from typing import Annotated, Any

from pydantic import Field, ValidationError

from app.backend.storage import json_columns
from app.contract.base import Id, JsonObject, LongText, Request, Text
from app.contract.errors import InvalidArgument
from app.contract.judgments import JudgeType, Moment, moment_ms
from app.contract.validation import first_error


def review_text(decision: str, reasoning: object) -> str:
    """The text of the embedding type ``review``."""
    return f"{decision}. {reasoning}" if reasoning else decision


class JudgmentInput(Request):
    """A judgment to write. It replaces the stored one with the same ``recordId``."""

    record_id: Id
    organization_id: Id
    document_id: Id | None = None
    annotation_id: Id | None = None
    decision: Annotated[Text, Field(min_length=1)]
    reasoning: LongText | None = None
    confidence: int | float | None = None
    action_user: JsonObject | None = None
    reviewer_id: Id | None = None
    """Default: ``actionUser.userId``."""
    judge_type: JudgeType | None = None
    """Default: ``agent`` if there is an ``agent``, else ``human``."""
    agent: JsonObject | None = None
    content_type: Text | None = None
    content: LongText | None = None
    """The reviewed text, which is the text of the embedding type ``content``."""
    created_at: Moment | None = None
    """Default: now."""

    @property
    def judged_by(self) -> JudgeType:
        return self.judge_type or ("human" if self.agent is None else "agent")

    @property
    def reviewer(self) -> str:
        """The id of the reviewer, or an empty string."""
        if self.reviewer_id is not None:
            return self.reviewer_id
        user_id = (self.action_user or {}).get("userId")
        return user_id if isinstance(user_id, str) else ""

    def created(self, now: int) -> int:
        """The time of creation in epoch milliseconds."""
        return now if self.created_at is None else moment_ms(self.created_at)

    @property
    def payload(self) -> dict[str, object]:
        """The fields that have no column, with the undeclared ones."""
        user = dict(self.action_user or {})
        if "name" not in user and self.reviewer:
            user["name"] = self.reviewer
        return self.unknown_fields() | json_columns.without_none(
            reasoning=self.reasoning,
            confidence=self.confidence,
            actionUser=user or None,
            agent=self.agent,
            content=self.content,
        )


def parse_judgment(record: dict[Any, Any]) -> JudgmentInput:
    """Parses a decoded JSON object. Raises ``InvalidArgument`` with the path of the field."""
    try:
        return JudgmentInput.from_wire(record)
    except ValidationError as error:
        raise InvalidArgument(first_error(error, record, root="")) from error
