"""The source that holds what was pushed to it, and cannot be asked for anything."""

from app.directory.source import EVERYTHING, Answered, End, Reading, ReadRequest, Verdict


class PushedSource:
    """A source of ``type: push``. To read it brings nothing new: what was pushed stays in force."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:  # noqa: ARG002 - whatever is asked, nothing changed
        """No changes."""
        yield End(Verdict.COMPLETE, answered=Answered.CHANGES)
