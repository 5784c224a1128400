"""In what do answers travel?

A success is `{"result": {"status": "success", "message": ..., "data": ...}}`, with the token of the next page
beside `data`. The reference has oddities, and each operation of the table says which are its own: a few put
the token under `pageToken` instead of `nextPageToken`, Search Judgments has its fields in `result` itself
without status and message, and Add CRDT Data has no `data`. A failure is `{"error": {"status", "message"}}`,
see `errors`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from app.contract.base import ItemResult, wire_value
from app.contract.errors import ContractError

ResultT = TypeVar("ResultT")

TokenField = Literal["nextPageToken", "pageToken"]
ABSENT = object()
"""Marks an answer that has no `data` at all, which is not the same as `data: null`."""


class SuccessResult(BaseModel):
    """`result` of a success, except where the operation says otherwise."""

    model_config = ConfigDict(extra="allow")

    status: Literal["success"]
    message: str
    data: JsonValue = None
    next_page_token: str | None = Field(default=None, alias="nextPageToken")
    page_token: str | None = Field(default=None, alias="pageToken")


class SuccessEnvelope(BaseModel):
    """The body of a success."""

    model_config = ConfigDict(extra="allow")

    result: SuccessResult


class ErrorInfo(BaseModel):
    """`error` of a failure. `details` maps item ids to what became of each item."""

    model_config = ConfigDict(extra="allow")

    status: str
    message: str
    code: int | None = None
    details: dict[str, ItemResult] | None = None


class FailureEnvelope(BaseModel):
    """The body of a failure."""

    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class Answer(Generic[ResultT]):
    """A success as the caller of an operation gets it. `next_page_token` is None on the last page."""

    data: ResultT
    message: str = ""
    next_page_token: str | None = None
    repeated_blindly: bool = False
    """Whether it answers a repetition: an earlier try had an unknown outcome. What this answer says was not done may
    have been done by that one."""


def success(
    message: str,
    data: object = ABSENT,
    *,
    next_page_token: str | None = None,
    token_field: TokenField = "nextPageToken",  # noqa: S107 - the name of a field, no secret
) -> dict[str, object]:
    """The body of a success. Models in `data`, at any depth, become JSON objects; a token of None is left
    out."""
    result: dict[str, object] = {"status": "success", "message": message}
    if data is not ABSENT:
        result["data"] = wire_value(data)
    if next_page_token is not None:
        result[token_field] = next_page_token
    return {"result": result}


def bare(result: object) -> dict[str, object]:
    """The body of a success whose fields stand in `result` itself (Search Judgments)."""
    return {"result": wire_value(result)}


def item_failures(error: ContractError) -> dict[str, ItemResult]:
    """What became of each item, where a failure tells (`error.details`); entries that cannot be read are left
    out."""
    results: dict[str, ItemResult] = {}
    if isinstance(error.details, Mapping):
        for item_id, value in error.details.items():
            try:
                results[item_id] = ItemResult.from_wire(value)
            except ValidationError:
                continue
    return results
