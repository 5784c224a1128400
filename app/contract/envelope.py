"""The envelopes of responses.

A success is ``{"result": {"status": "success", "message": ..., "data": ...}}``, with the token of the next page beside
``data``. Rows of the table of operations state exceptions: the token may be named ``pageToken``, Search Judgments has
its fields in ``result`` itself, and some operations have no ``data``. A failure is ``{"error": {"status",
"message"}}`` (see ``errors``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from app.contract.base import ItemResult

ResultT = TypeVar("ResultT")

TokenField = Literal["nextPageToken", "pageToken"]


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
    """A parsed success. ``next_page_token`` is None on the last page."""

    data: ResultT
    message: str = ""
    next_page_token: str | None = None
    items: Mapping[str, ItemResult] | None = None
    """Outcomes of single items in a response whose operation does not promise them."""
    maybe_applied_earlier: bool = False
    """Whether an earlier try had an unknown outcome. It may have processed items that this response rejects."""
