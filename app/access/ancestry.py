"""Ancestry: a folder and those above it, nearest first, and whether they lead to the top.

The rules: ``app/access/README.md``, "Ancestry and the access type in force".
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from app.access.records import Folder


class Obstacle(Enum):
    """What keeps an ancestry from reaching the top."""

    UNKNOWN = "unknown"
    """The next folder is not in the directory."""
    CYCLE = "cycle"
    """The folders lead back into themselves."""


@dataclass(frozen=True, slots=True)
class Ancestry:
    """A folder and those above it."""

    folders: tuple[Folder, ...] = ()
    """Nearest first, as far as the ancestry goes."""
    obstacle: Obstacle | None = None
    typed: int = 0
    """How many folders lie on it up to the first that has an access type of its own, that one counted; 0: none has."""


def ancestry_of(folder_of: Callable[[str], Folder | None], folder_id: str) -> Ancestry:
    """The ancestry of a folder. ``folder_of`` gives a folder of the organization by its id; None: it has no such."""
    folders: list[Folder] = []
    passed: set[str] = set()
    typed = 0
    above: str | None = folder_id
    while above is not None:
        if above in passed:
            return Ancestry(tuple(folders), Obstacle.CYCLE, typed)
        passed.add(above)
        folder = folder_of(above)
        if folder is None:
            return Ancestry(tuple(folders), Obstacle.UNKNOWN, typed)
        folders.append(folder)
        if not typed and folder.access_type is not None:
            typed = len(folders)
        above = folder.parent_folder_id
    return Ancestry(tuple(folders), None, typed)
