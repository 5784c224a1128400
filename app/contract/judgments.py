"""Judgments: records of review decisions, found by meaning or by metadata."""

from datetime import UTC, datetime
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, StrictStr, model_validator

from app.contract import limits
from app.contract.base import AsWhole, EpochMs, Id, JsonObject, Request, Text, WireModel
from app.foundation.clock import epoch_ms

EmbeddingType = Literal["review", "content"]
SearchScope = Literal["document", "organization", "apiKey"]
JudgeType = Literal["human", "agent"]


def moment_ms(value: int | str) -> int:
    """Epoch milliseconds of a ``Moment``. ISO text without a zone is in UTC. Raises ``ValueError``."""
    if isinstance(value, int):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("must be an ISO 8601 time or epoch milliseconds") from None
    return epoch_ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _is_moment(value: int | str) -> int | str:
    moment_ms(value)
    return value


Moment = Annotated[
    EpochMs | Annotated[StrictStr, Field(max_length=64, json_schema_extra={"format": "date-time"})],
    AfterValidator(_is_moment),
]
"""Epoch milliseconds, or ISO 8601 text."""


class DateRange(Request):
    """A span of time. Either end may be open."""

    start: Moment | None = None
    end: Moment | None = None

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.start is not None and self.end is not None and moment_ms(self.start) > moment_ms(self.end):
            raise ValueError("start must not be after end")
        return self


class JudgmentFilters(Request):
    """Filters by fields of judgments."""

    decision: Text | None = None
    judge_type: JudgeType | None = None
    content_type: Text | None = None
    reviewer_id: Id | None = None
    annotation_id: Id | None = None
    date_range: DateRange | None = None


def _schema_of_ids(schema: JsonObject) -> None:
    schema["anyOf"] = [
        {"required": ["organizationId"], "properties": {"organizationId": {"type": "string"}}},
        {"properties": {"documentId": {"type": "null"}, "filters": {"properties": {"annotationId": {"type": "null"}}}}},
    ]
    schema["allOf"] = [
        {
            "anyOf": [
                {"required": [name], "properties": {name: {"type": "string"}}},
                {"properties": {"scope": {"not": {"const": scope}}}},
            ]
        }
        for scope, name in (("document", "documentId"), ("organization", "organizationId"))
    ]


class _AboutJudgments(Request):
    """Documents and threads require the organization. A scope requires its own id."""

    model_config = ConfigDict(json_schema_extra=_schema_of_ids)

    scope: SearchScope | None = None
    organization_id: Id | None = None
    document_id: Id | None = None
    filters: JudgmentFilters | None = None

    @model_validator(mode="after")
    def _check_ids(self) -> Self:
        if self.organization_id is None:
            if self.document_id is not None:
                raise ValueError("documentId requires organizationId")
            if self.filters is not None and self.filters.annotation_id is not None:
                raise ValueError("filters.annotationId requires organizationId")
        if self.scope == "document" and self.document_id is None:
            raise ValueError("scope document requires documentId")
        if self.scope == "organization" and self.organization_id is None:
            raise ValueError("scope organization requires organizationId")
        return self


class SearchJudgmentsRequest(_AboutJudgments):
    """``query`` is required even if it is ignored (``filters.annotationId``, ``recencyDays``)."""

    query: Annotated[Text, Field(min_length=1)]
    embedding_type: EmbeddingType | None = None
    limit: Annotated[int, Field(ge=1, le=limits.JUDGMENT_LIMIT_MAX), AsWhole] | None = None
    recency_days: Annotated[int, Field(ge=1, le=limits.RECENCY_DAYS_MAX), AsWhole] | None = None


class QueryJudgmentsRequest(_AboutJudgments):
    """A query by metadata, newest first."""

    limit: Annotated[int, Field(ge=1, le=limits.JUDGMENT_QUERY_LIMIT_MAX), AsWhole] | None = None


class Judgment(WireModel):
    """A judgment in a response. ``createdAt`` is epoch milliseconds. ``agent`` is the AI agent that decided, if any."""

    record_id: str
    reasoning: str | None = None
    decision: str | None = None
    confidence: int | float | None = None
    action_user: JsonObject | None = None
    created_at: int | float | None = None
    similarity: int | float | None = None
    scope: str | None = None
    agent: JsonObject | None = None


class JudgmentSearch(WireModel):
    """``result`` of Search Judgments."""

    results: list[Judgment]
    total_in_scope: int
    search_latency_ms: int | float
