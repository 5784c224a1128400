"""The cache of organizations, folders and groups of one revision.

There are few of them, and every question needs some. They are cached until the revision changes. Users and documents
are too many to be cached.
"""

from collections import deque
from collections.abc import Iterable

from app.access.decision.ancestry import Ancestry, ancestry_of
from app.access.records import Folder, Grant, Organization

Pair = tuple[str, str]
"""An organization, and an id in it."""
Stamp = tuple[int, int]
"""A revision and when it was created: a database restored from a backup may use a number again."""
NEVER_READ: Stamp = (0, 0)

MAX_CACHED = 50_000
"""The maximum number of entries; 50,000 folders with their grants take some 50 MB."""


class CachedAncestry:
    """The ancestry of a folder, and the groups with grants on it."""

    __slots__ = ("ancestry", "folder_ids", "groups")

    def __init__(self, ancestry: Ancestry, groups: frozenset[str] | None) -> None:
        self.ancestry = ancestry
        self.folder_ids = tuple(folder.folder_id for folder in ancestry.folders)
        self.groups = groups
        """The groups that have grants anywhere in the ancestry; None: too many to be read at once."""


class Structure:
    """The organizations, folders and groups of one revision that were read so far. A missing folder is None.

    Threads share it without a lock: all of them add rows of the same revision, so their order does not matter.
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
        """Whether there are too many on any folder."""
        self.ancestries: dict[Pair, CachedAncestry] = {}

    def is_full(self) -> bool:
        return len(self.organizations) + len(self.folders) + len(self.groups_above) > MAX_CACHED

    def ancestry_of(self, organization_id: str, folder_id: str) -> Ancestry:
        """The ancestry of a folder; all its folders were read."""
        return ancestry_of(lambda above: self.folders[organization_id, above], folder_id)

    def cache_ancestry(self, organization_id: str, ancestry: Ancestry, folder_id: str) -> None:
        """Caches an ancestry, after the grants of groups on it were read."""
        groups: set[str] = set()
        for folder in ancestry.folders:
            grants = self.folder_grants[organization_id, folder.folder_id]
            if grants is None:
                self.is_crowded = True
                self.ancestries[organization_id, folder_id] = CachedAncestry(ancestry, None)
                return
            groups.update(grant.organization_user_group_id or "" for grant in grants)
        self.ancestries[organization_id, folder_id] = CachedAncestry(ancestry, frozenset(groups))

    def reached(self, organization_id: str, groups: Iterable[str]) -> dict[str, str | None]:
        """The groups and those above them, nearest first, each with the group through which it was reached."""
        through: dict[str, str | None] = dict.fromkeys(groups)
        waiting = deque(through)
        while waiting:
            member = waiting.popleft()
            for group_id in self.groups_above.get((organization_id, member), ()):
                if group_id not in through:
                    through[group_id] = member
                    waiting.append(group_id)
        return through
