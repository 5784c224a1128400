"""The selection of a run: its organizations and users.

The rules: ``app/sync/plan/README.md``, "Selection".
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


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
    def organizations_json(self) -> str:
        """The organizations as a JSON list, as they are stored."""
        return json.dumps(self.organization_ids, ensure_ascii=False)

    @property
    def users_json(self) -> str:
        return json.dumps(self.user_ids, ensure_ascii=False)


EVERYTHING = Selection()
