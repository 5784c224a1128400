"""Caches the ancestries of folders in the index for the next calls of the same revision.

Most calls ask about the same folders, and the folders near the top are above all others. The stored ancestries contain
neither decisions nor users. A new revision starts without any.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from app.access.decision.ancestry import MAX_KEPT_ANCESTRY, Ancestry, Obstacle, ancestry_of
from app.access.index.layout import ACCESS_TYPES, FOLDER, Grants, listed_grants
from app.access.records import NO_EXTRA_FIELDS, Folder

Read = Callable[[str, str, str], list[str] | None]
"""Returns the value of an entry by its kind and ids. None: there is no such entry."""

_MAX_KEPT = 10_500
"""The maximum number of folders in ancestries, and of grants, that are kept after a call: 2 MB."""


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
        """Organization and folder → its ancestry. ``build`` adds what is missing."""
        self.group_grants: dict[tuple[str, str], Grants] = {}
        """The grants of groups on folders that have any."""
        self._size = 0

    @property
    def is_full(self) -> bool:
        """Whether more than ``_MAX_KEPT`` folders and grants are stored."""
        return self._size > _MAX_KEPT

    def build(self, read: Read, organization_id: str, folder_id: str) -> FolderAncestry:
        """Builds and stores the ancestry of a folder, and of those between it and the nearest one that is stored."""
        below: dict[str, Folder] = {}
        above: str | None = folder_id
        built = _TOP
        while above is not None:
            stored = self.ancestries.get((organization_id, above))
            if stored is not None:
                built = stored
                break
            if above in below or len(below) > MAX_KEPT_ANCESTRY:
                return self._build_alone(read, organization_id, folder_id)
            folder = self._read_folder(read, organization_id, above)
            if folder is None:
                built = _UNKNOWN
                break
            below[above] = folder
            above = folder.parent_folder_id
        if built.ancestry.obstacle is Obstacle.CYCLE or len(built.resources) > MAX_KEPT_ANCESTRY:
            return self._build_alone(read, organization_id, folder_id)
        for folder in reversed(below.values()):
            grants = self.group_grants.get((organization_id, folder.folder_id))
            built = FolderAncestry(
                built.ancestry.below(folder),
                (FOLDER + folder.folder_id, *built.resources),
                built.group_grants if grants is None else (grants, *built.group_grants),
            )
            self._store(organization_id, folder.folder_id, built)
        if not below:
            # The folder itself is unknown.
            self._store(organization_id, folder_id, built)
        return built

    def _build_alone(self, read: Read, organization_id: str, folder_id: str) -> FolderAncestry:
        """Builds the ancestry without storing those of the folders above.

        In a cycle they would be wrong, and in a deep tree too large.
        """
        folders = ancestry_of(partial(self._read_folder, read, organization_id), folder_id)
        folder_ids = [folder.folder_id for folder in folders.folders]
        grants = (self.group_grants.get((organization_id, above)) for above in folder_ids)
        resources = tuple([FOLDER + above for above in folder_ids])
        ancestry = FolderAncestry(folders, resources, tuple(filter(None, grants)))
        self._store(organization_id, folder_id, ancestry)
        return ancestry

    def _store(self, organization_id: str, folder_id: str, ancestry: FolderAncestry) -> None:
        self.ancestries[organization_id, folder_id] = ancestry
        self._size += 1 + len(ancestry.resources)

    def _read_folder(self, read: Read, organization_id: str, folder_id: str) -> Folder | None:
        """Reads the folder, and stores the grants of groups on it."""
        parts = read(FOLDER, organization_id, folder_id)
        if parts is None:
            return None
        access_type, parent_folder_id, *grants = parts
        if grants:
            self.group_grants[organization_id, folder_id] = listed = listed_grants(grants)
            self._size += len(listed)
        return Folder(
            organization_id=organization_id,
            folder_id=folder_id,
            folder_name="",
            parent_folder_id=parent_folder_id or None,
            access_type=ACCESS_TYPES[access_type],
            extra_fields=NO_EXTRA_FIELDS,
        )
