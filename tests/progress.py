"""A progress that nobody watches."""


class QuietProgress:
    """Nobody watches."""

    def phase(self, name: str, total: int | None) -> None:
        """Says nothing."""

    def advance(self, n: int) -> None:
        """Says nothing."""

    def note(self, text: str) -> None:
        """Says nothing."""
