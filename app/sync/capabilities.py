"""Which operations does this backend have, and what could it not be told?

Core operations are there in every backend. Of the extended ones each may be missing, which shows when it is first used;
then it is not tried again in this run.
"""

from collections import Counter
from threading import Lock
from typing import Literal

from app.contract import operations as contract
from app.contract.operation import Tier

OperationsMode = Literal["auto", "core", "extended"]


class Capabilities:
    """What is known in one run. Safe to share between threads."""

    def __init__(self, mode: OperationsMode) -> None:
        self.mode: OperationsMode = mode
        self._missing: set[str] = set()
        self._present: set[str] = set()
        self._plain: set[str] = set()
        self._untold: Counter[str] = Counter()
        self._lock = Lock()

    def lacks(self, operation: str) -> bool:
        """Whether the operation is not to be used."""
        if contract.by_name(operation).tier is not Tier.EXTENDED:
            return False
        return self.mode == "core" or operation in self._missing

    def is_present(self, operation: str) -> bool:
        """Whether the backend has answered to it."""
        return operation in self._present

    def note_present(self, operation: str) -> None:
        """The backend answered in a way that only a backend with the operation does."""
        self._present.add(operation)

    def is_plain(self, operation: str) -> bool:
        """Whether the path that takes roles and access types is not to be used."""
        return self.mode == "core" or operation in self._plain

    def note_plain(self, operation: str) -> None:
        """The backend does not have that path."""
        with self._lock:
            self._plain.add(operation)

    def note_missing(self, operation: str) -> None:
        """The backend does not have it."""
        with self._lock:
            self._missing.add(operation)

    def note_untold(self, operation: str, number: int) -> None:
        """So many items could not be told for want of it."""
        with self._lock:
            self._untold[operation] += number

    def report(self) -> dict[str, object]:
        """What an operator should know, for the run's report; empty when nothing was missing."""
        report: dict[str, object] = {}
        with self._lock:
            if self._missing:
                report["missingOperations"] = sorted(self._missing)
            if self._plain or self.mode == "core":
                report["rolesAndAccessTypesUntold"] = True
            if self._untold:
                report["untold"] = dict(sorted(self._untold.items()))
        return report
