"""Everything that a source says, in one request: JSON Lines that end in a line that says so.

A complete read like any other, judged by the same guard. Where a line is wrong, or the last one does not say how many
there were, nothing is applied.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO

from sqlalchemy import Engine

from app.access.problems import Problem, ProblemList, ProblemSort
from app.access.refresh.guard import Guard
from app.access.refresh.pushed_keys import ReadScope
from app.access.refresh.pushes import HIGHEST_FIRST_SEQUENCE, continue_from
from app.access.refresh.refresh import Refresh, Witness
from app.contract.errors import FailedPrecondition, InvalidArgument, PermissionDenied
from app.directory.casting import record_from_object
from app.directory.fields import MalformedRecordError
from app.directory.jsonl import END_FIELDS, MAX_LINE_BYTES, object_from_line
from app.directory.pushes import Allowed, ItemProblem
from app.directory.source import EVERYTHING, End, Found, Reading, ReadRequest, Remark, Verdict
from app.foundation.clock import Clock
from app.foundation.text import counted, named
from app.service.push.targets import PushTarget, Targets
from app.service.push.wire import LineReason, SourceAnswer

PROBLEMS_TOLD = 100
"""Of more wrong lines the first are told."""

_LINE = "line "
"""How the place of a record begins."""


def apply_everything(
    engine: Engine,
    targets: Targets,
    target: PushTarget,
    stream: IO[bytes],
    *,
    accept_shrink: bool,
    by: str,
    clock: Clock,
    witness: Witness | None = None,
) -> SourceAnswer:
    """Takes in all that a source says, and gives the answer.

    Raises ``InvalidArgument``, ``PermissionDenied``, and ``FailedPrecondition`` (409) for a read that the guard, or a
    later one, does not let through; nothing is applied then.
    """
    said = SentSource(target.name, stream, target.allowed)
    problems = ProblemList()
    accepted = [target.name] if accept_shrink else []
    with Refresh(engine, clock=clock, problems=problems, store_pending=True, witness=witness) as refreshing:
        scopes = {target.name: ReadScope(target.allowed.kinds, target.allowed.organizations)}
        guards = {target.name: Guard(count=target.guard.count, percent=target.guard.percent)}
        refreshing.begin(targets.configured, only=[target.name], guards=guards, scopes=scopes)
        for step in said.read():
            if isinstance(step, Found):
                refreshing.add(step.record, step.place)
            elif isinstance(step, Remark):
                problems.add(Problem(ProblemSort.REMARK, target.name, step.place, step.reason))
        _refuse(said)
        refreshing.end(records=said.records, verdict=Verdict.COMPLETE.value, reason="")
        outcome = refreshing.finish(accepted, accepted, all_or_nothing=True)
        without_effect = refreshing.staged_problems()
    read = outcome.reads[0]
    if read.verdict != Verdict.COMPLETE:
        raise FailedPrecondition(
            f"was not applied: {without_advice(read.reason)}; if that is meant, send it again with ?acceptShrink=true",
            http_code=409,
        )
    if said.sequence is not None:
        continue_from(engine, target.name, said.sequence, by=by, clock=clock)
    problems.add_found(without_effect)
    dangling = sum(one.count for (_, sort), one in without_effect.items() if sort != ProblemSort.OWNED_ELSEWHERE)
    return {
        "revision": outcome.change.revision,
        "records": said.records,
        "changes": {
            kind: {"added": one.added, "updated": one.updated, "removed": one.removed}
            for kind, one in outcome.change.changes.items()
            if one.any
        },
        "dangling": dangling,
        "leftOut": _by_line([one for one in problems.kept if one.sort != ProblemSort.REMARK]),
        "remarks": _by_line([one for one in problems.kept if one.sort == ProblemSort.REMARK]),
    }


def without_advice(reason: str) -> str:
    """The reason of a read, without what it advises on the command line."""
    return reason.partition("; if that is meant")[0]


def _by_line(problems: Sequence[Problem]) -> list[LineReason]:
    found = sorted((int(one.place.removeprefix(_LINE)), one.reason) for one in problems)
    return [{"index": number, "reason": reason} for number, reason in found]


def _refuse(said: "SentSource") -> None:
    wrong = said.malformed + said.foreign
    details: dict[str, object] = {
        "items": [{"list": one.list, "index": one.number, "reason": one.reason} for one in said.problems]
    }
    first = f"line {said.problems[0].number}: {said.problems[0].reason}" if said.problems else ""
    if said.error:
        why = "; ".join(filter(None, (first, said.error)))
        raise InvalidArgument(f"nothing was applied: {why}", details=details if wrong else None)
    if said.malformed:
        raise InvalidArgument(f"nothing was applied: {counted(wrong, 'line')} cannot be used; {first}", details=details)
    if said.foreign:
        raise PermissionDenied(
            f"nothing was applied: {counted(wrong, 'record')} may not be pushed here; {first}", details=details
        )


@dataclass(slots=True)
class SentSource:
    """A source that reads what was sent, once; its fields tell what came of that."""

    name: str
    stream: IO[bytes]
    allowed: Allowed
    records: int = 0
    sequence: int | None = None
    """From which pushes go on, where the last line says so."""
    malformed: int = 0
    foreign: int = 0
    problems: list[ItemProblem] = field(default_factory=list)
    """What is wrong with which line, counted from 1: the first of them."""
    error: str = ""
    """Why it cannot be used as a whole."""
    _ended: bool = False

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:  # noqa: ARG002 - there is only everything
        """The records, and whether all of them came."""
        number = 0
        while line := self.stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if self.error:
                # Many clients read the response only after they have sent everything.
                continue
            if len(line) > MAX_LINE_BYTES:
                self.error = f"line {number}: is longer than {MAX_LINE_BYTES:,} bytes"
            elif line.strip():
                yield from self._line(line, number)
        if not self._ended and not self.error:
            self.error = 'the last line is missing, {"end": true, "records": N}: not all of it may have come'
        failed = bool(self.error or self.problems)
        yield End(Verdict.FAILED if failed else Verdict.COMPLETE, self.error)

    def _line(self, line: bytes, number: int) -> Iterator[Found | Remark]:
        if self._ended:
            self.error = f"line {number}: comes after the end"
            return
        try:
            value = object_from_line(line)
            if isinstance(value, dict) and "end" in value:
                self._end(value, number)
                return
            record, remarks = record_from_object(value)
        except UnicodeDecodeError:
            self._malformed(number, "the bytes are not UTF-8")
        except json.JSONDecodeError as error:
            self._malformed(number, f"not JSON: {error.msg} (column {error.colno})")
        except MalformedRecordError as error:
            self._malformed(number, str(error))
        else:
            self.records += 1
            objection = self.allowed.objection(record)
            if objection is not None:
                self.foreign += 1
                self._tell(number, objection)
            elif not self.problems:
                # Where something is wrong already the rest is only looked at.
                yield Found(record, f"{_LINE}{number}")
                for remark in remarks:
                    yield Remark(f"{_LINE}{number}", remark)

    def _end(self, value: dict[str, object], number: int) -> None:
        self._ended = True
        unknown = value.keys() - END_FIELDS
        if unknown:
            self.error = f"line {number}: {named(min(unknown), limit=80)}: is not a field of the last line"
        elif value["end"] is not True:
            self.error = f"line {number}: end: must be true"
        elif type(value.get("records")) is not int or value["records"] != self.records + self.malformed:
            self.error = (
                f"line {number}: records: must be the number of records before it,"
                f" which is {self.records + self.malformed:,}"
            )
        elif (sequence := value.get("sequence")) is not None:
            if type(sequence) is not int or not 1 <= sequence <= HIGHEST_FIRST_SEQUENCE:
                self.error = f"line {number}: sequence: must be a whole number from 1 to {HIGHEST_FIRST_SEQUENCE}"
            else:
                self.sequence = sequence

    def _malformed(self, number: int, reason: str) -> None:
        self.malformed += 1
        self._tell(number, reason)

    def _tell(self, number: int, reason: str) -> None:
        if len(self.problems) < PROBLEMS_TOLD:
            self.problems.append(ItemProblem("line", number, reason))
