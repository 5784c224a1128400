"""The aliases of users: whose they are, as of the users that count.

What names a user by an alias means the one user who has it. An alias that several users have means none of them.
"""

from sqlalchemy import Connection, insert, select, tuple_
from sqlalchemy import delete as delete_from

from app.access.records import User
from app.database.engine import is_sqlite
from app.database.statements import run
from app.model.refresh.scratch import ALIAS_CHANGE, RESOLVED_ALIAS, TABLES_OF_KIND, USER_ALIAS, RowChange
from app.store.access_tables import UserAliasRow
from app.store.record_tables import core_table

ACCESS_ALIAS = core_table(UserAliasRow)

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
WHERE NOT EXISTS (SELECT 1 FROM access_user_alias a WHERE a.alias = r.alias AND a.user_id = r.user_id)
"""

_REMOVED = """
INSERT INTO refresh_alias_change (alias, user_id, change)
SELECT a.alias, a.user_id, {remove} FROM access_user_alias a
WHERE NOT EXISTS (SELECT 1 FROM refresh_user_alias r WHERE r.alias = a.alias AND r.user_id = a.user_id)
"""


def collect_aliases(connection: Connection) -> None:
    """Whose each alias is, after the users were merged, and what that changes."""
    users = TABLES_OF_KIND[User.kind]
    for table in (USER_ALIAS, RESOLVED_ALIAS, ALIAS_CHANGE):
        connection.execute(delete_from(table))
    each = "json_each(u.aliases) AS a" if is_sqlite(connection) else _EACH_OF_POSTGRESQL
    run(connection, _COLLECT, users=users.given.name, left_out=users.left_out.name, each=each)
    run(connection, _RESOLVE)
    run(connection, _ADDED, add=str(int(RowChange.ADD)))
    run(connection, _REMOVED, remove=str(int(RowChange.REMOVE)))


_EACH_OF_POSTGRESQL = "jsonb_array_elements_text(CAST(u.aliases AS JSONB)) AS a (value)"


def aliases_change(connection: Connection) -> bool:
    """Whether there is anything to carry out."""
    return connection.execute(select(ALIAS_CHANGE.c.alias).limit(1)).first() is not None


def carry_out_aliases(connection: Connection) -> None:
    """Brings the access model's aliases in line."""
    change = ALIAS_CHANGE.c
    removed = select(change.alias, change.user_id).where(change.change == int(RowChange.REMOVE))
    connection.execute(
        delete_from(ACCESS_ALIAS).where(tuple_(ACCESS_ALIAS.c.alias, ACCESS_ALIAS.c.user_id).in_(removed))
    )
    added = select(change.alias, change.user_id).where(change.change == int(RowChange.ADD))
    connection.execute(insert(ACCESS_ALIAS).from_select(["alias", "user_id"], added))
