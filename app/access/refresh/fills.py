"""Applies fills during a refresh: each adds fields to a user whose record is elsewhere, or disables the user.

The rules: ``app/access/README.md``, "The merge" and "Disabling fills". A fill that disables by an alias *binds* the
users who have it: they stay disabled when they lose the alias, as long as the source disables the alias.
``app.foundation.database.statements`` explains the markers of statements, such as ``@bytes``.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice
from typing import Any

import orjson
from sqlalchemy import Connection, Row, Table

from app.access.candidate import shadow
from app.access.kinds import KINDS
from app.access.problem_list import ProblemSample, ProblemSamples
from app.access.problems import Problem, UnclearDisabling
from app.access.record_tables import payload_and_digest
from app.access.records import FieldType, Fill, User
from app.access.refresh.session import RefreshSession
from app.access.refresh.tables import CHANGE_PARTS, REFRESH_TABLES_OF_KIND
from app.access.source_tables import FillBindingRow
from app.foundation.database.statements import run, statement

FILL_BINDING: Table = FillBindingRow.__table__

_BATCH_ROWS = 1_000

_ALIASES = next(field.name for field in KINDS[User.kind].fields if field.type is FieldType.ALIASES)

# Users that fills affect.

_CHANGED_FILLS = """
INSERT INTO refresh_changed_fill (user_id, user_alias) SELECT DISTINCT user_id, user_alias FROM {source_delta}
"""

_ALL_FILLS = """
INSERT INTO refresh_changed_fill (user_id, user_alias)
SELECT user_id, user_alias FROM source_fill UNION SELECT '', user_alias FROM fill_binding
"""

_HAS_FILLS = "SELECT EXISTS (SELECT 1 FROM source_fill) OR EXISTS (SELECT 1 FROM fill_binding)"

# Cross joins stop SQLite from reading all fills.
_FILLED_USERS = """
INSERT INTO refresh_changed_user (user_id)
SELECT f.user_id FROM refresh_changed_fill f WHERE f.user_id <> ''
UNION
SELECT a.user_id FROM refresh_changed_fill f CROSS JOIN model_user_alias a
WHERE f.user_alias <> '' AND a.alias = f.user_alias
UNION
SELECT b.user_id FROM refresh_changed_fill f CROSS JOIN fill_binding b
WHERE f.user_alias <> '' AND b.user_alias = f.user_alias
UNION
SELECT a.user_id FROM (
  SELECT alias, former_user_id AS user_id FROM refresh_changed_alias
  UNION ALL SELECT alias, user_id FROM refresh_changed_alias) a
WHERE a.user_id IS NOT NULL
AND EXISTS (SELECT 1 FROM source_fill f WHERE f.user_alias = a.alias AND f.user_alias <> '')
ON CONFLICT DO NOTHING
"""


def store_changed_fills(connection: Connection, *, all_fills: bool) -> bool:
    """Writes ``refresh_changed_fill``. ``all_fills``: all fills, changed or not. Returns whether it wrote any."""
    fills = _ALL_FILLS if all_fills else _CHANGED_FILLS
    return REFRESH_TABLES_OF_KIND[Fill.kind].run(connection, fills).rowcount > 0


def has_fills(connection: Connection) -> bool:
    """Whether there are fills or bindings."""
    return bool(run(connection, _HAS_FILLS).scalar())


def store_filled_users(connection: Connection) -> int:
    """Adds the users that changed fills or aliases affect to the changed users. Returns their number."""
    return run(connection, _FILLED_USERS).rowcount


# Bindings.


def is_visible_sql(fill: str) -> str:
    """SQL condition: no pushed fill of the same source and key hides the fill."""
    return f"""({fill}.origin = '' OR NOT EXISTS (
    SELECT 1 FROM source_fill p WHERE p.user_id = {fill}.user_id AND p.user_alias = {fill}.user_alias
    AND p.source_id = {fill}.source_id AND p.origin = ''))"""  # noqa: S608 - an alias of our own statements


def is_disabling_sql(fill: str) -> str:
    """SQL condition: the fill disables and is visible."""
    return f"{fill}.disabled AND {is_visible_sql(fill)}"


_BINDINGS_ADDED = """
INSERT INTO refresh_binding_delta (user_alias, source_id, user_id, change)
SELECT DISTINCT f.user_alias, f.source_id, a.user_id, {add}
FROM (SELECT user_alias AS alias FROM refresh_changed_fill WHERE user_alias <> ''
  UNION SELECT alias FROM refresh_alias_delta WHERE change = {add}) AS changed
