"""Records whose alias is unclear: disabling fills that match nobody or several users, and grants of a denied user."""

from dataclasses import dataclass, replace

from sqlalchemy import Connection

from app.access.decide import PermissionRequest
from app.access.explain import Explanation
from app.access.records import Folder
from app.database.statements import json_list, run
from app.model.refresh.bindings import disabling
from app.model.refresh.staging import UNCONFIGURED_POSITION
from app.text import quoted

_DISABLING = f"""
SELECT d.name, c.users <> 0 AS is_several, COUNT(*) AS records, MIN(c.named) AS named
FROM (
  SELECT f.source_id, CASE WHEN f.user_alias = '' THEN f.user_id ELSE f.user_alias END AS named,
    CASE WHEN f.user_alias = '' THEN (SELECT COUNT(*) FROM model_user u WHERE u.user_id = f.user_id)
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

_ON_RESOURCE = "(s.document_id = :document_id AND s.document_id <> '' OR s.folder_id IN (@list(folders)))"

_NAMING = """
SELECT {number} AS number, '{kind}' AS kind, s.source_id, s.user_alias FROM {source} s
WHERE s.organization_id = :organization_id AND s.user_alias <> '' AND {{on}}
  AND s.user_alias IN (SELECT alias FROM shared)
"""

_UNCLEAR = f"""
WITH shared (alias) AS (
  SELECT a.alias FROM model_user_alias a WHERE a.user_id = :user_id AND EXISTS (
    SELECT 1 FROM model_user_alias o WHERE o.alias = a.alias AND o.user_id <> a.user_id))
SELECT n.kind, n.user_alias AS alias, d.name FROM (
  {_NAMING.format(number=0, kind="grant", source="source_grant").format(on=_ON_RESOURCE)}
  UNION ALL {_NAMING.format(number=1, kind="group member", source="source_group_member").format(on="1 = 1")}
  UNION ALL {_NAMING.format(number=2, kind="membership", source="source_membership").format(on="1 = 1")}
  UNION ALL {_NAMING.format(number=3, kind="context grant", source="source_context_grant").format(on="1 = 1")}) AS n
JOIN directory_source d ON d.source_id = n.source_id
ORDER BY n.number, d.position, n.user_alias @bytes LIMIT 1
"""  # noqa: S608 - our own names

_HOLDERS = "SELECT user_id FROM model_user_alias WHERE alias = :alias ORDER BY user_id @bytes LIMIT 3"


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


def with_unclear_aliases(connection: Connection, question: PermissionRequest, explanation: Explanation) -> Explanation:
    """The explanation of a denial, with a record that would let the user in if others did not have the alias, too."""
    if explanation.decision.has_access:
        return explanation
    document = question.resource_id if question.type in {"document", "context"} else ""
    folders = [record.folder_id for record in explanation.records if isinstance(record, Folder)]
    folders += [question.resource_id] if question.type == "folder" else []
    asked = {
        "user_id": question.user_id,
        "organization_id": question.organization_id,
        "document_id": document,
        "folders": json_list(folders),
    }
    row = run(connection, _UNCLEAR, asked).first()
    if row is None:
        return explanation
    holders = run(connection, _HOLDERS, {"alias": row.alias}).scalars()
    says = f"a {row.kind} of source {quoted(row.name)} names {quoted(row.alias)}, an alias of several users"
    return replace(explanation, reason=f"{explanation.reason[:-1]}; {says}: {', '.join(map(quoted, holders))}.")
