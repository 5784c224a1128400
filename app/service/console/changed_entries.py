"""The entries of users that a run changed in the backend, for its page: in numbers, by organization and by user."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from app.service.console.names import Mention, mentions_of, organizations_of
from app.service.console.run_changes import ACTIONS
from app.sync.ledger.items import USER_KINDS
from app.sync.plan.changed_users import MAX_ENTRIES, ChangedUser, changed_access_types, changed_users
from app.sync.plan.listing import PlannedChange, read_changes
from app.sync.runs.run import ENDS, Run

EFFECTS = ("lose", "gain", "change")
"""The numbers of a ``ChangedUser``."""
_SHOWN = 10
"""The organizations and the users that the page names."""


class Figure(NamedTuple):
    """The number of users and entries with one effect."""

    effect: str
    users: int
    entries: int


class OrganizationUsers(NamedTuple):
    """The users of an organization whose entries were changed."""

    organization_id: str
    users: Mapping[str, int]
    """Effect → number of users."""


class ChangedEntries(NamedTuple):
    """The users' entries that a run added, updated or deleted in the backend."""

    added: int
    removed: int
    held: int
    """Held deletes of every kind."""
    is_first: bool
    """Whether the backend had nothing before."""
    figures: Sequence[Figure]
    """Empty if the entries are too many: they are only counted then."""
    organizations: Sequence[OrganizationUsers]
    """Those with most users."""
    users: Sequence[ChangedUser]
    """Those with most entries."""
    user_count: int
    items: Mapping[int, PlannedChange]
    """Ordinal → an item of ``users``."""
    access_types: Mapping[str, int]
    """Kind → number of folders or documents with another access type. Empty in a first sync."""

    def mentions(self) -> Iterator[Mention]:
        """The records that the page names."""
        yield from mentions_of(self.items.values())
        yield from organizations_of(self.organizations)


def count_entries(run: Run, action: str) -> int:
    """The number of users' entries that the run added, updated or deleted."""
    return sum(run.counts.get(kind, {}).get(action, {}).get("done", 0) for kind in USER_KINDS)


def changed_entries(connection: Connection, run: Run) -> ChangedEntries | None:
    """The changes of a run that has ended. None: it has not ended, is a preview, or has no plan or no items."""
    if run.dry_run or run.status not in ENDS or run.plan_id is None or not run.counts:
        return None
    added, updated, removed = (count_entries(run, action) for action in ACTIONS)
    verified = run.report.get("verify", {})
    # The first sync reads the backend before it plans.
    is_first = "seen" in verified and not verified["seen"] and not verified["missing"] and added > 0
    is_listed = not is_first and 0 < added + updated + removed <= MAX_ENTRIES
    users = changed_users(connection, run.plan_id) if is_listed else []
    first = [ordinal for user in users[:_SHOWN] for ordinal in user.ordinals]
    return ChangedEntries(
        added=added,
        removed=removed,
        held=run.total("held"),
        is_first=is_first,
        figures=list(_figures(users)),
        organizations=_organizations(users)[:_SHOWN],
        users=users[:_SHOWN],
        user_count=len(users),
        items={item.ordinal: item for item in read_changes(connection, run.plan_id, first)},
        access_types={} if is_first else changed_access_types(connection, run.plan_id),
    )


def _figures(users: Sequence[ChangedUser]) -> Iterator[Figure]:
    for effect in EFFECTS:
        numbers = [(user.user_id, user.effects[effect]) for user in users if user.effects[effect]]
        if numbers:
            yield Figure(effect, len({user_id for user_id, _ in numbers}), sum(number for _, number in numbers))


def _organizations(users: Sequence[ChangedUser]) -> list[OrganizationUsers]:
    within: defaultdict[str, list[ChangedUser]] = defaultdict(list)
    for user in users:
        within[user.organization_id].append(user)
    largest = sorted(within.items(), key=lambda item: -len(item[1]))
    return [
        OrganizationUsers(
            organization_id, {effect: sum(user.effects[effect] > 0 for user in of_one) for effect in EFFECTS}
        )
        for organization_id, of_one in largest
    ]
