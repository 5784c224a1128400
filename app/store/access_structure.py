"""Which organizations, folders and groups of a revision were read so far?

There are few of them, and all questions touch them, so they are kept as long as the revision stays; people and
documents are too many for that.
"""

from collections import deque
from collections.abc import Iterable

from app.access.records import Folder, Grant, Organization
from app.access.way import Way, way_up

Pair = tuple[str, str]
"""An organization, and something in it."""
Stamp = tuple[int, int]
"""A revision and when it was made: a database restored from a backup may use a number again."""
NEVER_READ: Stamp = (0, 0)

KEEP = 50_000
"""How many folders a loader keeps; with what is granted on them they take some 50 MB."""


class KeptWay:
    """The way up from a folder, and what is granted to groups on it."""

    __slots__ = ("folder_ids", "groups", "way")

    def __init__(self, way: Way, groups: frozenset[str] | None) -> None:
        self.way = way
        self.folder_ids = tuple(folder.folder_id for folder in way.folders)
        self.groups = groups
        """The groups that hold grants anywhere on the way; None: too many to be read at once."""


class Structure:
    """What was read so far of one revision's organizations, folders and groups. None stands for what is not there.

    Threads share it: each only adds what it read from that very revision, so it does not matter who is first.
    """

    __slots__ = ("folder_grants", "folders", "groups_above", "is_crowded", "organizations", "stamp", "ways")

    def __init__(self, stamp: Stamp) -> None:
        self.stamp = stamp
        self.organizations: dict[str, Organization | None] = {}
        self.groups_above: dict[Pair, tuple[str, ...]] = {}
        self.folders: dict[Pair, Folder | None] = {}
        self.folder_grants: dict[Pair, tuple[Grant, ...] | None] = {}
        """The grants of groups on a folder; None: too many to be read at once."""
        self.is_crowded = False
        """Whether there are too many on any of them."""
        self.ways: dict[Pair, KeptWay] = {}

    def is_full(self) -> bool:
        return len(self.folders) + len(self.groups_above) > KEEP

    def way_up(self, organization_id: str, folder_id: str) -> Way:
        """The way up through folders, all of which were read."""
        return way_up(lambda above: self.folders[organization_id, above], folder_id)

    def keep_way(self, organization_id: str, way: Way, folder_id: str) -> None:
        """Keeps a way, when all that groups hold on it was read."""
        groups: set[str] = set()
        for folder in way.folders:
            grants = self.folder_grants[organization_id, folder.folder_id]
            if grants is None:
                self.is_crowded = True
                self.ways[organization_id, folder_id] = KeptWay(way, None)
                return
            groups.update(grant.organization_user_group_id or "" for grant in grants)
        self.ways[organization_id, folder_id] = KeptWay(way, frozenset(groups))

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
