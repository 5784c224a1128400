"""Fills: fields that one source adds to the users of another.

What a user's own record says stands, but for an empty text, which says nothing. Of several fills that of the source
further up counts, field by field, the user's own source first. Disabled counts wherever it is true.

A fill that disables also disables the users to whom it is bound (``bindings.py``), and adds no other field to them.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice
from typing import Any

import orjson
from sqlalchemy import Connection, Row, bindparam, exists, insert, literal, or_, select, update

from app.access.kinds import KINDS
from app.access.records import Fill, Sort, User
from app.database.statements import run, statement
from app.model.refresh.aliases import holder, known
from app.model.refresh.bindings import BOUND, FILL_BINDING, collect_bindings, shown
from app.model.refresh.given import origin_of_users, show_filled
from app.model.refresh.scratch import FILLED_USER, SCRATCH_TABLES, TABLES_OF_KIND, LeftOutCause, RowChange
from app.store.record_tables import payload_and_digest

_ROWS_AT_A_TIME = 1_000

_ALIASES = next(field.name for field in KINDS[User.kind].fields if field.sort is Sort.ALIASES)

_LEAVE_OUT = """
INSERT INTO {left_out} (user_id, user_alias, source_id, cause)
SELECT DISTINCT f.user_id, f.user_alias, f.source_id,
  CASE WHEN f.user_alias <> '' AND r.user_id IS NULL
    AND EXISTS (SELECT 1 FROM refresh_user_alias a WHERE a.alias = f.user_alias) THEN {ambiguous} ELSE {dangling} END
FROM source_fill f LEFT JOIN refresh_resolved_alias r ON f.user_alias <> '' AND r.alias = f.user_alias
WHERE NOT EXISTS (SELECT 1 FROM {users} u WHERE u.user_id = COALESCE(r.user_id, f.user_id) AND NOT EXISTS (
  SELECT 1 FROM {users_left_out} l WHERE l.user_id = u.user_id AND l.source_id = u.source_id))
"""

# One row for each fill of a user that counts, those that win first. A pushed fill hides those of objects.
_FILLS = """
SELECT u.user_id, u.source_id, u.disabled, u.payload, u.digest, f.disabled AS fill_disabled, f.payload AS fill_payload
FROM {fills}
JOIN directory_source d ON d.source_id = f.source_id
JOIN {users} u ON u.user_id = f.filled_id AND NOT EXISTS (
  SELECT 1 FROM {users_left_out} l WHERE l.user_id = u.user_id AND l.source_id = u.source_id)
ORDER BY u.user_id @bytes, CASE WHEN f.source_id = u.source_id THEN 0 ELSE 1 END, d.position,
  f.user_alias @bytes, f.origin @bytes, LENGTH(f.rule), f.rule @bytes
"""

_SAID = "s.source_id, s.user_alias, s.origin, s.rule, s.disabled, s.payload"

_BOUND = "s.source_id, s.user_alias, '' AS origin, '' AS rule, true AS disabled, '{}' AS payload"

_OF_EVERYBODY = {
    "fills": f"""(
  SELECT COALESCE(r.user_id, s.user_id) AS filled_id, {_SAID}
  FROM source_fill s LEFT JOIN refresh_resolved_alias r ON s.user_alias <> '' AND r.alias = s.user_alias
  WHERE {shown("s")}
  UNION ALL
  SELECT s.user_id, {_BOUND} FROM ({BOUND}) AS s
) AS f""",  # noqa: S608 - our own names
}

# Cross joins keep SQLite from reading all fills to look their users up among the touched.
_OF_TOUCHED = {
    "fills": f"""(
  SELECT t.user_id AS filled_id, {_SAID} FROM refresh_touched_user t CROSS JOIN source_fill s
  WHERE s.user_id = t.user_id AND s.user_alias = '' AND {shown("s")}
  UNION ALL
  SELECT t.user_id, {_SAID} FROM refresh_touched_user t CROSS JOIN model_user_alias r CROSS JOIN source_fill s
  WHERE r.user_id = t.user_id AND s.user_alias = r.alias AND s.user_alias <> '' AND NOT EXISTS (
    SELECT 1 FROM model_user_alias o WHERE o.alias = r.alias AND o.user_id <> r.user_id) AND {shown("s")}
  UNION ALL
  SELECT t.user_id, {_BOUND} FROM refresh_touched_user t CROSS JOIN fill_binding s WHERE s.user_id = t.user_id
) AS f""",  # noqa: S608 - our own names
}

_TOUCH_FILLED = """
INSERT INTO refresh_touched_user (user_id, late)
SELECT DISTINCT filled_id, {late} FROM ({filled}) AS found
WHERE filled_id <> '' AND NOT EXISTS (SELECT 1 FROM refresh_touched_user t WHERE t.user_id = found.filled_id)
"""

_FILLED_BY_TOUCHED = """
SELECT t.user_id AS filled_id FROM refresh_touched_fill t
UNION SELECT a.user_id FROM refresh_touched_fill t CROSS JOIN model_user_alias a
  WHERE t.user_alias <> '' AND a.alias = t.user_alias
