"""The reasons, in words, why a record was left out.

The sets only know that a record does not count. For the few that are listed in a report the reason is looked up here,
one by one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, FromClause, Row, and_, case, exists, func, literal, select

from app.model.refresh.problems import Problem, ProblemList, ProblemSort
from app.model.refresh.scope import Scope
from app.model.refresh.scratch import (
    RESOLVED_ALIAS,
    SCRATCH_TABLES,
    TABLES_OF_KIND,
    USER_ALIAS,
    LeftOutCause,
    ModelTables,
    ScratchTables,
    described,
    place_of,
    same,
)
from app.model.refresh.staging import RETAINED, SOURCE
from app.store.record_tables import Reference
from app.text import quoted

_SORTS = {
    LeftOutCause.OWNED_ELSEWHERE: ProblemSort.OWNED_ELSEWHERE,
    LeftOutCause.DANGLING: ProblemSort.DANGLING,
    LeftOutCause.UNREACHABLE: ProblemSort.DANGLING,
    LeftOutCause.AMBIGUOUS: ProblemSort.AMBIGUOUS,
}


def report_left_out(
    connection: Connection,
    scope: Scope,
    names: Mapping[int, str],
    problems: ProblemList,
    kinds: Iterable[ScratchTables] = SCRATCH_TABLES,
) -> None:
    """Counts all records that were left out, and words the reasons of those for which there is room.

    Those of a source that is no longer configured are not told of one by one: nobody can mend them there.
    """
    for tables in kinds:
        left_out = tables.left_out
        for cause, count in connection.execute(
            select(left_out.c.cause, func.count())
            .where(left_out.c.source_id.not_in(RETAINED))
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
    for tables in SCRATCH_TABLES:
        given, staged, left_out = tables.given, tables.staged, tables.left_out
        meant: dict[str, ColumnElement[Any]] = {name: staged.c[name] for name in tables.given_keys}
        written: FromClause = staged
        # Fills are given as they are.
        if isinstance(tables, ModelTables) and tables.record_kind.names_user:
            # By the id of the user whose alias it is, as it is given.
            user_id = RESOLVED_ALIAS.c.user_id
            written = staged.outerjoin(RESOLVED_ALIAS, RESOLVED_ALIAS.c.alias == staged.c.user_alias)
            meant["user_id"] = func.coalesce(user_id, staged.c.user_id)
            meant["user_alias"] = case((user_id.is_(None), staged.c.user_alias), else_="")
        is_left_out = and_(*(left_out.c[name] == value for name, value in meant.items()))
        rows = (
            select(given, left_out.c.cause, staged.c.place.label("staged_at"))
            .select_from(written.join(left_out, is_left_out).join(given, same(given, left_out, tables.given_keys)))
            .order_by(staged.c.seq)
        )
        for row in connection.execute(rows).all():
            problem = _problem(connection, scope, tables, row, names)
            found.append(replace(problem, place=row.staged_at))
    return found


def _sampled(tables: ScratchTables, cause: int, limit: int) -> Any:
    left_out, given = tables.left_out, tables.given
    return (
        select(given, left_out.c.cause)
        .select_from(left_out.join(given, same(left_out, given, tables.given_keys)))
        .where(left_out.c.cause == cause, left_out.c.source_id.not_in(RETAINED))
        .order_by(*(left_out.c[name] for name in tables.given_keys))
        .limit(limit)
    )


def _problem(
    connection: Connection, scope: Scope, tables: ScratchTables, row: Row[Any], names: Mapping[int, str]
) -> Problem:
    """Why a row of ``tables.source``, with its ``cause``, was left out; for as long as the deltas are the merge's."""
    cause = LeftOutCause(row.cause)
    sort = _SORTS[cause]
    if cause == LeftOutCause.OWNED_ELSEWHERE:
        reason = _owner(connection, tables, row, names)
    elif cause == LeftOutCause.AMBIGUOUS:
        reason = _several(connection, row.user_alias)
    elif cause == LeftOutCause.UNREACHABLE and _is_in_cycle(connection, tables, row):
        sort = ProblemSort.FOLDER_CYCLE
        reason = "is in a cycle of folders"
    else:
        reason = _missing(connection, scope, tables, row)
    place = place_of(connection, tables, row._mapping)  # noqa: SLF001 - a public part of Row, underscored against clashes
    return Problem(sort, names.get(row.source_id, ""), place, f"{described(tables, row)} {reason}")


def _owner(connection: Connection, tables: ScratchTables, row: Row[Any], names: Mapping[int, str]) -> str:
    given = tables.given
    owner = connection.execute(
        select(given)
        .select_from(given.join(SOURCE, SOURCE.c.source_id == given.c.source_id))
        .where(*(given.c[name] == getattr(row, name) for name in tables.owned_keys))
        .order_by(SOURCE.c.position)
        .limit(1)
    ).one()
    place = place_of(connection, tables, owner._mapping)  # noqa: SLF001 - as above
    return f"belongs to the source {quoted(names.get(owner.source_id, ''))}, which gives it at {place}"


def _several(connection: Connection, alias: str) -> str:
    users = connection.execute(
        select(USER_ALIAS.c.user_id).where(USER_ALIAS.c.alias == alias).order_by(USER_ALIAS.c.user_id).limit(3)
    ).scalars()
    return f"refers to the user {quoted(alias)} (userAlias), an alias of several: {', '.join(map(quoted, users))}"


def _missing(connection: Connection, scope: Scope, tables: ScratchTables, row: Row[Any]) -> str:
    alias = getattr(row, "user_alias", "")
    if alias:
        return f"refers to the user {quoted(alias)} (userAlias), an alias that nobody has"
    for reference in tables.references:
        values = [getattr(row, name) for name in reference.columns]
        if values[-1] == "" or _is_true(connection, scope.stands(reference, tuple(map(literal, values)))):
            continue
        named = f"refers to the {reference.kind} {quoted(values[-1])} ({reference.field})"
        if _is_given(connection, reference, values):
            return f"{named}, which is left out itself"
        return f"{named}, which is nowhere in the directory"
    # A folder whose way up ends at one that is left out further up; anything else has a reference that does not stand.
    return "lies below a folder that is left out"


def _is_given(connection: Connection, reference: Reference, values: list[str]) -> bool:
    target = TABLES_OF_KIND[reference.kind]
    given = exists().where(*(target.given.c[name] == value for name, value in zip(target.keys, values, strict=True)))
    return _is_true(connection, given)


def _is_true(connection: Connection, condition: Any) -> bool:
    return bool(connection.execute(select(condition)).scalar())


def _is_in_cycle(connection: Connection, tables: ScratchTables, row: Row[Any]) -> bool:
    """Whether the way up from a folder leads back to it; ``UNION`` ends the walk where it repeats itself."""
    given = tables.given
    above = select(
        literal(row.organization_id).label("organization_id"), literal(row.parent_folder_id).label("folder_id")
    ).cte("above", recursive=True)
    above = above.union(
        select(given.c.organization_id, given.c.parent_folder_id).where(
            given.c.organization_id == above.c.organization_id,
            given.c.folder_id == above.c.folder_id,
            ~exists().where(
                same(tables.left_out, given, tables.given_keys),
                tables.left_out.c.cause == LeftOutCause.OWNED_ELSEWHERE,
            ),
        )
    )
    return _is_true(connection, exists(select(above.c.folder_id).where(above.c.folder_id == row.folder_id)))
