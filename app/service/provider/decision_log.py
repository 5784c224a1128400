"""The decision log: one JSON object per line for each decision of a permission call, or for a sample of them.

Each process appends whole lines to the same file. After a rename of the file, the next line creates it again. A log
that cannot be written does not affect answers.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from threading import Lock

import orjson
import structlog

from app.access.decision.decide import Decision
from app.contract.permission_call import RequestEntry
from app.foundation.clock import utc_text
from app.foundation.files import make_folder
from app.service.provider.settings import DecisionLogSettings

STDOUT = "-"
"""The setting for standard output instead of a file."""
_STDOUT_DESCRIPTOR = 1

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_REPORT_AGAIN = 60.0
"""Seconds between two warnings that the log cannot be written."""


class DecisionLog:
    """Writes decisions to a file or to standard output. It is thread-safe and never raises."""

    def __init__(self, settings: DecisionLogSettings, *, random: Callable[[], float]) -> None:
        """``random`` returns numbers from 0 to 1."""
        self._path = None if settings.path == STDOUT else Path(settings.path)
        self._sample = settings.sample
        self._denies_only = settings.denies_only
        self._random = random
        self._lock = Lock()
        self._descriptor = _STDOUT_DESCRIPTOR if self._path is None else -1
        """-1: the file is not open."""
        self._reported: datetime | None = None
        """When the last warning was written."""

    def picks(self, decision: Decision) -> bool:
        """Whether this decision is written."""
        if self._denies_only and decision.has_access:
            return False
        return self._sample == 1 or self._random() < self._sample

    def write(
        self, decisions: Sequence[tuple[RequestEntry, Decision]], now: datetime, revision: int, request_id: str | None
    ) -> None:
        """Appends a line for each decision that was made at the moment ``now``."""
        head = {"time": utc_text(now), "requestId": request_id, "revision": revision}
        lines = b"".join(
            orjson.dumps(head | _fields(entry, decision), option=orjson.OPT_APPEND_NEWLINE)
            for entry, decision in decisions
        )
        try:
            with self._lock:
                descriptor = self._open()
                while lines:
                    lines = lines[os.write(descriptor, lines) :]
        except OSError as error:
            if self._reported is None or (now - self._reported).total_seconds() >= _REPORT_AGAIN:
                self._reported = now
                structlog.stdlib.get_logger(__name__).warning(
                    "decision_log_not_written", path=str(self._path or STDOUT), cause=error.strerror
                )

    def _open(self) -> int:
        """The descriptor of the file that has the path now."""
        if self._path is None:
            return self._descriptor
        if self._descriptor >= 0:
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._descriptor), self._path.stat()):
                    return self._descriptor
            os.close(self._descriptor)
            self._descriptor = -1
        make_folder(self._path.parent)
        self._descriptor = os.open(self._path, _FLAGS, 0o600)
        return self._descriptor


def _fields(entry: RequestEntry, decision: Decision) -> dict[str, object]:
    fields: dict[str, object] = {
        "userId": entry.user_id,
        "type": entry.type,
        "resourceId": entry.resource_id,
        "organizationId": entry.organization_id,
        "hasAccess": decision.has_access,
        "rule": decision.rule.value,
    }
    if entry.type == "context":
        fields["context"] = dict(entry.context)
    if decision.access_role is not None:
        fields["accessRole"] = decision.access_role.value
    if decision.expires_at is not None:
        fields["expiresAt"] = utc_text(decision.expires_at)
    return fields
