"""Stores the problems of the directory, and reads them for pages, concerns and metrics.

A read stores the problems that it finds itself (``store_read_problems``), in the transaction that changes the records.
``count_problems`` counts all others from time to time, and stores them with the revision.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Row, and_, delete, func, insert, or_, select, true, update

from app.access.problem_list import PROBLEMS_KEPT, ProblemList, ProblemSample, ProblemSamples
from app.access.problems import AnySort, Problem, ProblemCause, ProblemSort, UnclearDisabling
from app.access.refresh.fills import find_unclear_disabling
from app.access.refresh.group_cycles import NO_SOURCE
from app.access.refresh.problems import find_problems, remaining_problems
from app.access.refresh.reads import FAILED, StagedRead
from app.access.refresh.sources import SOURCE, STATE, UNCONFIGURED_POSITION
from app.access.revisions import current_revision
from app.access.source_tables import ProblemCountRow, ProblemRow
from app.foundation.clock import Clock, epoch_ms
from app.foundation.database.engine import reading, writing
from app.foundation.database.statements import run

COUNT_EVERY_MS = 5 * 60 * 1000
"""Milliseconds between two counts by workers. A count reads all records: 8 s for 1.5 million."""

NO_SOURCE_NAME = ""
"""The source of problems that no source has alone."""

_COUNT = ProblemCountRow.__table__
_PROBLEM = ProblemRow.__table__

_SORTS = [sort.value for sort in ProblemSort]
_SORT_OF_NAME: Mapping[str, AnySort] = {sort.value: sort for sort in (*ProblemSort, *UnclearDisabling)}
_NAME = func.coalesce(SOURCE.c.name, NO_SOURCE_NAME).label("name")
_IS_REPORTED = or_(SOURCE.c.position < UNCONFIGURED_POSITION, _COUNT.c.source_id == NO_SOURCE)


# Counting.


def count_problems(engine: Engine, clock: Clock, *, every_ms: int = 0) -> None:
    """Counts and stores all problems, if the directory has changed since the last count, at least ``every_ms`` ago."""
    now_ms = epoch_ms(clock())
    with reading(engine) as connection:
        state = connection.execute(select(STATE)).first()
        if state is None or state.merge_all or state.counted_changes == state.changes:
            return
        if state.counted_at is not None and now_ms - state.counted_at < every_ms:
            return
        samples = {**find_problems(connection), **find_unclear_disabling(connection)}
        count = {"counted_changes": state.changes, "counted_revision": current_revision(connection)}
    with writing(engine) as connection:
        newer = STATE.c.counted_changes < state.changes
        if connection.execute(update(STATE).where(newer).values(**count, counted_at=now_ms)).rowcount:
            _store(connection, samples, now_ms)


# Storing.


def store_read_problems(
    connection: Connection, problems: ProblemList, reads: Sequence[StagedRead], now_ms: int
) -> None:
    """Stores the problems that reads found in records themselves, in the transaction that changes the records.

    A read of everything replaces the problems of its source. A read of changes, or of a part, replaces those of the
    objects that it read. A failed read without problems changes nothing.
    """
    for read in reads:
        before = _load_of_reads(connection, read.source_id)
        samples = {
            sort.value: ProblemSample(sample.count, list(map(_storable, sample.first)))
            for (name, sort), sample in problems.by_source.items()
            if name == read.name
        }
        if read.verdict == FAILED and not samples:
            continue
        if read.answered and read.verdict != FAILED:
            samples = _add_earlier(connection, read.source_id, samples, before)
        if samples != before:
            stored = {(read.source_id, sort): sample for sort, sample in samples.items()}
            _store(connection, stored, now_ms, read_source=read.source_id)


_READ_AGAIN = """
SELECT p.origin FROM problem p WHERE p.source_id = :source_id AND p.by_read AND p.origin <> '' AND (
  EXISTS (SELECT 1 FROM refresh_reread_object o WHERE o.source_id = p.source_id AND o.origin = p.origin)
  OR EXISTS (SELECT 1 FROM refresh_malformed_object o WHERE o.source_id = p.source_id AND o.origin = p.origin))
