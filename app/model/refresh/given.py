"""What the sources give: each thing that a source says once, and users by their ids.

The rules: ``app/model/README.md``, "From a read to a revision".

A source may say one thing several times, made from several of its objects, and name a user by an alias. The merge goes
by what is left when that is sorted out: one row for each key and source in ``ScratchTables.given``. That is a
view: where nothing of a kind has to be sorted out, it shows the sources' records themselves, and costs nothing.

* Of a membership, group member, grant or context grant that is said several times, the most permissive role and the
  latest end hold; one that does not end is the latest.
* Of anything else the first counts, in the order of objects and rules, whatever the order of reading was.
* A pushed record hides what the objects of its source give under the same key, until a read removes it.
* An alias becomes the id of the one user who has it; one that nobody has, or that several have, stays.

A merge by key sorts out what is said under the keys that it touches, always into ``combined``.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, func, literal_column, select

from app.database.statements import run
from app.model.refresh.aliases import holder
from app.model.refresh.problems import Problem, ProblemList, ProblemSort
from app.model.refresh.scratch import FILLED_USER, MODEL_TABLES, ModelTables, described, show, shown_query
from app.model.refresh.staging import UNCONFIGURED_POSITION

# The names of one user are few, so that what is told of a record begins with its key as ever.
_COMBINE_NAMED = """
INSERT INTO {combined} ({keys}, source_id, place{values})
SELECT {keys}, source_id, MIN(place){newest} FROM (
  SELECT {others}, s.source_id, s.place, {own_values}
    CASE WHEN r.user_id IS NULL THEN s.user_id ELSE r.user_id END AS user_id,
    CASE WHEN r.user_id IS NULL THEN s.user_alias ELSE '' END AS user_alias
  FROM {source} s LEFT JOIN refresh_resolved_alias r ON s.user_alias <> '' AND r.alias = s.user_alias {where_shown}
) AS named GROUP BY {keys}, source_id
"""

# A cross join keeps SQLite from reading the source's table to look its rows up among the touched.
_WRITTEN = """
SELECT {read}, s.source_id, s.place, {own_values} s.user_id, s.user_alias
FROM {touched} t CROSS JOIN {source} s WHERE {same} {late} AND (t.user_alias = '' OR {holder} IS NULL) AND {shown}
"""

_BY_ALIAS = """
SELECT {read}, s.source_id, s.place, {own_values} t.user_id, '' AS user_alias
FROM {touched} t CROSS JOIN {holders} r CROSS JOIN {source} s
WHERE t.user_id <> '' AND r.user_id = t.user_id AND {same} AND s.user_id = '' AND s.user_alias = r.alias {late} {only}
AND {shown}
"""

_ONE_HOLDER = "AND NOT EXISTS (SELECT 1 FROM model_user_alias o WHERE o.alias = r.alias AND o.user_id <> r.user_id)"

_UNCHANGED_ALIAS = "AND NOT EXISTS (SELECT 1 FROM refresh_former_alias f WHERE f.alias = r.alias)"

_COMBINE_TOUCHED = """
INSERT INTO {combined} ({keys}, source_id, place{values})
SELECT {keys}, source_id, MIN(place){newest} FROM ({arms}) AS named GROUP BY {keys}, source_id
"""

_COMBINE_OTHERS = """
INSERT INTO {combined} ({columns})
SELECT {columns} FROM (SELECT {columns}, {rank} AS rank FROM {source} WHERE {within}) AS ranked WHERE rank = 1
"""

_COUNT_REPEATED = """
SELECT source_id, SUM(given - 1) AS more FROM (
  SELECT source_id, COUNT(*) AS given FROM {source} WHERE {within} AND origin <> '' AND source_id IN (
    SELECT source_id FROM directory_source WHERE position < :unconfigured)
  GROUP BY {keys} HAVING COUNT(*) > 1) AS repeated