UNION SELECT b.user_id FROM refresh_touched_fill t CROSS JOIN fill_binding b
  WHERE t.user_alias <> '' AND b.user_alias = t.user_alias
"""

_FILLED_BY_RENAMED = """
SELECT {whom} AS filled_id FROM refresh_former_alias a
WHERE EXISTS (SELECT 1 FROM source_fill f WHERE f.user_alias = a.alias AND f.user_alias <> '')
"""

_TOUCH_FILLS = """
INSERT INTO refresh_touched_fill (user_id, user_alias, late)
SELECT DISTINCT user_id, user_alias, 1 FROM (
  SELECT f.user_id, f.user_alias FROM refresh_delta_user d CROSS JOIN source_fill f
  WHERE f.user_id = d.user_id AND f.user_alias = '' AND d.change <> {update}
  UNION ALL
  SELECT f.user_id, f.user_alias FROM refresh_former_alias a CROSS JOIN source_fill f
  WHERE f.user_alias = a.alias AND f.user_alias <> '') AS found
WHERE NOT EXISTS (
  SELECT 1 FROM refresh_touched_fill t WHERE t.user_id = found.user_id AND t.user_alias = found.user_alias)
"""

_LEFT_OUT_BEFORE = """
SELECT f.user_id, f.user_alias, f.source_id, (
    SELECT o.place FROM source_fill o
    WHERE o.user_id = f.user_id AND o.user_alias = f.user_alias AND o.source_id = f.source_id
    ORDER BY o.origin, o.rule LIMIT 1) AS place,
  CASE WHEN f.user_alias <> '' AND {known} THEN {ambiguous} ELSE {dangling} END AS cause
FROM refresh_touched_fill t CROSS JOIN source_fill f
WHERE f.user_id = t.user_id AND f.user_alias = t.user_alias AND t.late = {late} AND NOT EXISTS (
  SELECT 1 FROM model_user u WHERE u.user_id = COALESCE({former}, f.user_id))
GROUP BY f.user_id, f.user_alias, f.source_id
"""

_LEAVE_OUT_TOUCHED = f"""
INSERT INTO refresh_left_out_fill (user_id, user_alias, source_id, cause)
SELECT DISTINCT user_id, user_alias, source_id, CASE WHEN user_alias <> '' AND holder IS NULL
    AND EXISTS (SELECT 1 FROM model_user_alias a WHERE a.alias = user_alias) THEN {{ambiguous}} ELSE {{dangling}} END
FROM (
  SELECT f.user_id, f.user_alias, f.source_id, {holder("f.user_alias")} AS holder
  FROM refresh_touched_fill t CROSS JOIN source_fill f
  WHERE f.user_id = t.user_id AND f.user_alias = t.user_alias) AS named
WHERE NOT EXISTS (
  SELECT 1 FROM refresh_delta_user d WHERE d.user_id = COALESCE(holder, named.user_id) AND d.change = {{add}})
AND NOT EXISTS (
  SELECT 1 FROM model_user u WHERE u.user_id = COALESCE(holder, named.user_id) AND NOT EXISTS (
    SELECT 1 FROM refresh_delta_user d WHERE d.user_id = u.user_id AND d.change = {{remove}}))
