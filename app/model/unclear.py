"""Disabling fills that match nobody, or several users."""

from dataclasses import dataclass

from sqlalchemy import Connection

from app.database.statements import run
from app.model.refresh.bindings import disabling
from app.model.refresh.staging import UNCONFIGURED_POSITION
from app.text import quoted

_DISABLING = f"""
SELECT d.name, c.users <> 0 AS is_several, COUNT(*) AS records, MIN(c.named) AS named
FROM (
  SELECT f.source_id, CASE WHEN f.user_alias = '' THEN f.user_id ELSE f.user_alias END AS named,
    CASE WHEN f.user_alias = '' THEN (SELECT COUNT(*) FROM access_user u WHERE u.user_id = f.user_id)
      ELSE (SELECT COUNT(*) FROM fill_binding b WHERE b.user_alias = f.user_alias AND b.source_id = f.source_id)
    END AS users
  FROM (SELECT DISTINCT source_id, user_id, user_alias FROM source_fill s WHERE {disabling("s")}) f) AS c
JOIN directory_source d ON d.source_id = c.source_id
WHERE c.users <> 1 AND d.position < :unconfigured
GROUP BY d.position, d.name, c.users <> 0 ORDER BY d.position, d.name, 2
"""  # noqa: S608 - our own names

_BOUND = """
SELECT b.user_id FROM fill_binding b JOIN directory_source d ON d.source_id = b.source_id
WHERE d.name = :name AND b.user_alias = :alias ORDER BY b.user_id @bytes LIMIT 3
"""


@dataclass(slots=True)
class UnclearDisabling:
    """The disabling fills of a source that do not match exactly one user."""

    source: str
    of_nobody: int = 0
    nobody: str = ""
    """The alias or user id of one of them."""
    of_several: int = 0
    several: str = ""
    """The alias of one of them, and the first users that it disables."""


def unclear_disabling(connection: Connection) -> list[UnclearDisabling]:
    """One for each configured source that has such fills."""
    found: dict[str, UnclearDisabling] = {}
    for row in run(connection, _DISABLING, {"unconfigured": UNCONFIGURED_POSITION}).all():
        one = found.setdefault(row.name, UnclearDisabling(row.name))
        if row.is_several:
            users = run(connection, _BOUND, {"name": row.name, "alias": row.named}).scalars()
            one.of_several, one.several = row.records, f"{quoted(row.named)}: {', '.join(map(quoted, users))}"
        else:
            one.of_nobody, one.nobody = row.records, quoted(row.named)
    return list(found.values())
