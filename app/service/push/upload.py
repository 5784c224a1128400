"""Applies an upload: all records of a source, as JSON Lines with a last line that contains their number.

An upload is a complete read. The guard checks it, but a refused upload changes nothing, whereas other refused reads
become partial. If a line is invalid or the last line is missing, nothing is applied.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO

from sqlalchemy import Engine

from app.access.problem_list import ProblemList
from app.access.problems import Problem, ProblemSort
from app.access.refresh.guard import Guard
from app.access.refresh.push_sequences import HIGHEST_FIRST_SEQUENCE, continue_from
from app.access.refresh.reads import ReadResult, StagedRead
from app.access.refresh.refresh import ChangeHook, Refresh
from app.access.refresh.source_changes import ReadScope
from app.access.revisions import ModelChange
from app.contract.errors import FailedPrecondition, InvalidArgument, PermissionDenied
from app.directory.casting import record_from_object
from app.directory.fields import MalformedRecordError
from app.directory.file import END_FIELDS, MAX_LINE_BYTES, object_from_line
from app.directory.pushes import Allowed, ItemProblem
from app.directory.source import EVERYTHING, End, Found, Reading, ReadRequest, Remark, Verdict
from app.foundation.clock import Clock
from app.foundation.text import counted, named
from app.service.push.targets import PushTarget, Targets
from app.service.push.wire import LineReason, UploadAnswer

MAX_REPORTED = 100
"""Invalid lines that the response lists."""

_LINE = "line "
"""The prefix of the place of a record."""


def apply_upload(
    engine: Engine,
    targets: Targets,
    target: PushTarget,
    stream: IO[bytes],
    *,
    accept_shrink: bool,
    by: str,
    clock: Clock,
    audit_hook: ChangeHook | None = None,
) -> UploadAnswer:
    """Applies an upload and returns the response. Raises ``InvalidArgument``, ``PermissionDenied``, or
    ``FailedPrecondition`` (409) if the guard or a later read refuses it. Nothing is applied then."""
    upload = UploadedSource(target.name, stream, target.allowed)
    problems = ProblemList()
    accepted = [target.name] if accept_shrink else []
    with Refresh(engine, clock=clock, problems=problems, covered=None, change_hook=audit_hook) as refresh:
        refresh.begin(targets.configured, only=[target.name])
        for step in upload.read():
            if isinstance(step, Found):
                refresh.staging.add(step.record, step.place)
            elif isinstance(step, Remark):
                problems.add(Problem(ProblemSort.REMARK, target.name, step.place, step.reason))
        _raise_for_problems(upload)
        refresh.staging.end(ReadResult(records=upload.records))
        outcome = refresh.finish(
            accepted,
            accepted,
            guard_of_source={target.name: Guard(count=target.guard.count, percent=target.guard.percent)},
            scopes={target.name: ReadScope(target.allowed.kinds, target.allowed.organizations)},
            all_or_nothing=True,
        )
        without_effect = refresh.staged_problems()
    _raise_if_refused(outcome.reads[0])
    if upload.sequence is not None:
        continue_from(engine, target.name, upload.sequence, by=by, clock=clock)
    problems.add_samples(without_effect)
    dangling = sum(found.count for (_, sort), found in without_effect.items() if sort != ProblemSort.OWNED_ELSEWHERE)
    return _answer(outcome.change, upload.records, dangling, problems.listed)


def _answer(change: ModelChange, records: int, dangling: int, problems: Sequence[Problem]) -> UploadAnswer:
    return {
        "revision": change.revision,
        "records": records,
        "changes": {
            kind: {"added": counts.added, "updated": counts.updated, "removed": counts.removed}
            for kind, counts in change.changes.items()
            if counts.any
        },
        "dangling": dangling,
        "leftOut": _by_line([problem for problem in problems if problem.sort != ProblemSort.REMARK]),
        "remarks": _by_line([problem for problem in problems if problem.sort == ProblemSort.REMARK]),
    }


def _by_line(problems: Sequence[Problem]) -> list[LineReason]:
    """In the order of the lines, which are the places of the problems."""
    lines = sorted((int(problem.place.removeprefix(_LINE)), problem.reason) for problem in problems)
    return [{"index": number, "reason": reason} for number, reason in lines]


def problem_details(problems: Sequence[ItemProblem]) -> dict[str, object] | None:
    """The details of the error about these items. None if there are none."""
    items = [{"list": problem.list, "index": problem.number, "reason": problem.reason} for problem in problems]
    return {"items": items} if items else None


def _raise_if_refused(read: StagedRead) -> None:
    if read.verdict == Verdict.COMPLETE:
        return
    # Only the guard can be overridden. If another read was faster, the same request may succeed.
    problem = read.reason
    if read.refusal is not None:
        problem = f"{read.refusal.reason}; if this is intended, send it again with ?acceptShrink=true"
    raise FailedPrecondition(f"was not applied: {problem}", http_code=409)


def _raise_for_problems(upload: "UploadedSource") -> None:
    invalid, details = upload.malformed + upload.foreign, problem_details(upload.problems)
    first = f"line {upload.problems[0].number}: {upload.problems[0].reason}" if upload.problems else ""
    if upload.error:
        reason = "; ".join(filter(None, (first, upload.error)))
        raise InvalidArgument(f"nothing was applied: {reason}", details=details)
    if upload.malformed:
        raise InvalidArgument(
            f"nothing was applied: {counted(invalid, 'line')} cannot be used; {first}", details=details
        )
    if upload.foreign:
        raise PermissionDenied(
            f"nothing was applied: {counted(invalid, 'record')} may not be pushed here; {first}", details=details
        )


@dataclass(slots=True)
class UploadedSource:
    """A source that reads an upload once. Its fields contain the result."""

    name: str
    stream: IO[bytes]
    allowed: Allowed
    records: int = 0
    sequence: int | None = None
    """The sequence in the last line: later pushes are numbered from there on."""
    malformed: int = 0
    foreign: int = 0
    problems: list[ItemProblem] = field(default_factory=list)
    """The first problems by line, counted from 1."""
    error: str = ""
    """Why the upload as a whole is invalid."""
    _ended: bool = False

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:  # noqa: ARG002 - an upload is always complete
        """The records, and at last whether the upload is complete."""
        number = 0
        while line := self.stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if self.error:
                # Many clients read the response only after they have sent the whole body.
                continue
            if len(line) > MAX_LINE_BYTES:
                self.error = f"line {number}: is longer than {MAX_LINE_BYTES:,} bytes"
            elif line.strip():
                yield from self._line(line, number)
        if not self._ended and not self.error:
            self.error = 'the last line is missing, {"end": true, "records": N}: the upload may be incomplete'
        failed = bool(self.error or self.problems)
        yield End(Verdict.FAILED if failed else Verdict.COMPLETE, self.error)

    def _line(self, line: bytes, number: int) -> Iterator[Found | Remark]:
        if self._ended:
            self.error = f"line {number}: is after the end"
            return
        try:
            value = object_from_line(line)
            if isinstance(value, dict) and "end" in value:
                self._end(value, number)
                return
            record, remarks = record_from_object(value)
        except UnicodeDecodeError:
            self._add_malformed(number, "the bytes are not UTF-8")
        except json.JSONDecodeError as error:
            self._add_malformed(number, f"not JSON: {error.msg} (column {error.colno})")
        except MalformedRecordError as error:
            self._add_malformed(number, str(error))
        else:
            self.records += 1
            objection = self.allowed.objection(record)
            if objection is not None:
                self.foreign += 1
                self._add_problem(number, objection)
            elif not self.problems:
                # After the first problem the remaining lines are only checked.
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

    def _add_malformed(self, number: int, reason: str) -> None:
        self.malformed += 1
        self._add_problem(number, reason)

    def _add_problem(self, number: int, reason: str) -> None:
        if len(self.problems) < MAX_REPORTED:
            self.problems.append(ItemProblem("line", number, reason))
