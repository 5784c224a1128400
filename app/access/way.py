"""Which folders lie above something, and do they lead to the top?"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from app.access.records import Folder


class Obstacle(Enum):
    """What keeps a way from reaching the top."""

    UNKNOWN = "unknown"
    """The next folder is not in the directory."""
    CYCLE = "cycle"
    """The folders lead back into themselves."""


@dataclass(frozen=True, slots=True)
class Way:
    """A folder and those above it."""

    folders: tuple[Folder, ...] = ()
    """Nearest first, as far as the way goes."""
    obstacle: Obstacle | None = None
    typed: int = 0
    """How many folders lie on it up to the first that has an access type of its own, that one counted; 0: none has."""


def way_up(folder_of: Callable[[str], Folder | None], folder_id: str) -> Way:
    """The way up from a folder. ``folder_of`` gives a folder of the organization by its id; None: it has no such."""
    folders: list[Folder] = []
    passed: set[str] = set()
    typed = 0
    above: str | None = folder_id
    while above is not None:
        if above in passed:
            return Way(tuple(folders), Obstacle.CYCLE, typed)
        passed.add(above)
        folder = folder_of(above)
        if folder is None:
            return Way(tuple(folders), Obstacle.UNKNOWN, typed)
        folders.append(folder)
        if not typed and folder.access_type is not None:
            typed = len(folders)
        above = folder.parent_folder_id
    return Way(tuple(folders), None, typed)
