"""The numbers of records that change, and their form in the database."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import orjson


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """The numbers of changed records of a kind."""

    added: int = 0
    updated: int = 0
    removed: int = 0

    @property
    def total(self) -> int:
        return self.added + self.updated + self.removed

    @property
    def any(self) -> bool:
        return self.total > 0

    def __add__(self, other: "ChangeCounts") -> "ChangeCounts":
        return ChangeCounts(self.added + other.added, self.updated + other.updated, self.removed + other.removed)


SourceCounts = Mapping[str, Mapping[int, ChangeCounts]]
"""kind → source → how many of its records change, for the kinds and sources with changes."""


def changes_to_json(changes: Mapping[str, ChangeCounts]) -> str:
    """kind → counts as JSON, for the kinds that changed."""
    return orjson.dumps({kind: asdict(counts) for kind, counts in changes.items() if counts.any}).decode()


def changes_from_json(text: str) -> dict[str, ChangeCounts]:
    """Parses the text of ``changes_to_json``. Empty for an empty text."""
    return {kind: ChangeCounts(**counts) for kind, counts in orjson.loads(text or "{}").items()}
