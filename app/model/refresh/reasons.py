"""The reasons, in words, why a record was left out.

The sets only know that a record does not count. For the few that are listed in a report the reason is looked up here,
one by one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, exists, func, literal, select

from app.model.refresh.problems import Problem, ProblemList, ProblemSort
from app.model.refresh.scope import Scope
from app.model.refresh.scratch import (
    MODEL_TABLES,
    TABLES_OF_KIND,
    LeftOutCause,
    ModelTables,
    described,
    place_of,
    same,
)
from app.model.refresh.staging import SOURCE, UNCONFIGURED_POSITION
from app.store.record_tables import Reference
from app.text import quoted

_SORTS = {
    LeftOutCause.OWNED_ELSEWHERE: ProblemSort.OWNED_ELSEWHERE,
    LeftOutCause.DANGLING: ProblemSort.DANGLING,
    LeftOutCause.UNREACHABLE: ProblemSort.DANGLING,
}


_RETAINED = select(SOURCE.c.source_id).where(SOURCE.c.position >= UNCONFIGURED_POSITION)


def report_left_out(
    connection: Connection,
    scope: Scope,
    names: Mapping[int, str],
    problems: ProblemList,
    kinds: Iterable[ModelTables] = MODEL_TABLES,
) -> None:
    """Counts all records that were left out, and words the reasons of those for which there is room.

    Those of a source that is no longer configured are not told of one by one: nobody can mend them there.
    """
    for tables in kinds:
        left_out = tables.left_out
        for cause, count in connection.execute(
            select(left_out.c.cause, func.count())
            .where(left_out.c.source_id.not_in(_RETAINED))
            .group_by(left_out.c.cause)
            .order_by(left_out.c.cause)
        ).all():
            sample = [
                _problem(connection, scope, tables, row, names)
                for row in connection.execute(_sampled(tables, cause, problems.room)).all()
            ]
            in_cycles = sum(problem.sort == ProblemSort.FOLDER_CYCLE for problem in sample)
            # The sort of a folder is only known for the sample; the others count as dangling.
            problems.add_counted(ProblemSort.FOLDER_CYCLE, in_cycles, [])
            problems.add_counted(_SORTS[LeftOutCause(cause)], count - in_cycles, sample)


def staged_left_out(connection: Connection, scope: Scope, names: Mapping[int, str]) -> list[Problem]:
    """What was staged and does not count, each at the place where it was staged."""
    found = []
    for tables in MODEL_TABLES:
        source, staged, left_out = tables.source, tables.staged, tables.left_out
        rows = (
            select(source, left_out.c.cause, staged.c.place.label("staged_at"))
            .select_from(
                staged.join(source, same(staged, source, tables.source_keys)).join(
                    left_out, same(left_out, source, tables.source_keys)
                )
            )
            .order_by(staged.c.seq)
        )
        for row in connection.execute(rows).all():
            problem = _problem(connection, scope, tables, row, names)
            found.append(replace(problem, place=row.staged_at))
    return found


def _sampled(tables: ModelTables, cause: int, limit: int) -> Any:
    left_out, source = tables.left_out, tables.source
    return (
        select(source, left_out.c.cause)
        .select_from(left_out.join(source, same(left_out, source, tables.source_keys)))
        .where(left_out.c.cause == cause, left_out.c.source_id.not_in(_RETAINED))
        .order_by(*(left_out.c[name] for name in tables.source_keys))
        .limit(limit)
    )


def _problem(
    connection: Connection, scope: Scope, tables: ModelTables, row: Row[Any], names: Mapping[int, str]
) -> Problem:
    """Why a row of ``tables.source``, with its ``cause``, was left out; for as long as the deltas are the merge's."""
    cause = LeftOutCause(row.cause)
    sort = _SORTS[cause]
    if cause == LeftOutCause.OWNED_ELSEWHERE:
        reason = _owner(connection, tables, row, names)
    elif cause == LeftOutCause.UNREACHABLE and _is_in_cycle(connection, tables, row):
        sort = ProblemSort.FOLDER_CYCLE
        reason = "is in a cycle of folders"
    else:
        reason = _missing(connection, scope, tables, row)
    place = place_of(connection, tables, row._mapping)  # noqa: SLF001 - a public part of Row, underscored against clashes
    return Problem(sort, names.get(row.source_id, ""), place, f"{described(tables, row)} {reason}")


def _owner(connection: Connection, tables: ModelTables, row: Row[Any], names: Mapping[int, str]) -> str:
    source = tables.source
    owner = connection.execute(
        select(source)
        .select_from(source.join(SOURCE, SOURCE.c.source_id == source.c.source_id))
        .where(*(source.c[name] == getattr(row, name) for name in tables.keys))
        .order_by(SOURCE.c.position)
        .limit(1)
    ).one()
    place = place_of(connection, tables, owner._mapping)  # noqa: SLF001 - as above
    return f"belongs to the source {quoted(names.get(owner.source_id, ''))}, which gives it at {place}"


def _missing(connection: Connection, scope: Scope, tables: ModelTables, row: Row[Any]) -> str:
    for reference in tables.kind_table.references:
        values = [getattr(row, name) for name in reference.columns]
        if values[-1] == "" or _is_true(connection, scope.stands(reference, tuple(map(literal, values)))):
            continue
        named = f"refers to the {reference.kind} {quoted(values[-1])} ({reference.field})"
        if _is_given(connection, reference, values):
            return f"{named}, which is left out itself"
        return f"{named}, which is nowhere in the directory"
    return "lies below a folder that is left out"


def _is_given(connection: Connection, reference: Reference, values: list[str]) -> bool:
    target = TABLES_OF_KIND[reference.kind]
    given = exists().where(*(target.source.c[name] == value for name, value in zip(target.keys, values, strict=True)))
    return _is_true(connection, given)


def _is_true(connection: Connection, condition: Any) -> bool:
    return bool(connection.execute(select(condition)).scalar())


def _is_in_cycle(connection: Connection, tables: ModelTables, row: Row[Any]) -> bool:
    """Whether the way up from a folder leads back to it; ``UNION`` ends the walk where it repeats itself."""
    source = tables.source
    above = select(
        literal(row.organization_id).label("organization_id"), literal(row.parent_folder_id).label("folder_id")
    ).cte("above", recursive=True)
    above = above.union(
        select(source.c.organization_id, source.c.parent_folder_id).where(
            source.c.organization_id == above.c.organization_id,
            source.c.folder_id == above.c.folder_id,
            ~exists().where(
                same(tables.left_out, source, tables.source_keys),
                tables.left_out.c.cause == LeftOutCause.OWNED_ELSEWHERE,
            ),
        )
    )
    return _is_true(connection, exists(select(above.c.folder_id).where(above.c.folder_id == row.folder_id)))
