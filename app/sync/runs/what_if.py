"""Another directory than the one that is configured, to see what would come of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Other files in the place of configured sources."""

    files: tuple[str, ...]
    emptied: tuple[str, ...] = ()
    """The names of sources that give nothing, and are meant to, because a file takes their place."""
