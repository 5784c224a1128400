"""Adds to an explained denial that an alias of several users may be the cause.

A record that names a user by such an alias has no effect, so it cannot allow access.
"""

from dataclasses import replace

from sqlalchemy import Connection

from app.access.decision.decide import QuestionLike
from app.access.decision.explain import Explanation
from app.access.records import Folder
from app.foundation.database.statements import json_list, run
from app.foundation.text import quoted

# ``user_alias <> ''`` is the condition of a partial index, which is used only if the query repeats it.
_SHARED_ALIASES = """
WITH shared (alias) AS (
  SELECT a.alias FROM model_user_alias a WHERE a.user_id = :user_id AND EXISTS (
    SELECT 1 FROM model_user_alias o WHERE o.alias = a.alias AND o.user_id <> a.user_id))
SELECT n.kind, n.user_alias AS alias, d.name FROM (
  SELECT 0 AS number, 'grant' AS kind, s.source_id, s.user_alias FROM source_grant s
  WHERE s.organization_id = :organization_id AND s.user_alias <> '' AND s.user_alias IN (SELECT alias FROM shared)
    AND (s.document_id = :document_id AND s.document_id <> '' OR s.folder_id IN (@list(folders)))
  UNION ALL SELECT 1, 'group member', s.source_id, s.user_alias FROM source_group_member s
  WHERE s.organization_id = :organization_id AND s.user_alias <> '' AND s.user_alias IN (SELECT alias FROM shared)
  UNION ALL SELECT 2, 'membership', s.source_id, s.user_alias FROM source_membership s
  WHERE s.organization_id = :organization_id AND s.user_alias <> '' AND s.user_alias IN (SELECT alias FROM shared)
  UNION ALL SELECT 3, 'context grant', s.source_id, s.user_alias FROM source_context_grant s
  WHERE s.organization_id = :organization_id AND s.user_alias <> '' AND s.user_alias IN (SELECT alias FROM shared)
) AS n JOIN directory_source d ON d.source_id = n.source_id
ORDER BY n.number, d.position, n.user_alias @bytes LIMIT 1
"""

_HOLDERS = "SELECT user_id FROM model_user_alias WHERE alias = :alias ORDER BY user_id @bytes LIMIT 3"


def with_shared_aliases(connection: Connection, question: QuestionLike, explanation: Explanation) -> Explanation:
    """The explanation of a denial, with a record that might allow access if only this user had the alias in it."""
    if explanation.decision.has_access:
        return explanation
    folders = [record.folder_id for record in explanation.records if isinstance(record, Folder)]
    folders += [question.resource_id] if question.type == "folder" else []
    parameters = {
        "user_id": question.user_id,
        "organization_id": question.organization_id,
        "document_id": question.resource_id if question.type in {"document", "context"} else "",
        "folders": json_list(folders),
    }
    row = run(connection, _SHARED_ALIASES, parameters).first()
    if row is None:
        return explanation
    holders = ", ".join(map(quoted, run(connection, _HOLDERS, {"alias": row.alias}).scalars()))
    shared = (
        f"a {row.kind} of source {quoted(row.name)} names {quoted(row.alias)}, an alias of several users: {holders}"
    )
    return replace(explanation, remarks=(*explanation.remarks, shared))
