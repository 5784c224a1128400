"""The reasons, in words, why a record was left out.

The sets only know that a record does not count. For the few that are listed in a report the reason is looked up here,
one by one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, FromClause, Row, and_, case, exists, func, literal, select

from app.database.statements import run
from app.model.refresh.problems import Problem, ProblemList, ProblemSort
from app.model.refresh.scope import MergeScope
from app.model.refresh.scratch import (
    SCRATCH_TABLES,
    TABLES_OF_KIND,
    LeftOutCause,
    ModelTables,
    ScratchTables,
    described,
    place_of,
    same,
)
from app.model.refresh.staging import SOURCE, UNCONFIGURED_POSITION
from app.store.record_tables import Reference
from app.text import quoted

_LEFT_OUT_OF_KIND = " UNION ALL ".join(
    f"SELECT {number} AS number, '{tables.kind}' AS kind, cause, source_id, COUNT(*) AS records"  # noqa: S608 - our own tables
    f" FROM {tables.left_out.name} WHERE source_id NOT IN"
    " (SELECT source_id FROM directory_source WHERE position >= :retained_from) GROUP BY cause, source_id"
    for number, tables in enumerate(SCRATCH_TABLES)
)

_LEFT_OUT = f"""
SELECT kind, cause, source_id, records FROM ({_LEFT_OUT_OF_KIND}) AS counted ORDER BY number, cause, source_id
"""  # noqa: S608 - as above

SORTS = {
    LeftOutCause.OWNED_ELSEWHERE: ProblemSort.OWNED_ELSEWHERE,
    LeftOutCause.DANGLING: ProblemSort.DANGLING,
    LeftOutCause.UNREACHABLE: ProblemSort.DANGLING,
    LeftOutCause.AMBIGUOUS: ProblemSort.AMBIGUOUS,
}


def report_left_out(
    connection: Connection,
    scope: MergeScope,
    names: Mapping[int, str],
    problems: ProblemList,
    kinds: Iterable[ScratchTables] = SCRATCH_TABLES,
) -> None:
    """Counts all records that were left out, and words the reasons of those for which there is room.

    Those of a source that is no longer configured are not told of one by one: nobody can mend them there.
    """
    counts: dict[str, dict[int, dict[int, int]]] = {}
    told = {"retained_from": UNCONFIGURED_POSITION}
    for kind, cause, source_id, records in run(connection, _LEFT_OUT, told).all():
        counts.setdefault(kind, {}).setdefault(cause, {})[source_id] = records
    for tables in kinds:
        for cause, of_sources in counts.get(tables.kind, {}).items():
            rows = [
                row
                for source_id in of_sources
                for row in connection.execute(_sampled(tables, scope, cause, source_id, problems.of_each)).all()
            ]
            rows.sort(key=lambda row: [getattr(row, name) for name in tables.given_keys])
            sample = [_problem(connection, scope, tables, row, names) for row in rows]
            # The sort of a folder is only known for the sample; the others count as dangling.
            in_cycles = [problem for problem in sample if problem.sort == ProblemSort.FOLDER_CYCLE]
            others = Counter({names.get(source_id, ""): count for source_id, count in of_sources.items()})
            of_cycles = Counter(problem.source for problem in in_cycles)
            others.subtract(of_cycles)
            problems.add_counted(ProblemSort.FOLDER_CYCLE, of_cycles, in_cycles)
            sort = SORTS[LeftOutCause(cause)]
            problems.add_counted(sort, others, [problem for problem in sample if problem.sort == sort])


def staged_left_out(
    connection: Connection,
    scope: MergeScope,
    names: Mapping[int, str],
    kinds: Iterable[ScratchTables] = SCRATCH_TABLES,
) -> list[Problem]:
    """What was staged and does not count, each at the place where it was staged."""
    found = []
    for tables in kinds:
        given, staged, left_out = scope.given(tables), tables.staged, tables.left_out
        meant: dict[str, ColumnElement[Any]] = {name: staged.c[name] for name in tables.given_keys}
        written: FromClause = staged
        # Fills are given as they are.
        if isinstance(tables, ModelTables) and tables.record_kind.names_user:
            # By the id of the user whose alias it is, as it is given.
            holders, others = scope.holders, scope.holders.alias("others")
            is_shared = exists().where(others.c.alias == holders.c.alias, others.c.user_id != holders.c.user_id)
            user_id = holders.c.user_id
            written = staged.outerjoin(holders, and_(holders.c.alias == staged.c.user_alias, ~is_shared))
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


def _sampled(tables: ScratchTables, scope: MergeScope, cause: int, source_id: int, limit: int) -> Any:
    left_out, given = tables.left_out, scope.given(tables)
    if isinstance(tables, ModelTables):
        query = select(given, left_out.c.cause).select_from(
            left_out.join(given, same(left_out, given, tables.given_keys))
        )
    else:
        # The fills that objects of one source add to one user are left out, and told of, as one.
        query = select(left_out)
    return (
        query.where(left_out.c.cause == cause, left_out.c.source_id == source_id)
        .order_by(*(left_out.c[name] for name in tables.given_keys))
        .limit(limit)
    )


def _problem(
    connection: Connection, scope: MergeScope, tables: ScratchTables, row: Row[Any], names: Mapping[int, str]
) -> Problem:
    """Why a row of ``tables.source``, with its ``cause``, was left out; for as long as the deltas are the merge's."""
    cause = LeftOutCause(row.cause)
    sort = SORTS[cause]
    if cause == LeftOutCause.OWNED_ELSEWHERE:
        reason = _owner(connection, scope, tables, row, names)
    elif cause == LeftOutCause.AMBIGUOUS:
        reason = _several(connection, scope, row.user_alias)
    elif cause == LeftOutCause.UNREACHABLE and _is_in_cycle(connection, row):
        sort = ProblemSort.FOLDER_CYCLE
        reason = "is in a cycle of folders"
    else:
        reason = _missing(connection, scope, tables, row)
    place = place_of(connection, tables, row._mapping)  # noqa: SLF001 - a public part of Row, underscored against clashes
    return Problem(sort, names.get(row.source_id, ""), place, f"{described(tables, row)} {reason}")


