"""The port of ways to people: what a channel owes those who use it.

``send`` delivers one message within a bounded time, or raises ``NotDeliveredError`` with a reason that carries no
secret. It is called from one thread, may be called again with the same message, and keeps nothing between calls.
"""

from typing import Protocol

from app.foundation.outbound.failure import CallFailure
from app.monitoring.notify.message import Message


class NotDeliveredError(Exception):
    """A message was not delivered; the text is for the log. ``hopeless``: it never will be. ``failure``: what is known
    of a call that did not take place."""

    def __init__(self, reason: str, *, hopeless: bool = False, failure: CallFailure | None = None) -> None:
        super().__init__(reason)
        self.hopeless = hopeless
        self.failure = failure


class Channel(Protocol):
    """A way to people."""

    @property
    def name(self) -> str:
        """``webhook`` or ``email``: what waiting messages are kept under."""
        ...

    def send(self, message: Message) -> None:
        """Delivers it. Raises ``NotDeliveredError``."""
        ...
