"""The organizations, folders and groups of a revision that were read so far.

There are few of them, and all questions touch them, so they are kept as long as the revision stays; people and
documents are too many for that.
"""

from collections import deque
from collections.abc import Iterable

from app.access.decision.ancestry import Ancestry, ancestry_of
from app.access.records import Folder, Grant, Organization

Pair = tuple[str, str]
"""An organization, and something in it."""
Stamp = tuple[int, int]
"""A revision and when it was made: a database restored from a backup may use a number again."""
NEVER_READ: Stamp = (0, 0)

KEEP = 50_000
"""How many folders a loader keeps; with what is granted on them they take some 50 MB."""


class KeptAncestry:
    """The ancestry of a folder, and what is granted to groups on it."""

    __slots__ = ("ancestry", "folder_ids", "groups")

    def __init__(self, ancestry: Ancestry, groups: frozenset[str] | None) -> None:
        self.ancestry = ancestry
        self.folder_ids = tuple(folder.folder_id for folder in ancestry.folders)
        self.groups = groups
        """The groups that hold grants anywhere in the ancestry; None: too many to be read at once."""


class Structure:
    """What was read so far of one revision's organizations, folders and groups. None stands for a folder that is not
    there.

    Threads share it: each only adds what it read from that very revision, so it does not matter who is first.
    """

    __slots__ = ("ancestries", "folder_grants", "folders", "groups_above", "is_crowded", "organizations", "stamp")

    def __init__(self, stamp: Stamp) -> None:
        self.stamp = stamp
        self.organizations: dict[str, Organization] = {}
        self.groups_above: dict[Pair, tuple[str, ...]] = {}
        self.folders: dict[Pair, Folder | None] = {}
        self.folder_grants: dict[Pair, tuple[Grant, ...] | None] = {}
        """The grants of groups on a folder; None: too many to be read at once."""
        self.is_crowded = False
        """Whether there are too many on any of them."""
        self.ancestries: dict[Pair, KeptAncestry] = {}

    def is_full(self) -> bool:
        return len(self.organizations) + len(self.folders) + len(self.groups_above) > KEEP

    def ancestry_of(self, organization_id: str, folder_id: str) -> Ancestry:
        """The ancestry through folders, all of which were read."""
        return ancestry_of(lambda above: self.folders[organization_id, above], folder_id)

    def keep_ancestry(self, organization_id: str, ancestry: Ancestry, folder_id: str) -> None:
        """Keeps an ancestry, when all that groups hold on it was read."""
        groups: set[str] = set()
        for folder in ancestry.folders:
            grants = self.folder_grants[organization_id, folder.folder_id]
            if grants is None:
                self.is_crowded = True
                self.ancestries[organization_id, folder_id] = KeptAncestry(ancestry, None)
                return
            groups.update(grant.organization_user_group_id or "" for grant in grants)
        self.ancestries[organization_id, folder_id] = KeptAncestry(ancestry, frozenset(groups))

    def reached(self, organization_id: str, groups: Iterable[str]) -> dict[str, str | None]:
        """The groups and those above them, nearest first, each with the group through which it was reached."""
        came_from: dict[str, str | None] = dict.fromkeys(groups)
        waiting = deque(came_from)
        while waiting:
            member = waiting.popleft()
            for group_id in self.groups_above.get((organization_id, member), ()):
                if group_id not in came_from:
                    came_from[group_id] = member
                    waiting.append(group_id)
        return came_from
