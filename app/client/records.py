"""Records of ended calls, for observers of a client and for the thread that makes the calls."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

MAX_EXCERPT = 2000
"""Characters of a response in an excerpt."""

_MASKED_BYTES = 64 * 1024
"""Bytes of a response that are searched for secrets before it is cut."""

_FAILED_ITEM = re.compile(rb'"success"\s*:\s*false')


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """An ended call. Recording is cheap: the response becomes text only in ``excerpt``."""

    operation: str
    seconds: float
    http_status: int | None
    """The HTTP code of the last response. None if there was none."""
    tries: int
    succeeded: bool
    body: bytes = b""
    """The last response."""
    problem: str = ""
    """The error of the call. Empty if it succeeded."""
    mask: Callable[[str], str] = str
    """Removes credentials from a text."""

    @property
    def has_failures(self) -> bool:
        """Whether the call failed or its response contains failed items."""
        return bool(self.problem) or _FAILED_ITEM.search(self.body) is not None

    def excerpt(self) -> str:
        """The beginning of the response, or the error if there is none. Credentials are masked."""
        text = self.body[:_MASKED_BYTES].decode("utf-8", "replace").replace("\0", "\ufffd").strip() or self.problem
        return self.mask(text)[:MAX_EXCERPT]


Observer = Callable[[CallRecord], None]
"""Receives every ended call, in the thread that made it. Must not raise."""

_RECORDS: ContextVar[list[CallRecord] | None] = ContextVar("records", default=None)


@contextmanager
def recorded_calls() -> Iterator[list[CallRecord]]:
    """Yields a list to which this thread's calls are appended as they end."""
    records: list[CallRecord] = []
    token = _RECORDS.set(records)
    try:
        yield records
    finally:
        _RECORDS.reset(token)


def record_call(record: CallRecord) -> None:
    """Appends the record to the list of the innermost ``recorded_calls``, if there is one."""
    records = _RECORDS.get()
    if records is not None:
        records.append(record)
