"""The port through which someone who watches a run learns how far it is.

The engine tells; a progress bar, a log or nobody listens. Calls come from the thread that runs the engine, in order.
"""

from typing import Protocol


class Progress(Protocol):
    """What the engine calls while it works. An implementer must not raise and must not block."""

    def phase(self, name: str, total: int | None) -> None:
        """A new stretch of work begins (``reading``, ``planning``, ``folders``, ...); ``total`` items, or None."""
        ...

    def advance(self, n: int) -> None:
        """``n`` more items of the current stretch are settled, whatever became of them."""
        ...

    def note(self, text: str) -> None:
        """One sentence worth showing."""
        ...
