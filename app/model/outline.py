"""The outline of the access model for people who look at it: which organizations there are, and how large each is.

Nothing here reads more than a page shows: what would need a scan is counted to ``MOST`` and no further.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from app.database.statements import run

MOST = 1_000
"""What there is more of is counted no further."""

_COUNTED = {
    "members": "access_membership",
    "folders": "access_folder",
    "documents": "access_document",
    "grants": "access_grant",
}

_ORGANIZATIONS = """
SELECT organization_id, access_type, disabled, payload FROM access_organization
WHERE organization_id > :after ORDER BY organization_id LIMIT :limit
"""

_COUNT = """
SELECT COUNT(*) FROM (SELECT 1 FROM {table} WHERE organization_id = :organization_id LIMIT :most) counted
"""


@dataclass(frozen=True, slots=True)
class OrganizationSize:
    """One organization, and how much of each sort it has: ``MOST + 1`` stands for more than ``MOST``."""

    organization_id: str
    name: str
    access_type: str
    disabled: bool
    numbers: Mapping[str, int]


def organization_sizes(connection: Connection, *, after: str = "", limit: int = 50) -> list[OrganizationSize]:
    """The organizations in the order of their ids, those after ``after``."""
    rows = run(connection, _ORGANIZATIONS, {"after": after, "limit": limit}).all()
    return [
        OrganizationSize(
            row.organization_id,
            str(json.loads(row.payload).get("organizationName") or ""),
            row.access_type,
            bool(row.disabled),
            {what: _count(connection, table, row.organization_id) for what, table in _COUNTED.items()},
        )
        for row in rows
    ]


def _count(connection: Connection, table: str, organization_id: str) -> int:
    parameters = {"organization_id": organization_id, "most": MOST + 1}
    return int(run(connection, _COUNT, parameters, table=table).scalar_one())
