"""Fills: fields that one source adds to the users of another.

What a user's own record says stands, but for an empty text, which says nothing. Of several fills that of the source
further up counts, field by field, the user's own source first. Disabled counts wherever it is true.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice
from typing import Any

import orjson
from sqlalchemy import Connection, Row, insert, select
from sqlalchemy import delete as delete_from

from app.access.records import Fill, User
from app.database.statements import run, statement
from app.model.refresh.given import origin_of_users, show_filled
from app.model.refresh.scratch import FILLED_USER, SCRATCH_TABLES, TABLES_OF_KIND, LeftOutCause
from app.store.record_tables import payload_and_digest

_ROWS_AT_A_TIME = 1_000

_LEAVE_OUT = """
INSERT INTO {left_out} (user_id, user_alias, source_id, cause)
SELECT DISTINCT f.user_id, f.user_alias, f.source_id,
  CASE WHEN f.user_alias <> '' AND r.user_id IS NULL
    AND EXISTS (SELECT 1 FROM refresh_user_alias a WHERE a.alias = f.user_alias) THEN {ambiguous} ELSE {dangling} END
FROM source_fill f LEFT JOIN refresh_resolved_alias r ON f.user_alias <> '' AND r.alias = f.user_alias
WHERE NOT EXISTS (SELECT 1 FROM {users} u WHERE u.user_id = COALESCE(r.user_id, f.user_id) AND NOT EXISTS (
  SELECT 1 FROM {users_left_out} l WHERE l.user_id = u.user_id AND l.source_id = u.source_id))
"""

# One row for each fill of a user that counts, those that win first.
_FILLS = """
SELECT u.user_id, u.source_id, u.disabled, u.payload, u.digest, f.disabled AS fill_disabled, f.payload AS fill_payload
FROM source_fill f
LEFT JOIN refresh_resolved_alias r ON f.user_alias <> '' AND r.alias = f.user_alias
JOIN directory_source d ON d.source_id = f.source_id
JOIN {users} u ON u.user_id = COALESCE(r.user_id, f.user_id) AND NOT EXISTS (
  SELECT 1 FROM {users_left_out} l WHERE l.user_id = u.user_id AND l.source_id = u.source_id)
ORDER BY u.user_id @bytes, CASE WHEN f.source_id = u.source_id THEN 0 ELSE 1 END, d.position,
  f.user_alias @bytes, f.origin @bytes, LENGTH(f.rule), f.rule @bytes
"""

_FILLS_OF = {tables.kind: tables for tables in SCRATCH_TABLES}[Fill.kind]


def apply_fills(connection: Connection) -> None:
    """Fills the users that count in ``given``; after the users were merged and their aliases collected."""
    users = TABLES_OF_KIND[User.kind]
    connection.execute(delete_from(_FILLS_OF.left_out))
    connection.execute(delete_from(FILLED_USER))
    if connection.execute(select(_FILLS_OF.source.c.source_id).limit(1)).first() is None:
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
    users_filled = filled(connection.execute(statement(connection, _FILLS, **tables), execution_options=streaming))
    while batch := list(islice(users_filled, _ROWS_AT_A_TIME)):
        connection.execute(insert(FILLED_USER), batch)
    if connection.execute(select(FILLED_USER.c.user_id).limit(1)).first() is not None:
        show_filled(connection, users, origin_of_users(connection, users))


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
        if value is not None and (there is None or there == ""):
            fields[name] = value
            added.append(name)
    return added
