"""Which organizations, folders and groups of a revision were read so far?

There are few of them, and all questions touch them, so they are kept as long as the revision stays; people and
documents are too many for that.
"""

from collections import deque
from collections.abc import Iterable

from app.access.records import Folder, Grant, Organization

Pair = tuple[str, str]
"""An organization, and something in it."""
Place = tuple[str, str, str]
"""An organization, and a folder or a document in it; the other one is empty."""
Stamp = tuple[int, int]
"""A revision and when it was made: a database restored from a backup may use a number again."""
NEVER_READ: Stamp = (0, 0)

KEEP = 50_000
"""How many folders a loader keeps; with what is granted on them they take some 50 MB."""


class Structure:
    """What was read so far of one revision's organizations, folders and groups. None stands for what is not there.

    Threads share it: each only adds what it read from that very revision, so it does not matter who is first.
    """

    __slots__ = ("folders", "group_grants", "groups_above", "is_crowded", "organizations", "settled", "stamp", "ways")

    def __init__(self, stamp: Stamp) -> None:
        self.stamp = stamp
        self.organizations: dict[str, Organization | None] = {}
        self.groups_above: dict[Pair, tuple[str, ...]] = {}
        self.folders: dict[Pair, Folder | None] = {}
        self.group_grants: dict[Place, tuple[Grant, ...] | None] = {}
        """The grants of groups on a folder; None: too many to be read at once."""
        self.is_crowded = False
        """Whether there are too many on any of them."""
        self.settled: set[Pair] = set()
        """Folders of which, and of all above which, the grants of groups are known."""
        self.ways: dict[Pair, tuple[Place, ...]] = {}
        """A folder with those above it, as far as they are known."""

    def is_full(self) -> bool:
        return len(self.folders) + len(self.groups_above) > KEEP

    def way_up(self, organization_id: str, folder_id: str) -> tuple[Place, ...]:
        """The folder and those above it, up to the top, to one that is not there, or to where they lead back."""
        way = self.ways.get((organization_id, folder_id))
        if way is not None:
            return way
        places: dict[Place, None] = {}
        above: str | None = folder_id
        while above is not None and (organization_id, above, "") not in places:
            if (organization_id, above) not in self.folders:
                # Not read, because nobody asked for it yet: this is not the last word.
                return tuple(places)
            folder = self.folders[organization_id, above]
            if folder is None:
                break
            places[organization_id, above, ""] = None
            above = folder.parent_folder_id
        way = self.ways[organization_id, folder_id] = tuple(places)
        return way

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
