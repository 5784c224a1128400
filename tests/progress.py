"""A progress that prints nothing."""


class QuietProgress:
    """Prints nothing."""

    def phase(self, name: str, total: int | None) -> None:
        pass

    def advance(self, n: int) -> None:
        pass

    def note(self, text: str) -> None:
        pass
