"""Reads sources concurrently into a refresh, each with the request that it needs.

The rules: ``app/sync/runs/README.md``, "Requests to sources".
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Protocol

from app.access.problem_list import ProblemList
from app.access.problems import Problem, ProblemSort
from app.access.refresh.reads import ReadResult
from app.access.refresh.staging import Staging
from app.access.source_tables import origin_text
from app.directory.bounded import BoundedSource, ParallelReads, Policy
from app.directory.source import (
    EVERYTHING,
    Answered,
    End,
    Found,
    Gone,
    Malformed,
    ObjectId,
    Part,
    ReadRequest,
    Remark,
    Source,
    Verdict,
)
from app.foundation.clock import EPOCH, Clock, epoch_ms
from app.sync.plan.selection import Selection

_PROGRESS_STEP = 1_000


class ReadingProgress(Protocol):
    """Receives the number of records read."""

    def advance(self, n: int) -> None:
        """``n`` more records were read."""


def policy_of(source: Source) -> Policy:
    return source.policy if isinstance(source, BoundedSource) else Policy()


class _Stage(Enum):
    """The current request to a source.

    If the cursor of ``CHANGES`` is refused, ``EVERYTHING`` follows. If the end of a complete read has a cursor,
    ``CHANGES_MEANWHILE`` follows. Otherwise the read is closed.
    """

    EVERYTHING = 1
    CHANGES = 2
    PART = 3
    CHANGES_MEANWHILE = 4
    """The changes since the beginning of a complete read."""


@dataclass
class SourceRead:
    """The read of one source."""

    source: Source
    position: int
    stage: _Stage
    problems: ProblemList = field(default_factory=ProblemList)
    malformed: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    gone: int = 0
    without_origin: bool = False
    """Whether any record lacks its origin."""
    began: datetime = EPOCH
    cursor_refused: str = ""
    """Why the source refused its cursor. Empty if it did not."""
    complete_end: End | None = None
    """The end of the complete read, while later changes are read."""
    complete_kinds: Counter[str] = field(default_factory=Counter)

    @property
    def records(self) -> int:
        return self.kinds.total()


@dataclass(kw_only=True)
class SourceReads:
    """Reads sources concurrently into a refresh."""

    staging: Staging
    clock: Clock
    progress: ReadingProgress | None
    selection: Selection | None
    full: Collection[str]
    """The names of sources that are read completely."""
    _unreported: int = field(default=0, init=False)

    def read(self, sources: Mapping[int, Source]) -> list[SourceRead]:
        """Stages the records of the sources (position → source). Returns the reads in order."""
        reads: dict[int, SourceRead] = {}
        with ParallelReads() as parallel:
            for position, source in sources.items():
                stage, request = self._request(position, source)
                reads[position] = SourceRead(source, position, stage, began=self.clock())
                parallel.begin(position, source, request)
            for position, steps in parallel.steps():
                read = reads[position]
                for step in steps:
                    request_after = self._take(read, step)
                    if request_after is not None:
                        parallel.begin(position, read.source, request_after)
                self._report_progress(_PROGRESS_STEP)
        self._report_progress(1)
        return list(reads.values())

    def _request(self, position: int, source: Source) -> tuple[_Stage, ReadRequest]:
        """The request to a source: a part, the changes since its cursor, or everything."""
        begun, policy = self.staging.started(position), policy_of(source)
        if self.selection is not None:
            organization_ids, user_ids = self.selection.organization_ids, self.selection.user_ids
            objects = self.staging.find_objects(position, organization_ids, user_ids)
            if objects is not None:
                known = tuple(ObjectId(*key) for key in objects)
                aliases = tuple(self.staging.find_aliases(user_ids)) if user_ids else ()
                return _Stage.PART, ReadRequest(part=Part(organization_ids, user_ids, known, aliases))
        now = epoch_ms(self.clock())
        if (
            source.name not in self.full
            and begun.cursor
            and begun.settings_digest == policy.digest
            and begun.last_full_at is not None
            and now - begun.last_full_at < policy.full_every * 1000
        ):
            return _Stage.CHANGES, ReadRequest(since=begun.cursor)
        return _Stage.EVERYTHING, EVERYTHING

    def _add(self, read: SourceRead, found: Found) -> None:
        record, place, made_from = found
        if made_from is None:
            read.without_origin = True
            self.staging.add(record, place, position=read.position)
        else:
            origin = origin_text(*made_from.object)
            self.staging.add(record, place, origin=origin, rule=made_from.rule, position=read.position)
        read.kinds[record.kind] += 1
        self._unreported += 1

    def _take(self, read: SourceRead, step: Found | Gone | Malformed | Remark | End) -> ReadRequest | None:
        """Stages one step. Returns the next request to the source if the step ends this one."""
        # The most frequent step comes first.
        if isinstance(step, Found):
            self._add(read, step)
        elif isinstance(step, End):
            return self._end(read, step)
        elif isinstance(step, Gone):
            self.staging.add_gone(origin_text(*step.object), position=read.position)
            read.gone += 1
        elif read.complete_end is not None:
            pass  # If these changes cannot be used, the next read reports their problems.
        elif isinstance(step, Malformed):
            read.malformed += 1
            origin = "" if step.object is None else origin_text(*step.object)
            if origin:
                self.staging.add_malformed(origin, disabled=step.disabled, position=read.position)
            read.problems.add(Problem(ProblemSort.MALFORMED, read.source.name, step.place, step.reason, origin=origin))
        elif isinstance(step, Remark):
            read.problems.add(Problem(ProblemSort.REMARK, read.source.name, step.place, step.reason))
        return None

    def _end(self, read: SourceRead, end: End) -> ReadRequest | None:
        """Ends a read, or returns the next request to the source."""
        if read.stage is _Stage.CHANGES_MEANWHILE:
            self._end_changes_meanwhile(read, end)
            return None
        if end.answered is Answered.CURSOR_REFUSED and read.stage is _Stage.CHANGES:
            return self._restart(read, end.reason or "without a reason")
        error = _protocol_error(read, end)
        if error is not None:
            end = End(Verdict.FAILED, error)
        is_complete = end.verdict is Verdict.COMPLETE or end.except_malformed
        if is_complete and end.cursor and end.answered is None:
            return self._begin_changes_meanwhile(read, end)
        self._close(read, end)
        return None

    def _restart(self, read: SourceRead, refused: str) -> ReadRequest:
        """Reads everything after a source refused its cursor. The records that came with the refusal are void."""
        self.staging.restart(read.position)
        read.cursor_refused = refused
        read.stage, read.problems, read.malformed = _Stage.EVERYTHING, ProblemList(), 0
        read.kinds, read.gone, read.without_origin = Counter(), 0, False
        return EVERYTHING

    def _begin_changes_meanwhile(self, read: SourceRead, end: End) -> ReadRequest:
        """Reads the changes during a complete read. If they cannot be used, the complete read stays valid."""
        self.staging.begin_changes(read.position)
        read.stage, read.complete_end, read.complete_kinds = _Stage.CHANGES_MEANWHILE, end, read.kinds.copy()
        read.without_origin = False
        return ReadRequest(since=end.cursor)

    def _end_changes_meanwhile(self, read: SourceRead, end: End) -> None:
        """Uses the changes if they are complete and name their objects, and closes the complete read."""
        complete = read.complete_end
        assert complete is not None  # noqa: S101 - set together with the stage
        usable = end.verdict is Verdict.COMPLETE and end.answered is Answered.CHANGES and not read.without_origin
        self.staging.end_changes(read.position, usable=usable)
        if not usable:
            read.kinds, read.gone = read.complete_kinds, 0
        self._close(read, complete._replace(cursor=end.cursor) if usable else complete, caught_up=usable)

    def _close(self, read: SourceRead, end: End, *, caught_up: bool = False) -> None:
        result = ReadResult(
            records=read.records,
            malformed=read.malformed,
            verdict=end.verdict.value,
            reason=end.reason,
            answered=end.answered.value if end.answered is not None and end.verdict is not Verdict.FAILED else "",
            cursor=end.cursor,
            settings_digest=policy_of(read.source).digest,
            caught_up=caught_up,
            seconds=(self.clock() - read.began).total_seconds(),
            cursor_refused=read.cursor_refused,
            except_malformed=end.verdict is Verdict.PARTIAL and end.except_malformed,
            login_refused=end.login_refused,
            known_empty=end.known_empty,
        )
        self.staging.end(result, position=read.position)

    def _report_progress(self, at_least: int) -> None:
        if self.progress is not None and self._unreported >= at_least:
            self.progress.advance(self._unreported)
            self._unreported = 0


_ANSWERS: Mapping[_Stage, frozenset[Answered | None]] = {
    _Stage.EVERYTHING: frozenset({None}),
    _Stage.CHANGES: frozenset({None, Answered.CHANGES}),
    _Stage.PART: frozenset({None, Answered.PART}),
}
"""The allowed answers to each request. None is a complete answer."""


def _protocol_error(read: SourceRead, end: End) -> str | None:
    """Why an answer does not match the request. None if it does."""
    if end.verdict is Verdict.FAILED:
        return None
    if end.answered not in _ANSWERS[read.stage]:
        return f"an error of the program: it answered with {end.answered}, which was not requested"
    if end.answered is not None and read.without_origin:
        return "an error of the program: it reported a change without the object that changed"
    return None
