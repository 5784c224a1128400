"""The decision log: one JSON object per line for each decision of a permission call, or for a sample of them.

Each process appends whole lines to the same file. After a rename of the file, the next line creates it again.

Requests only add lines to a queue. One thread per process writes them, because a file or a pipe can block for any time.
If the queue is full, lines are dropped and counted. So the log does not affect answers.
"""

import atexit
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from threading import Condition, Thread

import orjson
import structlog

from app.access.decision.decide import Decision
from app.contract.permission_call import Question
from app.foundation.clock import utc_text
from app.foundation.files import make_folder
from app.service.provider.settings import DecisionLogSettings

_log = structlog.stdlib.get_logger(__name__)

STDOUT = "-"
"""The setting for standard output instead of a file."""
_STDOUT_DESCRIPTOR = 1

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_MAX_QUEUED = 8 * 1024 * 1024
"""The most bytes in the queue of a process: about 30,000 lines. An empty queue accepts the lines of any call."""
_GATHER_SECONDS = 0.1
"""Seconds for which the writer waits for lines of further calls: each change of threads takes longer than a line."""
_FLUSH_TIMEOUT = 2.0
"""Seconds that the end of the process waits for the queue."""
_WARNING_INTERVAL = 60.0
"""Seconds between two warnings that lines were not written."""
_BLOCKED = "the log does not accept lines fast enough"


class DecisionLog:
    """Writes decisions to a file or to standard output. It is thread-safe, never raises and never blocks."""

    def __init__(self, settings: DecisionLogSettings, *, random: Callable[[], float]) -> None:
        """``random`` returns numbers from 0 to 1."""
        self._path = None if settings.path == STDOUT else Path(settings.path)
        self._sample = settings.sample
        self._denies_only = settings.denies_only
        self._random = random
        self._changed = Condition()
        """Protects the fields of the queue and of the warnings."""
        self._queue: deque[tuple[datetime, bytes]] = deque()
        """The lines of each call and the moment of its decisions."""
        self._is_flushed = False
        """Whether lines are written without waiting for more."""
        self._queued = 0
        """Bytes in the queue."""
        self._writer: Thread | None = None
        """Starts with the first line, because threads do not survive a fork."""
        self._lost = 0
        """Lines that were not written since the last warning."""
        self._is_warning = False
        self._descriptor = _STDOUT_DESCRIPTOR if self._path is None else -1
        """-1: the file is not open."""
        self._warned_at: datetime | None = None
        """When the last warning was written."""
        self._is_torn = False
        """Whether the file ends with a part of a line."""

    def picks(self, decision: Decision) -> bool:
        if self._denies_only and decision.has_access:
            return False
        return self._sample == 1 or self._random() < self._sample

    def write(
        self, decisions: Sequence[tuple[Question, Decision]], now: datetime, revision: int, request_id: str | None
    ) -> None:
        """Queues a line for each decision that was made at the moment ``now``."""
        head = {"time": utc_text(now), "requestId": request_id, "revision": revision}
        lines = b"".join(
            orjson.dumps(head | _fields(question, decision), option=orjson.OPT_APPEND_NEWLINE)
            for question, decision in decisions
        )
        with self._changed:
            if self._queue and self._queued + len(lines) > _MAX_QUEUED:
                self._count_lost(len(decisions), now, _BLOCKED)
                return
            self._queue.append((now, lines))
            self._queued += len(lines)
            if self._writer is None:
                # Without a thread, lines stay in the queue. The next call tries again.
                with suppress(RuntimeError):
                    self._start_writer()
            if len(self._queue) == 1:
                self._changed.notify_all()

    def flush(self, timeout: float = _FLUSH_TIMEOUT) -> bool:
        """Waits until the queue is empty and no warning is being written. False if it takes longer, in seconds."""
        with self._changed:
            self._is_flushed = True
            self._changed.notify_all()
            is_empty = self._changed.wait_for(lambda: not self._queue and not self._is_warning, timeout)
            self._is_flushed = False
            return is_empty

    def _start_writer(self) -> None:
        writer = Thread(target=self._write_queue, name="decision-log", daemon=True)
        writer.start()
        self._writer = writer
        atexit.register(self._end)

    def _end(self) -> None:
        """Writes what is queued at the end of the process, and reports what is lost."""
        self.flush()
        with self._changed:
            lost = self._lost + sum(lines.count(b"\n") for _, lines in self._queue)
        if lost:
            self._warn(lost, _BLOCKED if self._queue else "as in the last warning")

    def _write_queue(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue)
                self._changed.wait_for(lambda: self._is_flushed, _GATHER_SECONDS)
                entries = list(self._queue)
            lines = b"".join(lines for _, lines in entries)
            self._append(lines, entries[-1][0])
            with self._changed:
                for _ in entries:
                    self._queue.popleft()
                self._queued -= len(lines)
                self._changed.notify_all()

    def _append(self, lines: bytes, now: datetime) -> None:
        rest = lines
        try:
            descriptor = self._open()
            if self._is_torn:
                os.write(descriptor, b"\n")
                self._is_torn = False
            while rest:
                written = os.write(descriptor, rest)
                self._is_torn = rest[written - 1 : written] != b"\n"
                rest = rest[written:]
        except Exception as error:  # noqa: BLE001 - whatever it is, the thread must not end
            with self._changed:
                self._count_lost(rest.count(b"\n"), now, getattr(error, "strerror", None) or type(error).__name__)

    def _count_lost(self, lines: int, now: datetime, cause: str) -> None:
        """Counts lines that are not written, and starts a warning if none was written in the last minute."""
        self._lost += lines
        is_recent = self._warned_at is not None and (now - self._warned_at).total_seconds() < _WARNING_INTERVAL
        if self._is_warning or is_recent:
            return
        # In its own thread, because the service's log may be blocked as well.
        with suppress(RuntimeError):
            Thread(target=self._report, args=(self._lost, cause), name="decision-log-warning", daemon=True).start()
            self._is_warning, self._warned_at, self._lost = True, now, 0

    def _report(self, lost: int, cause: str) -> None:
        self._warn(lost, cause)
        with self._changed:
            self._is_warning = False
            self._changed.notify_all()

    def _warn(self, lost: int, cause: str) -> None:
        _log.warning("decision_log_not_written", path=str(self._path or STDOUT), lines=lost, cause=cause)

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
        self._is_torn = False
        return self._descriptor


def _fields(question: Question, decision: Decision) -> dict[str, object]:
    fields: dict[str, object] = {
        "userId": question.user_id,
        "type": question.type,
        "resourceId": question.resource_id,
        "organizationId": question.organization_id,
        "hasAccess": decision.has_access,
        "rule": decision.rule.value,
    }
    if question.type == "context":
        fields["context"] = dict(question.context)
    if decision.access_role is not None:
        fields["accessRole"] = decision.access_role.value
    if decision.expires_at is not None:
        fields["expiresAt"] = utc_text(decision.expires_at)
    return fields