def _owner(
    connection: Connection, scope: MergeScope, tables: ScratchTables, row: Row[Any], names: Mapping[int, str]
) -> str:
    given = scope.given(tables)
    owner = connection.execute(
        select(given)
        .select_from(given.join(SOURCE, SOURCE.c.source_id == given.c.source_id))
        .where(*(given.c[name] == getattr(row, name) for name in tables.owned_keys))
        .order_by(SOURCE.c.position)
        .limit(1)
    ).one()
    place = place_of(connection, tables, owner._mapping)  # noqa: SLF001 - as above
    return f"belongs to the source {quoted(names.get(owner.source_id, ''))}, which gives it at {place}"


def _several(connection: Connection, scope: MergeScope, alias: str) -> str:
    holders = scope.holders.c
    users = connection.execute(
        select(holders.user_id).where(holders.alias == alias).order_by(holders.user_id).limit(3)
    ).scalars()
    return f"refers to the user {quoted(alias)} (userAlias), an alias of several: {', '.join(map(quoted, users))}"


def _missing(connection: Connection, scope: MergeScope, tables: ScratchTables, row: Row[Any]) -> str:
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
    given = exists().where(*(target.source.c[name] == value for name, value in zip(target.keys, values, strict=True)))
    return _is_true(connection, given)


def _is_true(connection: Connection, condition: Any) -> bool:
    return bool(connection.execute(select(condition)).scalar())


def _is_in_cycle(connection: Connection, row: Row[Any]) -> bool:
    """Whether the way up from a folder leads back to it; ``UNION`` ends the walk where it repeats itself."""
    ids = {name: getattr(row, name) for name in ("organization_id", "folder_id", "parent_folder_id")}
    return run(connection, _ABOVE, ids).first() is not None


# Of the records of one folder the one counts that stands first.
_ABOVE = """
WITH RECURSIVE above (organization_id, folder_id) AS (
  SELECT CAST(:organization_id AS TEXT), CAST(:parent_folder_id AS TEXT)
  UNION
  SELECT s.organization_id, s.parent_folder_id
  FROM above a CROSS JOIN source_folder s JOIN directory_source d ON d.source_id = s.source_id
  WHERE s.organization_id = a.organization_id AND s.folder_id = a.folder_id AND NOT EXISTS (
    SELECT 1 FROM source_folder o JOIN directory_source e ON e.source_id = o.source_id
    WHERE o.organization_id = s.organization_id AND o.folder_id = s.folder_id
    AND (e.position, o.origin @bytes, LENGTH(o.rule), o.rule @bytes)
      < (d.position, s.origin @bytes, LENGTH(s.rule), s.rule @bytes))
)
SELECT 1 FROM above WHERE folder_id = :folder_id
"""
