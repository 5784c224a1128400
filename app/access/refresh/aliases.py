"""Updates the aliases of users during a refresh, and finds the aliases that changed.

An alias refers to a user only if no other user has it.
"""

from sqlalchemy import Connection

from app.access.candidate import shadow
from app.access.refresh.session import RefreshSession
from app.access.refresh.sources import MODEL_ALIAS
from app.access.refresh.tables import CHANGE_PARTS
from app.foundation.database.statements import run

_ALIASES_OF_CHANGED_USERS = """
INSERT INTO refresh_user_alias (alias, user_id)
SELECT DISTINCT a.value, m.user_id FROM refresh_merged_user m CROSS JOIN @each(m.aliases) AS a
WHERE m.aliases <> '[]'
ORDER BY 1, 2
"""

_ALIASES_ADDED = """
INSERT INTO refresh_alias_delta (alias, user_id, change)
SELECT u.alias, u.user_id, {add} FROM refresh_user_alias u
WHERE NOT EXISTS (SELECT 1 FROM model_user_alias a WHERE a.alias = u.alias AND a.user_id = u.user_id)
"""

_ALIASES_REMOVED = """
INSERT INTO refresh_alias_delta (alias, user_id, change)
SELECT a.alias, a.user_id, {remove} FROM refresh_changed_user c CROSS JOIN model_user_alias a
WHERE a.user_id = c.user_id
AND NOT EXISTS (SELECT 1 FROM refresh_user_alias u WHERE u.alias = a.alias AND u.user_id = a.user_id)
"""

_FORMER_HOLDERS = """
INSERT INTO refresh_changed_alias (alias, former_user_id)
SELECT d.alias, (
  SELECT CASE WHEN COUNT(*) = 1 THEN MIN(a.user_id) END FROM model_user_alias a WHERE a.alias = d.alias)
FROM (SELECT DISTINCT alias FROM refresh_alias_delta) d
"""

_REMOVE_ALIASES = """
DELETE FROM model_user_alias
WHERE (alias, user_id) IN (SELECT alias, user_id FROM refresh_alias_delta WHERE change = {remove})
"""

_ADD_ALIASES = """
INSERT INTO model_user_alias (alias, user_id)
SELECT alias, user_id FROM refresh_alias_delta WHERE change = {add} ORDER BY alias, user_id
"""

_HOLDERS = """
UPDATE refresh_changed_alias SET user_id = (
  SELECT CASE WHEN COUNT(*) = 1 THEN MIN(a.user_id) END FROM model_user_alias a
  WHERE a.alias = refresh_changed_alias.alias)
"""


def update_aliases(session: RefreshSession, connection: Connection) -> bool:
    """Updates the aliases of the merged users, and writes ``refresh_changed_alias``. Returns whether any changed."""
    run(connection, _ALIASES_OF_CHANGED_USERS)
    added = run(connection, _ALIASES_ADDED, **CHANGE_PARTS).rowcount
    removed = run(connection, _ALIASES_REMOVED, **CHANGE_PARTS).rowcount
    if not added and not removed:
        return False
    if session.on_candidate:
        shadow(connection, MODEL_ALIAS)
    run(connection, _FORMER_HOLDERS)
    if removed:
        run(connection, _REMOVE_ALIASES, **CHANGE_PARTS)
    if added:
        run(connection, _ADD_ALIASES, **CHANGE_PARTS)
        session.analyze_if_many(MODEL_ALIAS, added)
    run(connection, _HOLDERS)
    return True
