"""The envelopes of responses.

A success is ``{"result": {"status": "success", "message": ..., "data": ...}}``, with the token of the next page
beside ``data``. Some operations differ, as their rows of the table state: a few name the token ``pageToken`` instead
of ``nextPageToken``, Search Judgments has its fields in ``result`` itself without status and message, and Add CRDT
Data has no ``data``. A failure is ``{"error": {"status", "message"}}``,
see ``errors``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from app.contract.base import ItemResult, wire_value

ResultT = TypeVar("ResultT")

TokenField = Literal["nextPageToken", "pageToken"]
ABSENT = object()
"""Marks an answer that has no ``data`` at all, which is not the same as ``data: null``."""


class ErrorInfo(BaseModel):
    """``error`` of a failure. ``details`` maps item ids to their outcome."""

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
    """A success as the caller of an operation gets it. ``next_page_token`` is None on the last page."""

    data: ResultT
    message: str = ""
    next_page_token: str | None = None
    items: Mapping[str, ItemResult] | None = None
    """Outcomes of single items that the response contains although the operation does not promise them."""
    repeated_blindly: bool = False
    """Whether an earlier try had an unknown outcome. Items that this response rejects may have been processed by that
    try."""


def success(
    message: str,
    data: object = ABSENT,
    *,
    next_page_token: str | None = None,
    token_field: TokenField = "nextPageToken",  # noqa: S107 - the name of a field, no secret
) -> dict[str, object]:
    """The body of a success. Models in ``data``, at any depth, become JSON objects; a token of None is left
    out."""
    result: dict[str, object] = {"status": "success", "message": message}
    if data is not ABSENT:
        result["data"] = wire_value(data)
    if next_page_token is not None:
        result[token_field] = next_page_token
    return {"result": result}


def bare(result: object) -> dict[str, object]:
    """The body of a success whose fields are in ``result`` itself (Search Judgments)."""
    return {"result": wire_value(result)}
