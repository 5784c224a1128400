"""The port for the progress of a run, implemented by progress bars and logs."""

from typing import Protocol


class Progress(Protocol):
    """Receives progress from the engine's thread, in order. Methods must not raise and must not block."""

    def phase(self, name: str, total: int | None) -> None:
        """A phase begins, such as ``reading`` or ``planning``, with ``total`` items if known."""

    def advance(self, n: int) -> None:
        """``n`` more items of the current phase are settled."""

    def note(self, text: str) -> None:
        """A sentence for the operator."""
