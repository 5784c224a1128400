"""The outline of the access model for people who look at it: which organizations there are, and how large each is."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from app.access.counts import counts_of
from app.access.records import Document, Folder, Grant, Group, Membership
from app.foundation.database.statements import run

_SORTS = {
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


@dataclass(frozen=True, slots=True)
class OrganizationSize:
    """One organization, and how much of each sort it has."""

    organization_id: str
    name: str
    access_type: str
    disabled: bool
    numbers: Mapping[str, int]


def organization_sizes(connection: Connection, *, after: str = "", limit: int = 50) -> list[OrganizationSize]:
    """The organizations in the order of their ids, those after ``after``."""
    rows = run(connection, _ORGANIZATIONS, {"after": after, "limit": limit}).all()
    counts = counts_of(connection, [row.organization_id for row in rows])
    return [
        OrganizationSize(
            row.organization_id,
            str(json.loads(row.payload).get("organizationName") or ""),
            row.access_type,
            bool(row.disabled),
            _by_sort(counts.get(row.organization_id, {})),
        )
        for row in rows
    ]


def organization_size(connection: Connection, organization_id: str) -> dict[str, int]:
    """How much of each sort one organization has."""
    return _by_sort(counts_of(connection, [organization_id]).get(organization_id, {}))


def _by_sort(counts: Mapping[str, int]) -> dict[str, int]:
    return {sort: counts.get(kind, 0) for sort, kind in _SORTS.items()}
