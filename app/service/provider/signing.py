"""Signs answers to browsers, by the backend's operation Generate Signature.

A page could change an answer that passes through it. So the backend accepts such an answer only with its own signature.
Answers to the backend itself need no signature.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from threading import BoundedSemaphore

import structlog

from app.client.errors import ClientError
from app.contract import limits
from app.contract.operation import Answer
from app.contract.permissions import GenerateSignatureRequest, Signature

_log = structlog.stdlib.get_logger(__name__)

Sign = Callable[[Sequence[Mapping[str, object]]], str | None]
"""Returns the signature of an answer's results. None: the backend did not sign in time."""

MAX_CALLS = 2
"""Concurrent calls. A backend that hangs must not block all threads of the service."""
PAUSE = 5.0
"""Seconds without calls after a failure. Otherwise each request of a page would wait for the timeout."""


class BackendSigner:
    """Signs answers by calls to the backend. It is thread-safe and never raises."""

    def __init__(
        self,
        generate: Callable[[GenerateSignatureRequest], Answer[Signature]],
        *,
        timeout: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``generate`` calls Generate Signature. ``timeout`` is the time to wait for a free call, in seconds."""
        self._generate = generate
        self._timeout = timeout
        self._monotonic = monotonic
        self._calls = BoundedSemaphore(MAX_CALLS)
        self._paused_until = 0.0

    def __call__(self, results: Sequence[Mapping[str, object]]) -> str | None:
        if len(results) > limits.BATCH_ITEMS:
            reason = f"an answer of {len(results)} results is longer than the {limits.BATCH_ITEMS} that can be signed"
            self._warn(reason)
            return None
        if self._monotonic() < self._paused_until or not self._calls.acquire(timeout=self._timeout):
            return None
        try:
            # Another call may have failed while this one waited.
            if self._monotonic() < self._paused_until:
                return None
            return self._generate(GenerateSignatureRequest.from_wire({"permissions": list(results)})).data.signature
        except ClientError as error:
            self._paused_until = self._monotonic() + PAUSE
            self._warn(str(error))
            return None
        finally:
            self._calls.release()

    def _warn(self, cause: str) -> None:
        _log.warning("answer_not_signed", cause=cause)