CROSS JOIN source_fill f CROSS JOIN model_user_alias a
WHERE f.user_alias = changed.alias AND f.user_alias <> '' AND a.alias = changed.alias AND {is_disabling}
AND NOT EXISTS (
  SELECT 1 FROM fill_binding b
  WHERE b.user_alias = f.user_alias AND b.source_id = f.source_id AND b.user_id = a.user_id)
"""

_BINDINGS_REMOVED = """
INSERT INTO refresh_binding_delta (user_alias, source_id, user_id, change)
SELECT b.user_alias, b.source_id, b.user_id, {remove}
FROM (SELECT DISTINCT user_alias FROM refresh_changed_fill WHERE user_alias <> '') AS changed CROSS JOIN fill_binding b
WHERE b.user_alias = changed.user_alias AND NOT EXISTS (
  SELECT 1 FROM source_fill f
  WHERE f.user_alias = b.user_alias AND f.user_alias <> '' AND f.source_id = b.source_id AND {is_disabling})
"""

_REMOVE_BINDINGS = """
DELETE FROM fill_binding WHERE (user_alias, source_id, user_id) IN (
  SELECT user_alias, source_id, user_id FROM refresh_binding_delta WHERE change = {remove})
"""

_ADD_BINDINGS = """
INSERT INTO fill_binding (user_alias, source_id, user_id)
SELECT user_alias, source_id, user_id FROM refresh_binding_delta WHERE change = {add}
"""


def update_bindings(session: RefreshSession, connection: Connection) -> None:
    """Updates the bindings of changed fills and aliases."""
    parts = {**CHANGE_PARTS, "is_disabling": is_disabling_sql("f")}
    added = run(connection, _BINDINGS_ADDED, **parts).rowcount
    removed = run(connection, _BINDINGS_REMOVED, **parts).rowcount
    # Even a DELETE of no row takes SQLite's write lock, which a candidate must never need.
    if (added or removed) and session.on_candidate:
        shadow(connection, FILL_BINDING)
    if removed:
        run(connection, _REMOVE_BINDINGS, **parts)
    if added:
        run(connection, _ADD_BINDINGS, **parts)


# Disabling fills that do not match exactly one user.

_DISABLING = """
SELECT c.source_id, c.users <> 0 AS is_several, COUNT(*) AS records, MIN(c.named) AS named
FROM (
  SELECT f.source_id, CASE WHEN f.user_alias = '' THEN f.user_id ELSE f.user_alias END AS named,
    CASE WHEN f.user_alias = '' THEN (SELECT COUNT(*) FROM model_user u WHERE u.user_id = f.user_id)
      ELSE (SELECT COUNT(*) FROM fill_binding b WHERE b.user_alias = f.user_alias AND b.source_id = f.source_id)
    END AS users
  FROM (SELECT DISTINCT source_id, user_id, user_alias FROM source_fill s WHERE {is_disabling}) f) AS c
