"""The aliases of users: whose they are, as of the users that count.

What names a user by an alias means the one user who has it. An alias that several users have means none of them.

A merge of everything collects all of them anew. A merge by key finds out which of them the users that it touches gain
and lose, and changes the access model's at once: from then on that says whose an alias is, and ``FORMER_ALIAS`` whose
those were that have changed.
"""

from sqlalchemy import Connection, bindparam, insert, select, tuple_
from sqlalchemy import delete as delete_from

from app.access.records import User
from app.database.engine import is_sqlite, run_plainly
from app.database.statements import run
from app.model.refresh.scratch import ALIAS_CHANGE, TABLES_OF_KIND, USER_ALIAS, RowChange
from app.store.access_tables import ModelUserAliasRow
from app.store.record_tables import core_table

ACCESS_ALIAS = core_table(ModelUserAliasRow)

_COLLECT = """
INSERT INTO refresh_user_alias (alias, user_id)
SELECT DISTINCT a.value, u.user_id FROM {users} u, {each}
WHERE u.aliases <> '[]' AND NOT EXISTS (
  SELECT 1 FROM {left_out} l WHERE l.user_id = u.user_id AND l.source_id = u.source_id)
ORDER BY 1, 2
"""

_RESOLVE = """
INSERT INTO refresh_resolved_alias (alias, user_id)
SELECT alias, MIN(user_id) FROM refresh_user_alias GROUP BY alias HAVING COUNT(*) = 1 ORDER BY alias
"""

_ADDED = """
INSERT INTO refresh_alias_change (alias, user_id, change)
SELECT r.alias, r.user_id, {add} FROM refresh_user_alias r
WHERE NOT EXISTS (SELECT 1 FROM model_user_alias a WHERE a.alias = r.alias AND a.user_id = r.user_id)
"""

_REMOVED = """
INSERT INTO refresh_alias_change (alias, user_id, change)
SELECT a.alias, a.user_id, {remove} FROM model_user_alias a
WHERE {within} NOT EXISTS (SELECT 1 FROM refresh_user_alias r WHERE r.alias = a.alias AND r.user_id = a.user_id)
"""

_TOUCHED_USERS = "a.user_id IN (SELECT user_id FROM refresh_touched_user) AND "

_HOLDER = (
    "(SELECT CASE WHEN COUNT(*) = 1 THEN MIN(held.user_id) END FROM model_user_alias held WHERE held.alias = {alias})"
)

_FORMER_HOLDER = """CASE WHEN EXISTS (SELECT 1 FROM refresh_former_alias was WHERE was.alias = {alias})
  THEN (SELECT was.user_id FROM refresh_former_alias was WHERE was.alias = {alias}) ELSE {holder} END"""

_KNOWN = "EXISTS (SELECT 1 FROM model_user_alias held WHERE held.alias = {alias})"

_FORMERLY_KNOWN = f"""(EXISTS (
  SELECT 1 FROM refresh_alias_change gone WHERE gone.alias = {{alias}} AND gone.change = {int(RowChange.REMOVE)})
OR EXISTS (SELECT 1 FROM model_user_alias held WHERE held.alias = {{alias}} AND NOT EXISTS (
  SELECT 1 FROM refresh_alias_change come
  WHERE come.alias = held.alias AND come.user_id = held.user_id AND come.change = {int(RowChange.ADD)})))"""  # noqa: S608 - our own names

_KEEP_FORMER = f"""
INSERT INTO refresh_former_alias (alias, user_id)
SELECT alias, {_HOLDER.format(alias="c.alias")} FROM (SELECT DISTINCT alias FROM refresh_alias_change) AS c
"""  # noqa: S608 - our own names


def collect_aliases(connection: Connection) -> None:
    """Whose each alias is, after the users were merged, and what that changes; ``RESOLVED_ALIAS`` is empty."""
    _collect(connection, TABLES_OF_KIND[User.kind].given.name)
    run(connection, _RESOLVE)
    run(connection, _REMOVED, remove=str(int(RowChange.REMOVE)), within="")


def collect_touched_aliases(connection: Connection) -> bool:
    """What the touched users gain and lose, after they were merged, and whose it was; whether there is any of that.

    Nothing is carried out yet.
    """
    _collect(connection, TABLES_OF_KIND[User.kind].combined.name)
    run(connection, _REMOVED, remove=str(int(RowChange.REMOVE)), within=_TOUCHED_USERS)
    return run(connection, _KEEP_FORMER).rowcount > 0


def _collect(connection: Connection, given: str) -> None:
    run_plainly(connection, _CLEAR)
    each = "json_each(u.aliases) AS a" if is_sqlite(connection) else _EACH_OF_POSTGRESQL
    left_out = TABLES_OF_KIND[User.kind].left_out.name
    run(connection, _COLLECT, users=given, left_out=left_out, each=each)
    run(connection, _ADDED, add=str(int(RowChange.ADD)))


_EACH_OF_POSTGRESQL = "jsonb_array_elements_text(CAST(u.aliases AS JSONB)) AS a (value)"


def holder(alias: str, *, former: bool = False) -> str:
    """SQL for the one user who has the alias, an expression, by the access model; null: nobody, or several have it.

    ``former``: who had it before the merge by key that is under way.
    """
    now = _HOLDER.format(alias=alias)
    return _FORMER_HOLDER.format(alias=alias, holder=now) if former else now


def known(alias: str, *, former: bool = False) -> str:
    """SQL for the condition that anybody has the alias, an expression. ``former``: before the merge by key that is
    under way, which has carried out its changes of aliases."""
    return (_FORMERLY_KNOWN if former else _KNOWN).format(alias=alias)


def aliases_change(connection: Connection) -> bool:
    """Whether there is anything to carry out."""
    return connection.execute(_ANY_CHANGE).first() is not None


def carry_out_aliases(connection: Connection) -> int:
    """Brings the access model's aliases in line; how many are added."""
    return _replace(connection, RowChange.REMOVE, RowChange.ADD)


def undo_aliases(connection: Connection) -> None:
    """Takes back what ``carry_out_aliases`` did."""
    _replace(connection, RowChange.ADD, RowChange.REMOVE)


def _replace(connection: Connection, gone: RowChange, come: RowChange) -> int:
    connection.execute(_AWAY, {"changes": int(gone)})
    return connection.execute(_COME, {"changes": int(come)}).rowcount


# Put together once: that takes longer than to execute them for a few rows.
_ANY_CHANGE = select(ALIAS_CHANGE.c.alias).limit(1)
_CHANGED = select(ALIAS_CHANGE.c.alias, ALIAS_CHANGE.c.user_id).where(ALIAS_CHANGE.c.change == bindparam("changes"))
_AWAY = delete_from(ACCESS_ALIAS).where(tuple_(ACCESS_ALIAS.c.alias, ACCESS_ALIAS.c.user_id).in_(_CHANGED))
_COME = insert(ACCESS_ALIAS).from_select(["alias", "user_id"], _CHANGED)
_CLEAR = tuple(f"DELETE FROM {table.name}" for table in (USER_ALIAS, ALIAS_CHANGE))  # noqa: S608 - our own tables
