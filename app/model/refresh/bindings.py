"""Bindings: the users whom a disabling fill has disabled by an alias.

The rules: ``app/model/README.md``, "Disabling fills".

Users may be able to change their aliases, so an alias must not decide who is enabled again. A merge adds a binding for
each user who has the alias of a disabling fill, even if several users have it. It removes the bindings of a source and
an alias when that source no longer provides a disabling fill for the alias.
"""

from sqlalchemy import Connection, bindparam, insert, select, tuple_
from sqlalchemy import delete as delete_from

from app.database.engine import run_plainly
from app.database.statements import run
from app.model.refresh.scratch import BINDING_CHANGE, RowChange
from app.store.directory_tables import FillBindingRow
from app.store.record_tables import core_table

FILL_BINDING = core_table(FillBindingRow)


def shown(fill: str) -> str:
    """SQL for the condition that no pushed fill of the same source and key hides the fill."""
    return f"""({fill}.origin = '' OR NOT EXISTS (
  SELECT 1 FROM source_fill p WHERE p.user_id = {fill}.user_id AND p.user_alias = {fill}.user_alias
  AND p.source_id = {fill}.source_id AND p.origin = ''))"""  # noqa: S608 - our own names


def disabling(fill: str) -> str:
    """SQL for the condition that a fill is shown and disables."""
    return f"{fill}.disabled AND {shown(fill)}"


_UNBOUND = """NOT EXISTS (
  SELECT 1 FROM fill_binding b
  WHERE b.user_alias = f.user_alias AND b.source_id = f.source_id AND b.user_id = a.user_id)"""

_IS_GONE = f"""NOT EXISTS (
  SELECT 1 FROM source_fill f
  WHERE f.user_alias = b.user_alias AND f.user_alias <> '' AND f.source_id = b.source_id AND {disabling("f")})"""  # noqa: S608 - our own names

_ADDED = f"""
INSERT INTO refresh_binding_change (user_alias, source_id, user_id, change)
SELECT DISTINCT f.user_alias, f.source_id, a.user_id, {{add}}
FROM source_fill f JOIN refresh_user_alias a ON a.alias = f.user_alias
WHERE f.user_alias <> '' AND {disabling("f")} AND {_UNBOUND}
"""  # noqa: S608 - our own names

_REMOVED = f"""
INSERT INTO refresh_binding_change (user_alias, source_id, user_id, change)
SELECT b.user_alias, b.source_id, b.user_id, {{remove}} FROM fill_binding b WHERE {_IS_GONE}
"""  # noqa: S608 - as above

# Cross joins keep SQLite from reading all fills to look them up among the touched.
_ADDED_BY_KEY = f"""
INSERT INTO refresh_binding_change (user_alias, source_id, user_id, change)
SELECT DISTINCT f.user_alias, f.source_id, a.user_id, {{add}} FROM (
  SELECT t.user_alias AS alias FROM refresh_touched_fill t WHERE t.user_alias <> ''
  UNION SELECT c.alias FROM refresh_alias_change c WHERE c.change = {{add}}) AS touched
CROSS JOIN source_fill f CROSS JOIN model_user_alias a
WHERE f.user_alias = touched.alias AND f.user_alias <> '' AND a.alias = touched.alias AND {disabling("f")}
AND {_UNBOUND}
"""  # noqa: S608 - as above

_REMOVED_BY_KEY = f"""
INSERT INTO refresh_binding_change (user_alias, source_id, user_id, change)
SELECT b.user_alias, b.source_id, b.user_id, {{remove}} FROM (
  SELECT DISTINCT user_alias FROM refresh_touched_fill WHERE user_alias <> '') AS t CROSS JOIN fill_binding b
WHERE b.user_alias = t.user_alias AND {_IS_GONE}
"""  # noqa: S608 - as above

BOUND = f"""
SELECT b.user_id, b.user_alias, b.source_id FROM fill_binding b WHERE NOT EXISTS (
  SELECT 1 FROM refresh_binding_change c WHERE c.user_alias = b.user_alias AND c.source_id = b.source_id
  AND c.user_id = b.user_id AND c.change = {int(RowChange.REMOVE)})
UNION ALL
SELECT c.user_id, c.user_alias, c.source_id FROM refresh_binding_change c WHERE c.change = {int(RowChange.ADD)}
"""  # noqa: S608 - as above
"""The bindings as they will be when the changes are carried out."""


def collect_bindings(connection: Connection) -> None:
    """Computes the changes of all bindings, after ``collect_aliases``."""
    run_plainly(connection, _CLEAR)
    run(connection, _ADDED, add=_ADD)
    run(connection, _REMOVED, remove=_REMOVE)


def collect_touched_bindings(connection: Connection) -> bool:
    """Computes the changes of the bindings that a merge by key touches, after it changed the aliases; whether there
    are any."""
    run_plainly(connection, _CLEAR)
    added = run(connection, _ADDED_BY_KEY, add=_ADD).rowcount
    return run(connection, _REMOVED_BY_KEY, remove=_REMOVE).rowcount + added > 0


def bindings_change(connection: Connection) -> bool:
    """Whether there are changes to carry out."""
    return connection.execute(_ANY_CHANGE).first() is not None


def carry_out_bindings(connection: Connection) -> None:
    """Changes the bindings."""
    _replace(connection, RowChange.REMOVE, RowChange.ADD)


def undo_bindings(connection: Connection) -> None:
    """Reverts ``carry_out_bindings``."""
    _replace(connection, RowChange.ADD, RowChange.REMOVE)


def _replace(connection: Connection, gone: RowChange, come: RowChange) -> None:
    connection.execute(_AWAY, {"changes": int(gone)})
    connection.execute(_COME, {"changes": int(come)})


_ADD, _REMOVE = str(int(RowChange.ADD)), str(int(RowChange.REMOVE))
_KEYS = tuple(column.name for column in FILL_BINDING.primary_key.columns)

# Composed once: that takes longer than to execute them for a few rows.
_ANY_CHANGE = select(BINDING_CHANGE.c.user_id).limit(1)
_CHANGED = select(*(BINDING_CHANGE.c[name] for name in _KEYS)).where(BINDING_CHANGE.c.change == bindparam("changes"))
_AWAY = delete_from(FILL_BINDING).where(tuple_(*(FILL_BINDING.c[name] for name in _KEYS)).in_(_CHANGED))
_COME = insert(FILL_BINDING).from_select(list(_KEYS), _CHANGED)
_CLEAR = (f"DELETE FROM {BINDING_CHANGE.name}",)  # noqa: S608 - our own table
