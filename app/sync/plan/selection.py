"""The selection of a run: its organizations and users, and those of them that do not exist.

The rules: ``app/sync/plan/README.md``, "Selection"."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from sqlalchemy import Connection

from app.foundation.database.statements import run
from app.sync.ledger.ledger import USER_KINDS, listed


@dataclass(frozen=True, slots=True)
class Selection:
    """The organizations and users of a run, sorted. Empty means all."""

    organization_ids: tuple[str, ...] = ()
    user_ids: tuple[str, ...] = ()

    @classmethod
    def of(cls, organization_ids: Iterable[str] = (), user_ids: Iterable[str] = ()) -> Self:
        """Sorts the ids and removes duplicates."""
        return cls(tuple(sorted(set(organization_ids))), tuple(sorted(set(user_ids))))

    @property
    def is_everything(self) -> bool:
        return not self.organization_ids and not self.user_ids

    @property
    def parameters(self) -> dict[str, object]:
        """Both as JSON lists, as they are stored, and as the parameters of ``condition``."""
        return {
            "organization_ids": json.dumps(self.organization_ids, ensure_ascii=False),
            "user_ids": json.dumps(self.user_ids, ensure_ascii=False),
        }

    def condition(self, organization_id: str, user_id: str = "") -> str:
        """An SQL condition that a row is selected. The arguments are columns; without ``user_id`` the users are
        ignored."""
        conditions = []
        if self.organization_ids:
            conditions.append(f"{organization_id} IN (@list(organization_ids))")
        if self.user_ids and user_id:
            conditions.append(f"{user_id} IN (@list(user_ids))")
        return " AND ".join(conditions) or "TRUE"


EVERYTHING = Selection()

_MAX_REPORTED = 20

_UNKNOWN_ORGANIZATIONS = """
SELECT wanted.value FROM (@list(organization_ids)) AS wanted
WHERE NOT EXISTS (SELECT 1 FROM model_organization a WHERE a.organization_id = wanted.value)
  AND NOT EXISTS (
    SELECT 1 FROM ledger_item l WHERE l.ledger_id = :ledger_id AND l.organization_id = wanted.value)
"""

_UNKNOWN_USERS = """
SELECT wanted.value FROM (@list(user_ids)) AS wanted
WHERE NOT EXISTS (SELECT 1 FROM model_user a WHERE a.user_id = wanted.value)
  AND NOT EXISTS (
    SELECT 1 FROM ledger_item l WHERE l.ledger_id = :ledger_id AND l.kind IN ({kinds}) AND l.item_id = wanted.value)
"""


def unknown_ids(connection: Connection, ledger_id: int, selection: Selection) -> dict[str, object] | None:
    """The ids of a selection that exist in neither the directory nor the ledger, as the entry of a run's report; None
    if there are none. Without it, a run for a mistyped id would look like a run for an id that is up to date."""
    parameters = {"ledger_id": ledger_id, **selection.parameters}
    organizations = sorted(run(connection, _UNKNOWN_ORGANIZATIONS, parameters).scalars())
    users = sorted(run(connection, _UNKNOWN_USERS, parameters, kinds=listed(USER_KINDS)).scalars())
    if not organizations and not users:
        return None
    return {
        "organizationIds": organizations[:_MAX_REPORTED],
        "userIds": users[:_MAX_REPORTED],
        "count": len(organizations) + len(users),
    }


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
