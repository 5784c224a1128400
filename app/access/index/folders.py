"""The ancestries of folders in the index, kept for the next calls of the same revision.

Most calls ask about the same folders, and those near the top are above all others. What is kept contains no decision
and no user. A new revision starts with nothing.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from app.access.decision.ancestry import MAX_KEPT_ANCESTRY, Ancestry, Obstacle, ancestry_of
from app.access.index.layout import ACCESS_TYPES, FOLDER, Grants, listed_grants
from app.access.records import NO_EXTRA_FIELDS, Folder

Read = Callable[[str, str, str], list[str] | None]
"""Returns the value of an entry by its kind and ids; None: there is no such entry."""

_MAX_KEPT = 12_000
"""The maximum number of folders in ancestries, and of grants, that are kept after a call."""


class FolderAncestry(NamedTuple):
    """The ancestry of a folder, with the grants on it."""

    ancestry: Ancestry = Ancestry()
    resources: tuple[str, ...] = ()
    """Its folders, as users' own grants name them: level and id."""
    group_grants: tuple[Grants, ...] = ()
    """The grants of groups on those of its folders that have any."""


_TOP = FolderAncestry()
_UNKNOWN = FolderAncestry(Ancestry((), Obstacle.UNKNOWN))


class Folders:
    """The folders of one revision that were looked up. Threads must take turns."""

    def __init__(self) -> None:
        self.ancestries: dict[tuple[str, str], FolderAncestry] = {}
        """By organization and folder. ``find`` adds what is missing."""
        self.group_grants: dict[tuple[str, str], Grants] = {}
        """The grants of groups on folders that have any."""
        self._folders: dict[tuple[str, str], Folder | None] = {}
        self._size = 0

    @property
    def is_full(self) -> bool:
        """Whether too much is kept."""
        return self._size > _MAX_KEPT

    def find(self, read: Read, organization_id: str, folder_id: str) -> FolderAncestry:
        """The ancestry of a folder that is not in ``ancestries`` yet: walks up to the nearest one that is, and down."""
        below: dict[str, Folder] = {}
        known: FolderAncestry | None = None
        above: str | None = folder_id
        while known is None:
            if above is None:
                known = _TOP
            elif above in below or len(below) > MAX_KEPT_ANCESTRY:
                return self._walk(read, organization_id, folder_id)
            elif (known := self.ancestries.get((organization_id, above))) is None:
                folder = self._folder(read, organization_id, above)
                if folder is None:
                    known = _UNKNOWN
                else:
                    below[above] = folder
                    above = folder.parent_folder_id
        if known.ancestry.obstacle is Obstacle.CYCLE or len(known.resources) > MAX_KEPT_ANCESTRY:
            return self._walk(read, organization_id, folder_id)
        for below_id, folder in reversed(below.items()):
            grants = self.group_grants.get((organization_id, below_id))
            known = FolderAncestry(
                known.ancestry.below(folder),
                (FOLDER + below_id, *known.resources),
                known.group_grants if grants is None else (grants, *known.group_grants),
            )
            self._keep(organization_id, below_id, known)
        if not below:
            self._keep(organization_id, folder_id, known)
        return known

    def _walk(self, read: Read, organization_id: str, folder_id: str) -> FolderAncestry:
        """The ancestry without those of the folders above, which differ in a cycle, and are large in a deep tree."""
        ancestry = ancestry_of(partial(self._folder, read, organization_id), folder_id)
        folder_ids = [folder.folder_id for folder in ancestry.folders]
        grants = (self.group_grants.get((organization_id, above)) for above in folder_ids)
        found = FolderAncestry(ancestry, tuple([FOLDER + above for above in folder_ids]), tuple(filter(None, grants)))
        self._keep(organization_id, folder_id, found)
        return found

    def _keep(self, organization_id: str, folder_id: str, found: FolderAncestry) -> None:
        self.ancestries[organization_id, folder_id] = found
        self._size += 1 + len(found.resources)

    def _folder(self, read: Read, organization_id: str, folder_id: str) -> Folder | None:
        pair = (organization_id, folder_id)
        if pair in self._folders:
            return self._folders[pair]
        parts = read(FOLDER, organization_id, folder_id)
        folder = None
        if parts is not None:
            if len(parts) > 2:
                grants = self.group_grants[pair] = listed_grants(parts[2:])
                self._size += len(grants)
            folder = Folder(
                organization_id=organization_id,
                folder_id=folder_id,
                folder_name="",
                parent_folder_id=parts[1] or None,
                access_type=ACCESS_TYPES[parts[0]],
                extra_fields=NO_EXTRA_FIELDS,
            )
        self._folders[pair] = folder
        self._size += 1
        return folder
