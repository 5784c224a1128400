"""A cache of values that the issuer provides. It bridges a restart of the issuer or a network problem."""

from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

import structlog

from app.service.console.oidc.calls import IssuerAwayError, IssuerBusyError, IssuerError

_log = structlog.stdlib.get_logger(__name__)

FRESH_SECONDS = 600.0
"""The age at which a cached value is read again."""
MAX_AGE = 3600.0
"""The age in seconds up to which a cached value is used while the issuer is unavailable. Relying parties commonly use
an hour: a withdrawn key must not open the console for long."""
RETRY_AFTER = 10.0
"""Seconds for which an issuer that failed is not called again."""

T = TypeVar("T")


class Cached(Generic[T]):
    """A value that is read from the issuer, cached for ``FRESH_SECONDS``, or ``MAX_AGE`` while it is unavailable."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._value: T | None = None
        self._read_at = self._failed_at = 0.0
        self._failure: IssuerError | None = None

    @property
    def age(self) -> float:
        """Seconds since the value was read, after ``get`` has returned it."""
        return monotonic() - self._read_at

    def get(self, read: Callable[[], T], *, max_age: float = FRESH_SECONDS) -> T:
        """The value, read again if it is older than ``max_age``. Raises what ``read`` does. Within ``RETRY_AFTER`` of a
        failure, raises it again without a call."""
        value = self._value if self.age <= MAX_AGE else None
        if value is not None and self.age <= max_age:
            return value
        if self._failure is not None and monotonic() - self._failed_at < RETRY_AFTER:
            if value is None:
                raise type(self._failure)(str(self._failure))
            return value
        try:
            new = read()
        except IssuerError as error:
            if not isinstance(error, IssuerBusyError):
                self._failed_at, self._failure = monotonic(), error
            if not isinstance(error, IssuerAwayError):
                # It is available, and its answer has changed: the cached value is no longer valid.
                self._value = None
                raise
            if value is None:
                raise
            _log.warning("issuer_failed", problem=str(error), uses=f"its {self._label} of {self.age:.0f} s ago")
            return value
        self._value, self._read_at = new, monotonic()
        return new
