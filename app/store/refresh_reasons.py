"""Why exactly was a record left out, in words?

The sets only know that a record does not count. For the few that are listed in a report the reason is looked up here,
one by one.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, exists, func, literal, select

from app.store.record_tables import Reference
from app.store.refresh_merge import stands
from app.store.refresh_problems import Problem, ProblemList, ProblemSort
from app.store.refresh_staging import SOURCE
from app.store.refresh_tables import BENCH_OF_KIND, BENCHES, Bench, Cause, described, place_of, same, shown

_SORTS = {
    Cause.OWNED_ELSEWHERE: ProblemSort.OWNED_ELSEWHERE,
    Cause.DANGLING: ProblemSort.DANGLING,
    Cause.UNREACHABLE: ProblemSort.DANGLING,
}


def report_left_out(connection: Connection, names: Mapping[int, str], problems: ProblemList) -> None:
    """Counts all records that were left out, and words the reasons of those for which there is room."""
    for bench in BENCHES:
        left_out = bench.left_out
        for cause, count in connection.execute(
            select(left_out.c.cause, func.count()).group_by(left_out.c.cause).order_by(left_out.c.cause)
        ).all():
            sample = [
                _problem(connection, bench, row, Cause(cause), names)
                for row in connection.execute(_sampled(bench, cause, problems.room)).all()
            ]
            in_cycles = sum(problem.sort == ProblemSort.FOLDER_CYCLE for problem in sample)
            # The sort of a folder is only known for the sample; the others count as dangling.
            problems.add_counted(ProblemSort.FOLDER_CYCLE, in_cycles, [])
            problems.add_counted(_SORTS[Cause(cause)], count - in_cycles, sample)


def _sampled(bench: Bench, cause: int, limit: int) -> Any:
    left_out, source = bench.left_out, bench.source
    return (
        select(source)
        .select_from(left_out.join(source, same(left_out, source, bench.source_keys)))
        .where(left_out.c.cause == cause)
        .order_by(*(left_out.c[name] for name in bench.source_keys))
        .limit(limit)
    )


def _problem(connection: Connection, bench: Bench, row: Row[Any], cause: Cause, names: Mapping[int, str]) -> Problem:
    sort = _SORTS[cause]
    if cause == Cause.OWNED_ELSEWHERE:
        reason = _owner(connection, bench, row, names)
    elif cause == Cause.UNREACHABLE and _is_in_cycle(connection, bench, row):
        sort = ProblemSort.FOLDER_CYCLE
        reason = "is in a cycle of folders"
    else:
        reason = _missing(connection, bench, row)
    place = place_of(connection, bench, row._mapping)  # noqa: SLF001 - a public part of Row, underscored against clashes
    return Problem(sort, names.get(row.source_id, ""), place, f"{described(bench, row)} {reason}")


def _owner(connection: Connection, bench: Bench, row: Row[Any], names: Mapping[int, str]) -> str:
    source = bench.source
    owner = connection.execute(
        select(source)
        .select_from(source.join(SOURCE, SOURCE.c.source_id == source.c.source_id))
        .where(*(source.c[name] == getattr(row, name) for name in bench.keys))
        .order_by(SOURCE.c.position)
        .limit(1)
    ).one()
    place = place_of(connection, bench, owner._mapping)  # noqa: SLF001 - as above
    return f"belongs to the source {shown(names.get(owner.source_id, ''))}, which gives it at {place}"


def _missing(connection: Connection, bench: Bench, row: Row[Any]) -> str:
    for reference in bench.kind_table.references:
        values = [getattr(row, name) for name in reference.columns]
        if values[-1] == "" or _is_true(connection, stands(connection, reference, tuple(map(literal, values)))):
            continue
        named = f"refers to the {reference.kind} {shown(values[-1])} ({reference.field})"
        if _is_given(connection, reference, values):
            return f"{named}, which is left out itself"
        return f"{named}, which is nowhere in the directory"
    return "lies below a folder that is left out"


def _is_given(connection: Connection, reference: Reference, values: list[str]) -> bool:
    target = BENCH_OF_KIND[reference.kind]
    given = exists().where(*(target.source.c[name] == value for name, value in zip(target.keys, values, strict=True)))
    return _is_true(connection, given)


def _is_true(connection: Connection, condition: Any) -> bool:
    return bool(connection.execute(select(condition)).scalar())


def _is_in_cycle(connection: Connection, bench: Bench, row: Row[Any]) -> bool:
    """Whether the way up from a folder leads back to it; ``UNION`` ends the walk where it repeats itself."""
    source = bench.source
    above = select(
        literal(row.organization_id).label("organization_id"), literal(row.parent_folder_id).label("folder_id")
    ).cte("above", recursive=True)
    above = above.union(
        select(source.c.organization_id, source.c.parent_folder_id).where(
            source.c.organization_id == above.c.organization_id,
            source.c.folder_id == above.c.folder_id,
            ~exists().where(
                same(bench.left_out, source, bench.source_keys), bench.left_out.c.cause == Cause.OWNED_ELSEWHERE
            ),
        )
    )
    return _is_true(connection, exists(select(above.c.folder_id).where(above.c.folder_id == row.folder_id)))
