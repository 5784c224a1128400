"""Ancestry: a folder and its parents up to the top, nearest first.

The rules: ``app/access/decision/README.md``, "Ancestry and the access type in force".
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from app.access.records import Folder

MAX_KEPT_ANCESTRY = 64
"""Longer ancestries are not cached: a chain of N folders would keep N² / 2 of them."""


class Obstacle(Enum):
    """Why an ancestry does not reach the top."""

    UNKNOWN = "unknown"
    """The next parent does not exist."""
    CYCLE = "cycle"
    """A folder is its own ancestor."""


class Ancestry(NamedTuple):
    """A folder and its parents."""

    folders: tuple[Folder, ...] = ()
    """Nearest first, up to the obstacle if there is one."""
    obstacle: Obstacle | None = None
    levels_to_type: int = 0
    """The number of folders up to the first one with an access type. 0 if none has one."""

    def below(self, folder: Folder) -> "Ancestry":
        """The ancestry of a folder whose parent has this one. There must be no cycle."""
        levels_to_type = self.levels_to_type + 1 if self.levels_to_type else 0
        if folder.access_type is not None:
            levels_to_type = 1
        return Ancestry((folder, *self.folders), self.obstacle, levels_to_type)


def ancestry_of(folder_of: Callable[[str], Folder | None], folder_id: str) -> Ancestry:
    """The ancestry of a folder. ``folder_of`` returns a folder of the organization, or None if it does not exist."""
    folders: list[Folder] = []
    passed: set[str] = set()
    levels_to_type = 0
    above: str | None = folder_id
    while above is not None:
        if above in passed:
            return Ancestry(tuple(folders), Obstacle.CYCLE, levels_to_type)
        passed.add(above)
        folder = folder_of(above)
        if folder is None:
            return Ancestry(tuple(folders), Obstacle.UNKNOWN, levels_to_type)
        folders.append(folder)
        if not levels_to_type and folder.access_type is not None:
            levels_to_type = len(folders)
        above = folder.parent_folder_id
    return Ancestry(tuple(folders), None, levels_to_type)
