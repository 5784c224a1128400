"""An in-memory source with a change log, which supports complete, incremental and partial reads, and faults.

It contains objects with their records. ``put`` and ``remove`` append to the log, and a cursor is a position in it.
``faults`` has one fault for each of the next reads.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum

from app.access.records import Record
from app.directory.source import (
    EVERYTHING,
    Answered,
    End,
    Found,
    Gone,
    Malformed,
    ObjectId,
    Origin,
    Reading,
    ReadRequest,
    Verdict,
)


class Fault(Enum):
    """The fault of one read."""

    CUT = "the connection was cut"
    """Yields half of the objects, and ends as failed."""
    PARTIAL = "a page was refused"
    """Yields half of the objects, and ends as partial."""
    MALFORMED = "an object was not understood"
    """Yields all objects but one, and ends as partial."""
    REFUSED = "the cursor is too old"
    """Rejects the cursor; a complete read succeeds."""
    BROKEN = "a defect"
    """Raises in the middle."""
    MOVED = "it changed while it was read"
    """Not a fault: calls ``meanwhile`` in the middle, and continues with the initial state."""


class ChangingSource:
    """The source. ``objects`` is its current state: object → records."""

    def __init__(self, name: str, *, reports_changes: bool = True, supports_parts: bool = True) -> None:
        self.name = name
        self.objects: dict[ObjectId, list[Record]] = {}
        self.faults: deque[Fault] = deque()
        self.asked: list[ReadRequest] = []
        """All read requests."""
        self.forgets_before = 0
        """Earlier cursors are rejected."""
        self._reports_changes = reports_changes
        self._supports_parts = supports_parts
        self._log: list[ObjectId] = []

    def put(self, object_id: str, *records: Record, object_set: str = "rows") -> None:
        """Adds an object, or replaces its records."""
        one = ObjectId(object_set, object_id)
        self.objects[one] = list(records)
        self._log.append(one)

    def remove(self, object_id: str, *, object_set: str = "rows") -> None:
        """Removes an object if it exists."""
        one = ObjectId(object_set, object_id)
        if self.objects.pop(one, None) is not None:
            self._log.append(one)

    def meanwhile(self) -> None:
        """Called in the middle of a read with ``Fault.MOVED``; tests replace it."""

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        """Reads with the next fault."""
        self.asked.append(request)
        fault = self.faults.popleft() if self.faults else None
        cursor = str(len(self._log)) if self._reports_changes else ""
        if request.since and self._reports_changes:
            if fault is Fault.REFUSED or int(request.since) < self.forgets_before:
                yield End(Verdict.FAILED, Fault.REFUSED.value, answered=Answered.CURSOR_REFUSED)
                return
            changed = sorted(set(self._log[int(request.since) :]))
            yield from self._yielded(changed, fault, End(Verdict.COMPLETE, "", cursor, Answered.CHANGES))
        elif request.part is not None and self._supports_parts:
            requests = {*request.part.objects, *self._about(request.part.organization_ids, request.part.user_ids)}
            yield from self._yielded(sorted(requests), fault, End(Verdict.COMPLETE, answered=Answered.PART))
        else:
            yield from self._yielded(sorted(self.objects), fault, End(Verdict.COMPLETE, "", cursor))

    def _about(self, organization_ids: Iterable[str], user_ids: Iterable[str]) -> Iterator[ObjectId]:
        wanted = {*organization_ids, *user_ids}
        for one, records in self.objects.items():
            if any(wanted & {*record.key[1:]} for record in records):
                yield one

    def _yielded(self, objects: list[ObjectId], fault: Fault | None, end: End) -> Reading:
        seen = {one: list(self.objects[one]) for one in objects if one in self.objects}
        for number, one in enumerate(objects):
            if number * 2 >= len(objects):
                if fault is Fault.BROKEN:
                    raise RuntimeError(Fault.BROKEN.value)
                if fault is Fault.CUT or fault is Fault.PARTIAL:
                    break
                if fault is Fault.MOVED:
                    fault = None
                    self.meanwhile()
            if fault is Fault.MALFORMED and number == 0:
                yield Malformed(f"{self.name}:{one.id}", Fault.MALFORMED.value)
                continue
            if one not in seen:
                yield Gone(one)
            for rule, record in enumerate(seen.get(one, ()), 1):
                yield Found(record, f"{self.name}:{one.id}", Origin(one, str(rule)))
        if fault is Fault.CUT:
            yield End(Verdict.FAILED, fault.value, answered=end.answered)
        elif fault is Fault.PARTIAL or (fault is Fault.MALFORMED and objects):
            yield End(Verdict.PARTIAL, fault.value, answered=end.answered)
        else:
            yield end
