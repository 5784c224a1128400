"""The gathering of what sources give: what each is asked for, side by side, and how it gets into a refresh.

The rules: ``app/sync/runs/README.md``, "What sources are asked for".
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Protocol

from app.access.problems import Problem, ProblemList, ProblemSort
from app.access.refresh.refresh import Refresh
from app.access.refresh.sources import ReadDetails
from app.access.source_tables import origin_text
from app.directory.guarded import GuardedSource, ParallelReads, Policy
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
    """Who wants to know how many records have been read."""

    def advance(self, n: int) -> None:
        """``n`` more records have been read."""
        ...


def policy_of(source: Source) -> Policy:
    """What to go by when the source is read."""
    return source.policy if isinstance(source, GuardedSource) else Policy()


class _Stage(Enum):
    """What a source is being asked for."""

    EVERYTHING = 1
    CHANGES = 2
    PART = 3
    CHANGES_MEANWHILE = 4
    """What changed while everything was read."""


@dataclass
class GatheredRead:
    """One source while it is read."""

    source: Source
    position: int
    stage: _Stage
    problems: ProblemList = field(default_factory=ProblemList)
    malformed: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    gone: int = 0
    without_origin: bool = False
    """Whether any record did not say what it was made from."""
    began: datetime = EPOCH
    cursor_refused: str = ""
    whole: End | None = None
    """How everything was read, while changes since are asked for."""
    kinds_of_whole: Counter[str] = field(default_factory=Counter)

    @property
    def records(self) -> int:
        return self.kinds.total()


class Gathering:
    """The sources while they are read side by side into a refresh."""

    def __init__(
        self,
        refreshing: Refresh,
        clock: Clock,
        progress: ReadingProgress | None,
        asked: Selection | None,
        anew: Collection[str] = (),
    ) -> None:
        """``anew``: the names of sources of which what changed is not enough."""
        self._refreshing = refreshing
        self._clock = clock
        self._progress = progress
        self._asked = asked
        self._anew = anew
        self._unreported = 0

    def read(self, sources: Mapping[int, Source]) -> list[GatheredRead]:
        """Stages what they give (position → source); how each of them was read, in their order."""
        reads: dict[int, GatheredRead] = {}
        with ParallelReads() as side_by_side:
            for position, source in sources.items():
                stage, request = self._request(position, source)
                reads[position] = GatheredRead(source, position, stage, began=self._clock())
                side_by_side.begin(position, source, request)
            for position, steps in side_by_side.steps():
                read = reads[position]
                for step in steps:
                    # Nearly all of them are records.
                    if isinstance(step, Found):
                        self._add(read, step)
                    elif isinstance(step, End):
                        request_after = self._end(read, step)
                        if request_after is not None:
                            side_by_side.begin(position, read.source, request_after)
                    else:
                        self._take(read, step)
                self._tell_progress(_PROGRESS_STEP)
        self._tell_progress(1)
        return list(reads.values())

    def _request(self, position: int, source: Source) -> tuple[_Stage, ReadRequest]:
        """What the source is asked for: the part that somebody wants, or what changed, if that says enough."""
        begun, policy = self._refreshing.started(position), policy_of(source)
        if self._asked is not None:
            organization_ids, user_ids = self._asked.organization_ids, self._asked.user_ids
            objects = self._refreshing.objects_of(position, organization_ids, user_ids)
            if objects is not None:
                known = tuple(ObjectId(*one) for one in objects)
                aliases = tuple(self._refreshing.aliases_of(user_ids)) if user_ids else ()
                return _Stage.PART, ReadRequest(part=Part(organization_ids, user_ids, known, aliases))
        now = epoch_ms(self._clock())
        if (
            source.name not in self._anew
            and begun.cursor
            and begun.settings_digest == policy.digest
            and begun.last_full_at is not None
            and now - begun.last_full_at < policy.full_every * 1000
        ):
            return _Stage.CHANGES, ReadRequest(since=begun.cursor)
        return _Stage.EVERYTHING, EVERYTHING

    def _add(self, read: GatheredRead, found: Found) -> None:
        record, place, made_from = found
        if made_from is None:
            read.without_origin = True
            self._refreshing.add(record, place, position=read.position)
        else:
            origin = origin_text(*made_from.object)
            self._refreshing.add(record, place, origin=origin, rule=made_from.rule, position=read.position)
        read.kinds[record.kind] += 1
        self._unreported += 1

    def _take(self, read: GatheredRead, step: Gone | Malformed | Remark) -> None:
        if isinstance(step, Gone):
            self._refreshing.gone(origin_text(*step.object), position=read.position)
            read.gone += 1
        elif read.whole is not None:
            # What is wrong with changes that are of no use is told with the next ones.
            pass
        elif isinstance(step, Malformed):
            read.malformed += 1
            origin = "" if step.object is None else origin_text(*step.object)
            if origin:
                self._refreshing.malformed(origin, disabled=step.disabled, position=read.position)
            read.problems.add(Problem(ProblemSort.MALFORMED, read.source.name, step.place, step.reason, origin=origin))
        elif isinstance(step, Remark):
            read.problems.add(Problem(ProblemSort.REMARK, read.source.name, step.place, step.reason))

    def _end(self, read: GatheredRead, end: End) -> ReadRequest | None:
        """Closes a read; or what to ask the source for next."""
        if read.stage is _Stage.CHANGES_MEANWHILE:
            self._end_of_changes_meanwhile(read, end)
            return None
        if end.answered is Answered.CURSOR_REFUSED and read.stage is _Stage.CHANGES:
            # Whatever it gave with that says nothing.
            self._refreshing.again(read.position)
            read.cursor_refused = end.reason or "without a reason"
            read.stage, read.problems, read.malformed = _Stage.EVERYTHING, ProblemList(), 0
            read.kinds, read.gone, read.without_origin = Counter(), 0, False
            return EVERYTHING
        wrong = _wrong(read, end)
        if wrong is not None:
            end = End(Verdict.FAILED, wrong)
        is_whole = end.verdict is Verdict.COMPLETE or end.except_malformed
        if is_whole and end.cursor and end.answered is None:
            self._refreshing.follow(read.position)
            read.stage, read.whole, read.kinds_of_whole = _Stage.CHANGES_MEANWHILE, end, read.kinds.copy()
            # What is told now counts for itself: where it is of no use, what came before stands.
            read.without_origin = False
            return ReadRequest(since=end.cursor)
        self._close(read, end)
        return None

    def _end_of_changes_meanwhile(self, read: GatheredRead, end: End) -> None:
        whole = read.whole
        assert whole is not None  # noqa: S101 - set together with the stage
        usable = end.verdict is Verdict.COMPLETE and end.answered is Answered.CHANGES and not read.without_origin
        self._refreshing.caught_up(read.position, usable=usable)
        if not usable:
            read.kinds, read.gone = read.kinds_of_whole, 0
        self._close(read, whole._replace(cursor=end.cursor) if usable else whole, caught_up=usable)

    def _close(self, read: GatheredRead, end: End, *, caught_up: bool = False) -> None:
        self._refreshing.end(
            records=read.records,
            malformed=read.malformed,
            verdict=end.verdict.value,
            reason=end.reason,
            position=read.position,
            details=ReadDetails(
                answered=end.answered.value if end.answered is not None and end.verdict is not Verdict.FAILED else "",
                cursor=end.cursor,
                digest=policy_of(read.source).digest,
                caught_up=caught_up,
                seconds=(self._clock() - read.began).total_seconds(),
                cursor_refused=read.cursor_refused,
                except_malformed=end.verdict is Verdict.PARTIAL and end.except_malformed,
                login_refused=end.login_refused,
            ),
        )

    def _tell_progress(self, at_least: int) -> None:
        if self._progress is not None and self._unreported >= at_least:
            self._progress.advance(self._unreported)
            self._unreported = 0


_ANSWERS: Mapping[_Stage, frozenset[Answered | None]] = {
    _Stage.EVERYTHING: frozenset({None}),
    _Stage.CHANGES: frozenset({None, Answered.CHANGES}),
    _Stage.PART: frozenset({None, Answered.PART}),
}
"""What may be answered to what: everything, to whatever it is."""


def _wrong(read: GatheredRead, end: End) -> str | None:
    """Why an answer is none to what was asked; None: it is one."""
    if end.verdict is Verdict.FAILED:
        return None
    if end.answered not in _ANSWERS[read.stage]:
        return f"an error of the program: it answered with {end.answered} when it was not asked for that"
    if end.answered is not None and read.without_origin:
        return "an error of the program: it told of a change without the object that changed"
    return None