"""


def _add_earlier(
    connection: Connection, source_id: int, new: Mapping[str, ProblemSample], before: Mapping[str, ProblemSample]
) -> dict[str, ProblemSample]:
    """The ``new`` problems that a read of changes found, and the earlier problems of objects that it did not read."""
    read_again = set(run(connection, _READ_AGAIN, {"source_id": source_id}).scalars())
    merged = {}
    for sort in before.keys() | new.keys():
        sample, earlier = new.get(sort, ProblemSample()), before.get(sort, ProblemSample())
        same = {(problem.place, problem.text, problem.cause) for problem in sample.first}
        remaining = [
            problem
            for problem in earlier.first
            if problem.origin not in read_again and (problem.place, problem.text, problem.cause) not in same
        ]
        merged[sort] = ProblemSample(earlier.count - len(earlier.first) + len(remaining), remaining)
        merged[sort].add(sample.count, sample.first)
    return {sort: sample for sort, sample in merged.items() if sample.count}


def _load_of_reads(connection: Connection, source_id: int) -> dict[str, ProblemSample]:
    """Sort → the stored problems of a source that reads found."""
    counts = select(_COUNT.c.sort, _COUNT.c.problems).where(_COUNT.c.source_id == source_id, _COUNT.c.by_read)
    samples = {row.sort: ProblemSample(row.problems) for row in connection.execute(counts)}
    rows = select(_PROBLEM, SOURCE.c.name).join(SOURCE, SOURCE.c.source_id == _PROBLEM.c.source_id)
    of_source = rows.where(_PROBLEM.c.source_id == source_id, _PROBLEM.c.by_read)
    for row in connection.execute(of_source.order_by(_PROBLEM.c.sort, _PROBLEM.c.ordinal)):
        samples[row.sort].first.append(_problem_from_row(row))
    return samples


def _store(connection: Connection, new: ProblemSamples, now_ms: int, *, read_source: int | None = None) -> None:
    """Replaces the stored counts and problems: those that reads of a source found, or all that were counted."""
    by_read = read_source is not None
    of_count, of_problem = (
        and_(table.c.by_read.is_(by_read), table.c.source_id == read_source if by_read else true())
        for table in (_COUNT, _PROBLEM)
    )
    rows = connection.execute(select(_COUNT).where(of_count))
    since = {(row.source_id, row.sort): row.since for row in rows}
    connection.execute(delete(_COUNT).where(of_count))
    connection.execute(delete(_PROBLEM).where(of_problem))
    counts, problems = [], []
    for (source_id, sort), sample in new.items():
        values = {"source_id": source_id, "sort": sort, "by_read": by_read}
        counts.append(values | {"problems": sample.count, "since": since.get((source_id, sort), now_ms)})
        problems += [values | {"ordinal": at} | _problem_to_row(problem) for at, problem in enumerate(sample.first, 1)]
    if counts:
        connection.execute(insert(_COUNT), counts)
    if problems:
        connection.execute(insert(_PROBLEM), problems)


def _problem_to_row(problem: Problem) -> dict[str, str]:
    return {
        "kind": problem.kind,
        "key": json.dumps(problem.key, ensure_ascii=False),
        "cause": problem.cause or problem.text,
        "detail": json.dumps(problem.detail, ensure_ascii=False),
        "place": problem.place,
        "origin": problem.origin,
    }


def _storable(problem: Problem) -> Problem:
    """The problem without NUL, which PostgreSQL does not store."""
    return replace(problem, place=problem.place.replace("\0", "�"), text=problem.text.replace("\0", "�"))


def _problem_from_row(row: Row[Any]) -> Problem:
    return Problem(
        sort=_SORT_OF_NAME[row.sort],
        source=row.name,
        place=row.place,
        text="" if row.kind else row.cause,
        cause=ProblemCause(row.cause) if row.kind and row.cause else None,
        kind=row.kind,
        key=tuple(json.loads(row.key)),
        detail=tuple(json.loads(row.detail)),
        origin=row.origin,
    )


# Reading.


@dataclass(frozen=True, slots=True)
class ProblemCount:
    """How many problems of a sort a source has. ``since``: when the first of them was found, in epoch milliseconds."""

    sort: str
    problems: int
    since: int


class LastCount(NamedTuple):
    """The last count of problems."""

    revision: int
    """The revision that was current then."""
    at: int
    """Epoch milliseconds."""


def last_count(connection: Connection) -> LastCount | None:
    """The last count. None: problems were never counted."""
    row = connection.execute(select(STATE.c.counted_revision, STATE.c.counted_at)).first()
    return None if row is None or row.counted_at is None else LastCount(row.counted_revision, row.counted_at)


def problem_counts(connection: Connection) -> Mapping[str, Sequence[ProblemCount]]:
    """Configured source, or ``NO_SOURCE_NAME`` → how many problems of each sort it has."""
    counts: dict[str, list[ProblemCount]] = {}
    rows = connection.execute(
        select(
            _NAME, _COUNT.c.sort, func.sum(_COUNT.c.problems).label("problems"), func.min(_COUNT.c.since).label("since")
        )
        .outerjoin(SOURCE, SOURCE.c.source_id == _COUNT.c.source_id)
        .where(_IS_REPORTED, _COUNT.c.sort.in_(_SORTS))
        .group_by(_COUNT.c.source_id, SOURCE.c.name, _COUNT.c.sort)
        .order_by(_COUNT.c.source_id, _COUNT.c.sort)
    )
    for row in rows:
        counts.setdefault(row.name, []).append(ProblemCount(row.sort, int(row.problems), int(row.since)))
    return counts


def first_problems(connection: Connection, source: str, sort: str, *, only_remaining: bool = False) -> list[Problem]:
    """The first stored problems of this source and sort. ``only_remaining``: only those that still exist, looked up by
    key. Those that reads found, and cycles of groups, are not checked."""
    query = (
        select(_PROBLEM, _NAME)
        .outerjoin(SOURCE, SOURCE.c.source_id == _PROBLEM.c.source_id)
        .where(
            _PROBLEM.c.sort == sort,
            _PROBLEM.c.source_id == NO_SOURCE if source == NO_SOURCE_NAME else SOURCE.c.name == source,
        )
        .order_by(_PROBLEM.c.by_read.desc(), _PROBLEM.c.ordinal)
    )
    rows = connection.execute(query).all()
    from_reads = [_problem_from_row(row) for row in rows if row.by_read]
    counted = [_problem_from_row(row) for row in rows if not row.by_read]
    if only_remaining and counted and sort != ProblemSort.GROUP_CYCLE and source != NO_SOURCE_NAME:
        counted = remaining_problems(connection, rows[0].source_id, counted)
    return [*from_reads, *counted][:PROBLEMS_KEPT]


def unclear_disabling(connection: Connection) -> Mapping[str, Mapping[AnySort, ProblemSample]]:
    """Configured source → ``UnclearDisabling`` → its disabling fills of this sort, with an example. In the order of the
    configuration."""
    by_source: dict[str, dict[AnySort, ProblemSample]] = {}
    rows = connection.execute(
        select(_PROBLEM, SOURCE.c.name, _COUNT.c.problems)
        .join(SOURCE, SOURCE.c.source_id == _PROBLEM.c.source_id)
        .join(_COUNT, and_(_COUNT.c.source_id == _PROBLEM.c.source_id, _COUNT.c.sort == _PROBLEM.c.sort))
        .where(_COUNT.c.sort.in_([sort.value for sort in UnclearDisabling]), SOURCE.c.position < UNCONFIGURED_POSITION)
        .order_by(SOURCE.c.position)
    )
    for row in rows:
        example = _problem_from_row(row)
        by_source.setdefault(row.name, {})[example.sort] = ProblemSample(row.problems, [example])
    return by_source
