"""Counts what a run changed in the backend: the entries of each user, and the access types of folders and documents.

The entries of a user are the memberships, and the places in folders, documents and groups.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection

from app.foundation.database.statements import run
from app.sync.ledger.items import USER_KINDS
from app.sync.plan.parts import parts_of
from app.sync.plan.rules import Action, Phase

MAX_ENTRIES = 5_000
"""Entries of a run with more of them are only counted."""
_FIRST = 3
"""The number of items that are listed for each user."""

_RESTORED = {Phase.RESTORE_FOLDER_AND_DOCUMENT_USERS, Phase.RESTORE_GROUP_MEMBERS}
"""The phases that add what a delete before them took along. Nobody gains or loses it."""

# An update without another role changes the name or the address of a member.
_DONE = """
SELECT organization_id, item_id, ordinal FROM plan_item @by(ix_plan_item_plan_id_status_ordinal)
WHERE plan_id = :plan_id AND status = 'done' AND ordinal BETWEEN :first AND :last
  AND (:action <> 'update' OR was <> '' AND was NOT LIKE '%"accessRole":' || @json(access_role) || ',%')
ORDER BY ordinal
"""

# A new folder or document has no former access type.
_ACCESS_TYPES = """
SELECT COUNT(*) FROM plan_item @by(ix_plan_item_plan_id_status_ordinal)
WHERE plan_id = :plan_id AND status = 'done' AND ordinal BETWEEN :first AND :last AND was <> ''
"""


@dataclass(slots=True)
class ChangedUser:
    """A user of an organization, and the numbers of entries that were added, removed, and got another role."""

    organization_id: str
    user_id: str
    effects: Counter[str] = field(default_factory=Counter)
    """``gain``, ``lose`` or ``change`` → number of entries."""
    ordinals: list[int] = field(default_factory=list)
    """The first items."""

    @property
    def entries(self) -> int:
        return self.effects.total()


_EFFECTS = {Action.ADD: "gain", Action.DELETE: "lose", Action.UPDATE: "change"}


def changed_users(connection: Connection, plan_id: str) -> list[ChangedUser]:
    """The users in descending order of their entries. It reads every item of a user that is done: see
    ``MAX_ENTRIES``."""
    users: dict[tuple[str, str], ChangedUser] = {}
    for organization_id, user_id, ordinal, action in _done(connection, plan_id):
        user = users.setdefault((organization_id, user_id), ChangedUser(organization_id, user_id))
        user.effects[_EFFECTS[action]] += 1
        if len(user.ordinals) < _FIRST:
            user.ordinals.append(ordinal)
    return sorted(users.values(), key=lambda user: (-user.entries, user.organization_id, user.user_id))


def changed_access_types(connection: Connection, plan_id: str) -> Mapping[str, int]:
    """Kind → number of folders or documents with another access type. Users without an entry gain or lose access to
    them."""
    changed: Counter[str] = Counter()
    for part in parts_of(connection, plan_id):
        if part.phase in {Phase.FOLDER_ACCESS, Phase.DOCUMENT_ACCESS}:
            parameters = {"first": part.first_ordinal, "last": part.last_ordinal}
            changed[part.kind] += run(connection, _ACCESS_TYPES, {"plan_id": plan_id, **parameters}).scalar_one()
    return +changed


def _done(connection: Connection, plan_id: str) -> Iterator[tuple[str, str, int, Action]]:
    for part in parts_of(connection, plan_id):
        if part.kind in USER_KINDS and part.phase not in _RESTORED:
            parameters = {"first": part.first_ordinal, "last": part.last_ordinal, "action": part.action}
            for row in run(connection, _DONE, {"plan_id": plan_id, **parameters}):
                yield (*row, Action(part.action))
