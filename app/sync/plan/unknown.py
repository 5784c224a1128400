"""Finds ids in a run's selection that exist in neither the directory nor the ledger.

Without it, a run for a mistyped id would look like a run for an id that is up to date.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from app.foundation.database.statements import run
from app.sync.ledger.items import USER_KINDS
from app.sync.plan.selection import Selection

_MAX_REPORTED = 20

_ORGANIZATIONS = """
SELECT wanted.value FROM (@list(organization_ids)) AS wanted
WHERE NOT EXISTS (SELECT 1 FROM model_organization a WHERE a.organization_id = wanted.value)
  AND NOT EXISTS (
    SELECT 1 FROM ledger_item l WHERE l.ledger_id = :ledger_id AND l.organization_id = wanted.value)
"""

_USERS = """
SELECT wanted.value FROM (@list(user_ids)) AS wanted
WHERE NOT EXISTS (SELECT 1 FROM model_user a WHERE a.user_id = wanted.value)
  AND NOT EXISTS (
    SELECT 1 FROM ledger_item l WHERE l.ledger_id = :ledger_id AND l.kind IN ({kinds}) AND l.item_id = wanted.value)
"""


@dataclass(frozen=True, slots=True)
class UnknownIds:
    """The first unknown organizations and users, and the total number."""

    organization_ids: tuple[str, ...]
    user_ids: tuple[str, ...]
    count: int

    def to_wire(self) -> dict[str, object]:
        """The entry of a run's report."""
        return {"organizationIds": list(self.organization_ids), "userIds": list(self.user_ids), "count": self.count}


def unknown_ids(connection: Connection, ledger_id: int, selection: Selection) -> UnknownIds | None:
    """The unknown ids of a selection; None if there are none."""
    parameters: dict[str, object] = {
        "ledger_id": ledger_id,
        "organization_ids": selection.organizations_json,
        "user_ids": selection.users_json,
    }
    kinds = ", ".join(f"'{kind.value}'" for kind in USER_KINDS)
    organizations = sorted(run(connection, _ORGANIZATIONS, parameters).scalars())
    users = sorted(run(connection, _USERS, parameters, kinds=kinds).scalars())
    if not organizations and not users:
        return None
    return UnknownIds(
        tuple(organizations[:_MAX_REPORTED]), tuple(users[:_MAX_REPORTED]), len(organizations) + len(users)
    )


def unknown_sentence(report: Mapping[str, object]) -> str | None:
    """The sentence about unknown ids in a run's report; None if it has none."""
    unknown = report.get("unknown")
    if not isinstance(unknown, Mapping):
        return None
    named = [f"organization {name}" for name in unknown["organizationIds"]]
    named += [f"user {name}" for name in unknown["userIds"]]
    further = unknown["count"] - len(named)
    more = f" and {further} more" if further else ""
    return f"in neither the directory nor the ledger: {', '.join(named)}{more}"
