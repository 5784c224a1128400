"""The operations that the backend supports, and the number of items that it cannot represent without the others.

Every backend has the core operations. It may lack any of the extended ones, which the first call discovers. This run
then does not call the operation again.
"""

from collections import Counter
from threading import Lock
from typing import Literal

from app.contract import operations as contract
from app.contract.operation import Tier

OperationsMode = Literal["auto", "core", "extended"]


class Capabilities:
    """What one run has discovered. Threads may share it."""

    def __init__(self, mode: OperationsMode) -> None:
        self.mode: OperationsMode = mode
        self._unsupported: set[str] = set()
        self._supported: set[str] = set()
        self._roles_unsupported: set[str] = set()
        self._unsupported_items: Counter[str] = Counter()
        self._lock = Lock()

    def is_unsupported(self, operation: str) -> bool:
        """Whether the operation must not be called."""
        if contract.by_name(operation).tier is not Tier.EXTENDED:
            return False
        return self.mode == "core" or operation in self._unsupported

    def is_supported(self, operation: str) -> bool:
        """Whether a response proved that the backend has the operation."""
        return operation in self._supported

    def mark_supported(self, operation: str) -> None:
        self._supported.add(operation)

    def are_roles_unsupported(self, operation: str) -> bool:
        """Whether the operation's path with roles and access types must not be called."""
        return self.mode == "core" or operation in self._roles_unsupported

    def mark_roles_unsupported(self, operation: str) -> None:
        with self._lock:
            self._roles_unsupported.add(operation)

    def mark_unsupported(self, operation: str) -> None:
        with self._lock:
            self._unsupported.add(operation)

    def count_unsupported_items(self, operation: str, number: int) -> None:
        """Counts items that cannot be sent without the operation."""
        with self._lock:
            self._unsupported_items[operation] += number

    def report(self) -> dict[str, object]:
        """A part of the run's report; empty if everything was supported."""
        report: dict[str, object] = {}
        with self._lock:
            if self._unsupported:
                report["unsupportedOperations"] = sorted(self._unsupported)
            if self._roles_unsupported or self.mode == "core":
                report["rolesAndAccessTypesUnsupported"] = True
            if self._unsupported_items:
                report["unsupported"] = dict(sorted(self._unsupported_items.items()))
        return report
