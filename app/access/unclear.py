"""Explains a denial by records that name the user by an alias of several users."""

from dataclasses import replace

from sqlalchemy import Connection

from app.access.decision.decide import PermissionRequest
from app.access.decision.explain import Explanation
from app.access.records import Folder
from app.foundation.database.statements import json_list, run
from app.foundation.text import quoted

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
