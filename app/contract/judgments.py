"""Judgments: records of review decisions, found by meaning or by metadata."""

from datetime import UTC, datetime
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, StrictStr, model_validator

from app.clock import epoch_ms
from app.contract import limits
from app.contract.base import AsWhole, EpochMs, Id, JsonObject, Request, Text, WireModel

EmbeddingType = Literal["review", "content"]
SearchScope = Literal["document", "organization", "apiKey"]
JudgeType = Literal["human", "agent"]


def _a_moment(value: int | str) -> int | str:
    moment_ms(value)
    return value


Moment = Annotated[
    EpochMs | Annotated[StrictStr, Field(max_length=64, json_schema_extra={"format": "date-time"})],
    AfterValidator(_a_moment),
]
"""Epoch milliseconds, or ISO 8601 text."""


def moment_ms(value: int | str) -> int:
    """Epoch milliseconds of a ``Moment``. ISO text without a zone is in UTC. Raises ``ValueError``."""
    if isinstance(value, int):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("must be an ISO 8601 time or epoch milliseconds") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return epoch_ms(moment)


class DateRange(Request):
    """A span of time, either end of which may be open."""

    start: Moment | None = None
    end: Moment | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.start is not None and self.end is not None and moment_ms(self.start) > moment_ms(self.end):
            raise ValueError("start must not be after end")
        return self


class JudgmentFilters(Request):
    """Filters a search by fields of judgments."""

    decision: Text | None = None
    judge_type: JudgeType | None = None
    content_type: Text | None = None
    reviewer_id: Id | None = None
    annotation_id: Id | None = None
    date_range: DateRange | None = None


_NEEDED = {"document": "documentId", "organization": "organizationId"}
"""The field that a scope requires."""


def _needs_an_organization(schema: JsonObject) -> None:
    has_organization: JsonObject = {
        "required": ["organizationId"],
        "properties": {"organizationId": {"type": "string"}},
    }
    needs_none: JsonObject = {
        "properties": {
            "documentId": {"type": "null"},
            "filters": {"properties": {"annotationId": {"type": "null"}}},
        }
    }
    schema["anyOf"] = [has_organization, needs_none]
    schema["allOf"] = [
        {"anyOf": [{"required": [name], "properties": {name: {"type": "string"}}}, _other_scope_than(scope)]}
        for scope, name in _NEEDED.items()
    ]


def _other_scope_than(scope: str) -> JsonObject:
    return {"properties": {"scope": {"not": {"const": scope}}}}


class _AboutJudgments(Request):
    """A document, and a comment thread, are found through their organization; a scope needs the id of what it is."""

    model_config = ConfigDict(json_schema_extra=_needs_an_organization)

    scope: SearchScope | None = None
    organization_id: Id | None = None
    document_id: Id | None = None
    filters: JudgmentFilters | None = None

    @model_validator(mode="after")
    def _has_an_organization(self) -> Self:
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
    """By metadata alone, newest first."""

    limit: Annotated[int, Field(ge=1, le=limits.JUDGMENT_QUERY_LIMIT_MAX), AsWhole] | None = None


class Judgment(WireModel):
    """A judgment as it is found. ``createdAt`` is epoch milliseconds, ``agent`` is there when an AI agent made
    the decision."""

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
    """The whole of ``result`` in Search Judgments."""

    results: list[Judgment]
    total_in_scope: int
    search_latency_ms: int | float
