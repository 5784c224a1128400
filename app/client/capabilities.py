"""The operations that this backend has, and the items that it does not support for want of others.

Core operations are there in every backend. Each of the extended ones may be unsupported, which shows when it is first
used; then it is not tried again in this run.
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
        self._unsupported: set[str] = set()
        self._supported: set[str] = set()
        self._roles_unsupported: set[str] = set()
        self._unsupported_items: Counter[str] = Counter()
        self._lock = Lock()

    def is_unsupported(self, operation: str) -> bool:
        """Whether the operation is not to be used."""
        if contract.by_name(operation).tier is not Tier.EXTENDED:
            return False
        return self.mode == "core" or operation in self._unsupported

    def is_supported(self, operation: str) -> bool:
        """Whether the backend has answered to it."""
        return operation in self._supported

    def note_supported(self, operation: str) -> None:
        """The backend answered in a way that only a backend with the operation does."""
        self._supported.add(operation)

    def are_roles_unsupported(self, operation: str) -> bool:
        """Whether the path that takes roles and access types is not to be used."""
        return self.mode == "core" or operation in self._roles_unsupported

    def note_roles_unsupported(self, operation: str) -> None:
        """The backend does not support that path."""
        with self._lock:
            self._roles_unsupported.add(operation)

    def note_unsupported(self, operation: str) -> None:
        """The backend does not support it."""
        with self._lock:
            self._unsupported.add(operation)

    def note_unsupported_items(self, operation: str, number: int) -> None:
        """So many items are unsupported for want of it."""
        with self._lock:
            self._unsupported_items[operation] += number

    def report(self) -> dict[str, object]:
        """What an operator should know, for the run's report; empty when everything was supported."""
        report: dict[str, object] = {}
        with self._lock:
            if self._unsupported:
                report["unsupportedOperations"] = sorted(self._unsupported)
            if self._roles_unsupported or self.mode == "core":
                report["rolesAndAccessTypesUnsupported"] = True
            if self._unsupported_items:
                report["unsupported"] = dict(sorted(self._unsupported_items.items()))
        return report
