"""What an issuer last said of itself: asked anew again and again, and used for a while where that fails.

An issuer that restarts, or that a network hiccup hides, would otherwise turn away whoever comes in that instant. What
it said once is not taken for true for ever: a key that it withdrew must not open the console the next day. Those who
rely on issuers commonly do so for an hour.
"""

from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

import structlog

from app.service.console.oidc.outgoing import IssuerAwayError, IssuerBusyError, IssuerError

FRESH = 600.0
"""Seconds after which it is asked again."""
KEPT = 3600.0
"""Seconds for which what it said counts while it cannot be asked."""
PAUSE = 10.0
"""Seconds for which an issuer that failed is not asked again."""

Said = TypeVar("Said")


class LastKnown(Generic[Said]):
    """One thing that an issuer says."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._said: Said | None = None
        self._said_at = self._failed_at = float("-inf")
        self._failure = ""

    @property
    def age(self) -> float:
        """Seconds since it was said."""
        return monotonic() - self._said_at

    def get(self, ask: Callable[[], Said], *, fresh: float = FRESH) -> Said:
        """It, at most ``fresh`` seconds old, or ``KEPT`` where the issuer is away. Raises what ``ask`` does, and
        ``IssuerError`` without asking where that has just failed."""
        said = self._said if self.age <= KEPT else None
        if said is not None and self.age <= fresh:
            return said
        if monotonic() - self._failed_at < PAUSE:
            if said is None:
                raise IssuerError(self._failure)
            return said
        try:
            found = ask()
        except IssuerError as error:
            if not isinstance(error, IssuerBusyError):
                self._failed_at, self._failure = monotonic(), str(error)
            if not isinstance(error, IssuerAwayError):
                # It answers, and differently: what it said before is worth nothing.
                self._said_at = float("-inf")
                raise
            if said is None:
                raise
            structlog.stdlib.get_logger(__name__).warning(
                "issuer_failed", problem=str(error), goes_by=f"its {self._what} of {self.age:.0f} s ago"
            )
            return said
        self._said, self._said_at = found, monotonic()
        return found
