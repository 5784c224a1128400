"""The selection of a run: its organizations and users, and the failed items that it retries.

The rules: ``app/sync/plan/README.md``, "Selection".
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from app.sync.ledger.items import ItemKey


@dataclass(frozen=True, slots=True)
class Selection:
    """The organizations and users of a run, sorted. Empty means all."""

    organization_ids: tuple[str, ...] = ()
    user_ids: tuple[str, ...] = ()
    in_scope: bool = False
    """Whether only the items are planned that ``app.sync.plan.scope`` found."""

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
        """An SQL condition that a row is selected. The arguments are columns; without ``user_id`` users and scope are
        ignored."""
        conditions = []
        if self.organization_ids:
            conditions.append(f"{organization_id} IN (@list(organization_ids))")
        if self.user_ids and user_id:
            conditions.append(f"{user_id} IN (@list(user_ids))")
        if self.in_scope and user_id:
            conditions.append(f"{user_id} IN (SELECT user_id FROM touched_user)")  # noqa: S608 - a column
        return " AND ".join(conditions) or "TRUE"


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class Retry:
    """Failed items that are tried now."""

    kinds: tuple[str, ...] = ()
    """Empty means all."""
    items: tuple[ItemKey, ...] = ()
    """Empty means all of these kinds."""