WHERE c.users <> 1 GROUP BY c.source_id, c.users <> 0
"""

_BOUND = """
SELECT user_id FROM fill_binding WHERE source_id = :source_id AND user_alias = :alias ORDER BY user_id @bytes LIMIT 3
"""


def find_unclear_disabling(connection: Connection) -> ProblemSamples:
    """The disabling fills that do not match exactly one user, with an example for each source."""
    samples = {}
    for row in run(connection, _DISABLING, is_disabling=is_disabling_sql("s")).all():
        sort = UnclearDisabling.SEVERAL if row.is_several else UnclearDisabling.NOBODY
        of_alias = {"source_id": row.source_id, "alias": row.named}
        users = tuple(run(connection, _BOUND, of_alias).scalars()) if row.is_several else ()
        example = Problem(sort, "", "", kind=Fill.kind, key=(row.named,), detail=users)
        samples[row.source_id, sort.value] = ProblemSample(row.records, [example])
    return samples


# Values.

# One row for each fill of a changed user, in the order of precedence. A pushed fill hides those of objects.
_FILLS = """
SELECT u.user_id, u.disabled, u.payload, u.digest, f.disabled AS fill_disabled, f.payload AS fill_payload
FROM (
  SELECT c.user_id, s.source_id, s.user_alias, s.origin, s.rule, s.disabled, s.payload
  FROM refresh_changed_user c CROSS JOIN source_fill s
  WHERE s.user_id = c.user_id AND s.user_alias = '' AND {is_visible}
  UNION ALL
  SELECT c.user_id, s.source_id, s.user_alias, s.origin, s.rule, s.disabled, s.payload
  FROM refresh_changed_user c CROSS JOIN model_user_alias a CROSS JOIN source_fill s
  WHERE a.user_id = c.user_id AND s.user_alias = a.alias AND s.user_alias <> ''
  AND NOT EXISTS (SELECT 1 FROM model_user_alias o WHERE o.alias = a.alias AND o.user_id <> a.user_id)
  AND {is_visible}
  UNION ALL
  SELECT c.user_id, b.source_id, b.user_alias, '', '', true, '{}'
  FROM refresh_changed_user c CROSS JOIN fill_binding b WHERE b.user_id = c.user_id
) AS f CROSS JOIN directory_source d CROSS JOIN refresh_merged_user u
WHERE d.source_id = f.source_id AND u.user_id = f.user_id
ORDER BY u.user_id @bytes, CASE WHEN f.source_id = u.source_id THEN 0 ELSE 1 END, d.position,
  f.user_alias @bytes, f.origin @bytes, LENGTH(f.rule), f.rule @bytes
"""

_STORE_FILLED = """
INSERT INTO refresh_filled_user (user_id, disabled, payload, digest) VALUES (:user_id, :disabled, :payload, :digest)
"""

_FILL_USERS = """
UPDATE refresh_merged_user SET disabled = f.disabled, payload = f.payload, digest = f.digest
FROM refresh_filled_user f WHERE refresh_merged_user.user_id = f.user_id
"""


def apply_fills(connection: Connection) -> None:
    """Adds the fills to the merged users."""
    query = statement(connection, _FILLS, is_visible=is_visible_sql("s"))
    rows = connection.execute(query, execution_options={"yield_per": _BATCH_ROWS})
    changed_users = _find_changed_users(rows)
    while batch := list(islice(changed_users, _BATCH_ROWS)):
        run(connection, _STORE_FILLED, batch)
    run(connection, _FILL_USERS)


def _find_changed_users(rows: Iterable[Row[Any]]) -> Iterator[Mapping[str, object]]:
    """Applies the fills to their users, and yields the users that change, as rows of ``refresh_filled_user``."""
    for user_id, fills in groupby(rows, key=lambda row: row.user_id):
        first, *others = fills
        fields: dict[str, object] = orjson.loads(first.payload)
        disabled = bool(first.disabled)
        for row in (first, *others):
            disabled = disabled or bool(row.fill_disabled)
            add_fill(fields, row.fill_payload)
        payload, digest = payload_and_digest(fields)
        if digest != first.digest or disabled != bool(first.disabled):
            yield {"user_id": user_id, "disabled": disabled, "payload": payload, "digest": digest}


def add_fill(fields: dict[str, object], payload: str) -> list[str]:
    """Adds the values of a fill to a user's missing or empty fields. Returns the names of these fields."""
    added = []
    for name, value in orjson.loads(payload).items():
        current = fields.get(name)
        # Old versions stored fills with aliases, which are not sent to backends.
        if value is not None and name != _ALIASES and (current is None or current == ""):
            fields[name] = value
            added.append(name)
    return added