"""  # noqa: S608 - as above

_FILLS_OF = {tables.kind: tables for tables in SCRATCH_TABLES}[Fill.kind]

_ANY_FILL = select(literal(1)).where(
    or_(exists(select(_FILLS_OF.source.c.source_id)), exists(select(FILL_BINDING.c.source_id)))
)


def apply_fills(connection: Connection) -> None:
    """Fills the users that count in ``given``; after the users were merged and their aliases collected.

    ``left_out`` of the fills and ``FILLED_USER`` are empty."""
    users = TABLES_OF_KIND[User.kind]
    collect_bindings(connection)
    if not any_fills(connection):
        return
    tables = {"users": users.given.name, "users_left_out": users.left_out.name}
    run(
        connection,
        _LEAVE_OUT,
        left_out=_FILLS_OF.left_out.name,
        ambiguous=str(int(LeftOutCause.AMBIGUOUS)),
        dangling=str(int(LeftOutCause.DANGLING)),
        **tables,
    )
    streaming = {"yield_per": _ROWS_AT_A_TIME}
    query = statement(connection, _FILLS, **tables, **_OF_EVERYBODY)
    users_filled = filled(connection.execute(query, execution_options=streaming))
    while batch := list(islice(users_filled, _ROWS_AT_A_TIME)):
        connection.execute(insert(FILLED_USER), batch)
    if connection.execute(select(FILLED_USER.c.user_id).limit(1)).first() is not None:
        show_filled(connection, users, origin_of_users(connection, users))


class TouchedFills:
    """Fills in a merge by key, in the transaction of a connection: those that a change touches, and their users."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tables = TABLES_OF_KIND[User.kind]
        self._former = holder("f.user_alias", former=True)

    def touch_users(self) -> int:
        """Touches the users whom the fills add to that are touched so far; how many more."""
        return run(self._connection, _TOUCH_FILLED, filled=_FILLED_BY_TOUCHED, late="0").rowcount

    def touch_renamed(self) -> int:
        """Touches the users to whom fills added, or add now, that name them by an alias that changed; how many more."""
        whom = ("a.user_id", holder("a.alias"))
        found = " UNION ALL ".join(_FILLED_BY_RENAMED.format(whom=one) for one in whom)
        return run(self._connection, _TOUCH_FILLED, filled=found, late="1").rowcount

    def apply(self) -> None:
        """Fills the touched users that count in ``combined``."""
        users = self._tables
        parts = {"users": users.combined.name, "users_left_out": users.left_out.name}
        query = statement(self._connection, _FILLS, **parts, **_OF_TOUCHED)
        rows = [_as_parameters(row) for row in filled(self._connection.execute(query))]
        if rows:
            user = users.combined.c
            same_user = user.user_id == bindparam("of_user"), user.source_id == bindparam("of_source")
            self._connection.execute(update(users.combined).where(*same_user), rows)

    def touch(self) -> int:
        """Touches the fills that name a user who comes or goes, by id or by an alias that changed; how many more.

        After the users were compared.
        """
        return run(self._connection, _TOUCH_FILLS, update=str(int(RowChange.UPDATE))).rowcount

    def left_out_before(self, *, late: bool, renamed: bool) -> list[Row[Any]]:
        """The touched fills that did not count, of those that are touched late or of the others, each with its source
        and cause; ``renamed``: aliases have changed hands meanwhile."""
        rows = run(
            self._connection,
            _LEFT_OUT_BEFORE,
            former=self._former,
            known=known("f.user_alias", former=renamed),
            late=str(int(late)),
            ambiguous=str(int(LeftOutCause.AMBIGUOUS)),
            dangling=str(int(LeftOutCause.DANGLING)),
        )
        return list(rows)

    def leave_out(self) -> None:
        """Fills ``left_out`` with those of the touched fills that do not count."""
        run(
            self._connection,
            _LEAVE_OUT_TOUCHED,
            ambiguous=str(int(LeftOutCause.AMBIGUOUS)),
            dangling=str(int(LeftOutCause.DANGLING)),
            add=str(int(RowChange.ADD)),
            remove=str(int(RowChange.REMOVE)),
        )


def _as_parameters(row: Mapping[str, object]) -> dict[str, object]:
    values = dict(row)
    return {"of_user": values.pop("user_id"), "of_source": values.pop("source_id"), **values}


def any_fills(connection: Connection) -> bool:
    """Whether any source fills users, or did so when users were merged before."""
    return connection.execute(_ANY_FILL).first() is not None


def filled(rows: Iterable[Row[Any]]) -> Iterator[Mapping[str, object]]:
    """The users whom their fills change, as rows of ``FILLED_USER``."""
    for user_id, fills in groupby(rows, key=lambda row: row.user_id):
        disabled, fields = False, dict[str, object]()
        for row in fills:
            disabled = disabled or row.disabled or row.fill_disabled
            fields = fields or orjson.loads(row.payload)
            add_fill(fields, row.fill_payload)
        payload, digest = payload_and_digest(fields)
        if digest != row.digest or bool(disabled) != bool(row.disabled):
            yield {
                "user_id": user_id,
                "source_id": row.source_id,
                "disabled": bool(disabled),
                "payload": payload,
                "digest": digest,
            }


def add_fill(fields: dict[str, object], payload: str) -> list[str]:
    """Adds what a fill says to a user's fields, where they say nothing; the names of those that it adds."""
    added = []
    for name, value in orjson.loads(payload).items():
        there = fields.get(name)
        # Fills that were kept before these were refused may have aliases, which nobody is sent.
        if value is not None and name != _ALIASES and (there is None or there == ""):
            fields[name] = value
            added.append(name)
    return added
