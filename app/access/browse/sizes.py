"""Counts records for pages: in total, in each organization, and around a single folder, document, group or user.

Refreshes maintain the counts of organizations. For single records they are queried, up to a thousand.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import orjson
from sqlalchemy import Connection

from app.access.records import Document, Folder, Grant, Group, Membership
from app.foundation.database.statements import json_list, run

ALL_ORGANIZATIONS = ""
"""The id under which the totals are stored."""

MAX_COUNT = 1_000
"""The records of a single folder, document, group or user are counted up to this number."""

_COUNTS = """
SELECT c.organization_id, c.kind, c.records FROM (@list(organization_ids)) AS requested
CROSS JOIN access_count c WHERE c.organization_id = requested.value
"""

_NUMBERS = {
    "members": Membership.kind,
    "groups": Group.kind,
    "folders": Folder.kind,
    "documents": Document.kind,
    "grants": Grant.kind,
}

_ORGANIZATIONS = """
SELECT organization_id, access_type, disabled, payload FROM model_organization
WHERE organization_id > :after ORDER BY organization_id LIMIT :limit
"""

_COUNT = """
SELECT COUNT(*) FROM (SELECT 1 FROM {table} WHERE organization_id = :organization_id AND {of} LIMIT :limit) AS counted
"""

_COUNT_EACH = """
SELECT requested.value AS id, (SELECT COUNT(*) FROM (
  SELECT 1 FROM {table} WHERE organization_id = :organization_id AND {of} LIMIT :limit) AS counted) AS records
FROM (@list(ids)) AS requested
"""

_OUTER = "model_group_member @by(ix_model_group_member_organization_id_member_group_id_organization_user_group_id)"

_RELATED: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "folder": {
        "folders": ("model_folder @by(ix_model_folder_within)", "parent_folder_id = :id"),
        "documents": ("model_document @by(ix_model_document_within)", "folder_id = :id"),
    },
    "group": {
        "users": ("model_group_member", "organization_user_group_id = :id AND user_id > ''"),
        "groups": ("model_group_member", "organization_user_group_id = :id AND user_id = ''"),
        "outer_groups": (_OUTER, "member_group_id = :id"),
        "grants": ("model_grant @by(ix_model_grant_to_group)", "organization_user_group_id = :id AND user_id = ''"),
    },
}
"""Kind of a record → name of a count → the table and the condition of the counted rows."""


def load_counts(connection: Connection, organization_ids: Collection[str]) -> Mapping[str, Mapping[str, int]]:
    """Organization → kind → how many records of it there are. No entry: none. ``ALL_ORGANIZATIONS`` may be one."""
    counts: dict[str, dict[str, int]] = {}
    for row in run(connection, _COUNTS, {"organization_ids": json_list(organization_ids)}).all():
        counts.setdefault(row.organization_id, {})[row.kind] = int(row.records)
    return counts


@dataclass(frozen=True, slots=True)
class OrganizationSize:
    """An organization with the counts of its records."""

    organization_id: str
    name: str
    access_type: str
    disabled: bool
    numbers: Mapping[str, int]


def organization_sizes(connection: Connection, *, after: str = "", limit: int = 50) -> list[OrganizationSize]:
    """The organizations in the order of their ids, those after ``after``."""
    rows = run(connection, _ORGANIZATIONS, {"after": after, "limit": limit}).all()
    counts = load_counts(connection, [row.organization_id for row in rows])
    return [
        OrganizationSize(
            row.organization_id,
            str(orjson.loads(row.payload).get("organizationName") or ""),
            row.access_type,
            bool(row.disabled),
            {name: counts.get(row.organization_id, {}).get(kind, 0) for name, kind in _NUMBERS.items()},
        )
        for row in rows
    ]


def organization_size(connection: Connection, organization_id: str) -> dict[str, int]:
    """The counts of one organization's records."""
    counts = load_counts(connection, [organization_id]).get(organization_id, {})
    return {name: counts.get(kind, 0) for name, kind in _NUMBERS.items()}


def count_related(connection: Connection, kind: str, organization_id: str, item_id: str) -> dict[str, int]:
    """The counts of records in, on or of a single record. ``MAX_COUNT + 1``: more than ``MAX_COUNT``."""
    parameters = {"organization_id": organization_id, "id": item_id, "limit": MAX_COUNT + 1}
    return {
        name: int(run(connection, _COUNT, parameters, table=table, of=of).scalar_one())
        for name, (table, of) in _RELATED[kind].items()
    }


def count_each(
    connection: Connection, kind: str, organization_id: str, item_ids: Collection[str], name: str
) -> dict[str, int]:
    """The count ``name`` of ``count_related`` for each of these records."""
    table, of = _RELATED[kind][name]
    parameters = {"organization_id": organization_id, "ids": json_list(item_ids), "limit": MAX_COUNT + 1}
    rows = run(connection, _COUNT_EACH, parameters, table=table, of=of.replace(":id", "requested.value"))
    return {row.id: int(row.records) for row in rows}