GROUP BY source_id
"""

_GIVEN_AGAIN = """
SELECT {keys}, MIN(place) AS place FROM {source} WHERE {within} AND origin <> '' GROUP BY {keys} HAVING COUNT(*) > 1
"""

_REPEATED = """
SELECT r.*, f.place AS first_place
FROM (SELECT s.*, {rank} AS rank FROM {source} s WHERE {within} AND origin <> '') AS r
JOIN (SELECT s.*, {rank} AS rank FROM {source} s WHERE {within} AND origin <> '') AS f ON {same} AND f.rank = 1
WHERE r.rank > 1 AND r.source_id = :source_id
ORDER BY {keys}, r.rank LIMIT :most
"""

_RANK = "ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY origin @bytes, LENGTH(rule), rule @bytes)"

_ALL = "1 = 1"
"""A condition that every row meets."""

_NEWEST = {
    # Editor stands before viewer in the alphabet, too.
    "access_role": "MIN(access_role)",
    "expires_at": "CASE WHEN COUNT(expires_at) < COUNT(*) THEN NULL ELSE MAX(expires_at) END",
}

NOBODY: ColumnElement[str] = literal_column("''")
"""Written out, because the databases use indexes of a part of the rows only where they see that it is that part."""


def give(connection: Connection, tables: ModelTables) -> bool:
    """Sorts out what the sources say of the kind, after the users were merged whom it may name by aliases.

    Whether there was anything to sort out: ``combined``, which is empty, is filled then.
    """
    is_repeated = says_repeatedly(connection, tables)
    if tables.record_kind.names_user and (is_repeated or names_aliases(connection, tables)):
        _combine_named(connection, tables)
    elif is_repeated:
        _combine_others(connection, tables, within=_ALL)
    else:
        show(connection, tables, tables.source.name)
        return False
    show(connection, tables, tables.combined.name)
    return True


def give_touched(connection: Connection, tables: ModelTables, *, late: bool = False, former: bool = False) -> None:
    """Fills ``combined``, which is empty, with what the sources say under the touched keys; ``late``: under those that
    are touched late alone. ``former``: by whose the aliases were before."""
    if tables.record_kind.names_user:
        _combine_touched(connection, tables, late=late, former=former)
        return
    _combine_others(connection, tables, within=_within_touched(tables, "late = 1" if late else "1 = 1"))


def _combine_others(connection: Connection, tables: ModelTables, *, within: str) -> None:
    """Fills ``combined`` with the record of each key that counts, where no aliases name users."""
    run(
        connection,
        _COMBINE_OTHERS,
        rank=_rank(tables),
        columns=", ".join(column.name for column in tables.combined.columns),
        combined=tables.combined.name,
        source=tables.source.name,
        within=within,
    )


def count_repeated(connection: Connection, tables: ModelTables) -> dict[int, int]:
    """Source → how many records ``report_repeated`` counts under the touched keys, late ones left out: of those nothing
    has changed."""
    return _count_repeated(connection, tables, within=_within_touched(tables, "late = 0"))


def _count_repeated(connection: Connection, tables: ModelTables, *, within: str) -> dict[int, int]:
    repeated = run(
        connection,
        _COUNT_REPEATED,
        {"unconfigured": UNCONFIGURED_POSITION},
        source=tables.source.name,
        within=within,
        keys=", ".join(tables.given_keys),
    )
    return {row.source_id: int(row.more) for row in repeated}


def rows_repeated(connection: Connection, tables: ModelTables) -> Sequence[Row[Any]]:
    """What sources give several times under the touched keys of a kind, each once."""
    return run(
        connection,
        _GIVEN_AGAIN,
        source=tables.source.name,
        within=_within_touched(tables, "late = 0"),
        keys=", ".join(tables.given_keys),
    ).all()


def show_filled(connection: Connection, users: ModelTables, origin: str) -> None:
    """The same for users, with what ``FILLED_USER`` holds of them."""
    filled = {"disabled", "payload", "digest"}
    names = ", ".join(
        f"COALESCE(f.{column.name}, s.{column.name}) AS {column.name}" if column.name in filled else f"s.{column.name}"
        for column in users.given.columns
    )
    for statement in shown_query(
        users,
        f"SELECT {names} FROM {origin} s LEFT JOIN {FILLED_USER.name} f"  # noqa: S608 - as above
        " ON f.user_id = s.user_id AND f.source_id = s.source_id",
    ):
        connection.exec_driver_sql(statement)


def origin_of_users(connection: Connection, users: ModelTables) -> str:
    """Where the users stand before they are filled."""
    return users.combined.name if _any_row(connection, users.combined) else users.source.name


def names_aliases(connection: Connection, tables: ModelTables) -> bool:
    """Whether any record of the kind names a user by an alias."""
    return connection.execute(_aliases(tables.source)).first() is not None


def says_repeatedly(connection: Connection, tables: ModelTables) -> bool:
    """Whether a source says anything of the kind several times."""
    if connection.execute(_origins(tables.source)).first() is None:
        return False
    return connection.execute(_repeated(tables.source, tables.given_keys)).first() is not None


# Put together once: that takes longer than to execute them for a few rows.


@cache
def _aliases(source: Table) -> Select[str]:
    return select(source.c.user_alias).where(source.c.user_alias != NOBODY).limit(1)


@cache
def _origins(source: Table) -> Select[int]:
    return select(source.c.source_id).where(source.c.origin != NOBODY).limit(1)


@cache
def _pushed(source: Table) -> Select[int]:
    return select(source.c.source_id).where(source.c.origin == NOBODY).limit(1)


@cache
def _repeated(source: Table, given_keys: tuple[str, ...]) -> Select[Any]:
    columns = [source.c[name] for name in given_keys]
    return select(columns[0]).group_by(*columns).having(func.count() > 1).limit(1)


def _any_row(connection: Connection, combined: Table) -> bool:
    return connection.exec_driver_sql(f"SELECT 1 FROM {combined.name} LIMIT 1").first() is not None  # noqa: S608 - our own tables


def report_repeated(connection: Connection, names: Mapping[int, str], problems: ProblemList) -> None:
    """Counts the records that a source gives again from another object, where only the first can count.

    Those of a source that is no longer configured are not told of: nobody can mend them there.
    """
    for tables in MODEL_TABLES:
        if not tables.record_kind.names_user and _any_row(connection, tables.combined):
            more = _count_repeated(connection, tables, within=_ALL)
            _report(connection, tables, names, problems, more, within=_ALL)


def report_touched_repeated(
    connection: Connection,
    tables: ModelTables,
    names: Mapping[int, str],
    problems: ProblemList,
    counts: Mapping[int, int],
) -> None:
    """The same for the touched keys of a kind, of which so many were counted."""
    if counts:
        _report(connection, tables, names, problems, counts, within=_within_touched(tables, "late = 0"))


def _report(
    connection: Connection,
    tables: ModelTables,
    names: Mapping[int, str],
    problems: ProblemList,
    counts: Mapping[int, int],
    *,
    within: str,
) -> None:
    sample = [
        Problem(
            ProblemSort.DUPLICATE,
            names.get(row.source_id, ""),
            row.place,
            f"{described(tables, row)} stands at {row.first_place} as well, which counts",
        )
        for source_id in sorted(one for one, count in counts.items() if count)
        for row in run(
            connection,
            _REPEATED,
            {"most": problems.of_each, "source_id": source_id},
            rank=_rank(tables),
            source=tables.source.name,
            same=" AND ".join(f"f.{name} = r.{name}" for name in tables.given_keys),
            keys=", ".join(f"r.{name}" for name in tables.given_keys),
            within=within,
        )
    ]
    problems.add_counted(ProblemSort.DUPLICATE, {names.get(one, ""): count for one, count in counts.items()}, sample)


def _combine_named(connection: Connection, tables: ModelTables) -> None:
    is_pushed = connection.execute(_pushed(tables.source)).first() is not None
    values = [column.name for column in tables.access.columns if column.name not in tables.keys]
    keys = tables.owned_keys
    run(
        connection,
        _COMBINE_NAMED,
        combined=tables.combined.name,
        source=tables.source.name,
        keys=", ".join(keys),
        others=", ".join(f"s.{name}" for name in keys if name not in {"user_id", "user_alias"}),
        own_values="".join(f"s.{name}, " for name in values),
        values="".join(f", {name}" for name in values),
        newest="".join(f", {_NEWEST[name]}" for name in values),
        where_shown=f"WHERE {_shown(tables)}" if is_pushed else "",
    )


def _shown(tables: ModelTables) -> str:
    """That no pushed record of the same source and key hides the row ``s``."""
    same = " AND ".join(f"p.{name} = s.{name}" for name in tables.given_keys)
    return f"(s.origin = '' OR NOT EXISTS (SELECT 1 FROM {tables.source.name} p WHERE {same} AND p.origin = ''))"  # noqa: S608 - our own names


def _combine_touched(connection: Connection, tables: ModelTables, *, late: bool, former: bool) -> None:
    values = [column.name for column in tables.access.columns if column.name not in tables.keys]
    keys = tables.owned_keys
    others = [name for name in keys if name not in {"user_id", "user_alias"}]
    written = _arm(_WRITTEN, keys, holder=holder("t.user_alias", former=former))
    only = f"{_ONE_HOLDER} {_UNCHANGED_ALIAS}" if former else _ONE_HOLDER
    arms = [written, _arm(_BY_ALIAS, others, holders="model_user_alias", only=only)]
    if former:
        arms.append(_arm(_BY_ALIAS, others, holders="refresh_former_alias", only=""))
    run(
        connection,
        _COMBINE_TOUCHED.replace("{arms}", " UNION ALL ".join(arms)),
        combined=tables.combined.name,
        source=tables.source.name,
        touched=tables.touched.name,
        keys=", ".join(keys),
        read=", ".join(f"s.{name}" for name in others),
        own_values="".join(f"s.{name}, " for name in values),
        values="".join(f", {name}" for name in values),
        newest="".join(f", {_NEWEST[name]}" for name in values),
        late="AND t.late = 1" if late else "",
        shown=_shown(tables),
    )


def _arm(template: str, same: Sequence[str], **parts: str) -> str:
    for name, part in {"same": " AND ".join(f"s.{one} = t.{one}" for one in same), **parts}.items():
        template = template.replace("{" + name + "}", part)
    return template


def _within_touched(tables: ModelTables, which: str) -> str:
    """Told so that both databases look rows up by key, one by one."""
    keys = ", ".join(tables.owned_keys)
    return f"({keys}) IN (SELECT {keys} FROM {tables.touched.name} WHERE {which})"  # noqa: S608 - our own names


def _rank(tables: ModelTables) -> str:
    return _RANK.replace("{keys}", ", ".join(tables.given_keys))
