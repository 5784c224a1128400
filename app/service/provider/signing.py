"""Signs answers that pass through a browser.

The page could change such an answer, so the backend accepts it only with a signature by its own key. Its operation
Generate Signature signs, within a timeout. Answers to the backend itself need no signature.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from threading import BoundedSemaphore

import structlog

from app.client.errors import ClientError
from app.contract import limits
from app.contract.envelope import Answer
from app.contract.permissions import GenerateSignatureRequest, Signature

Sign = Callable[[Sequence[Mapping[str, object]]], str | None]
"""Returns the signature of an answer's results, or None if there is none in time."""

AT_ONCE = 2
"""Answers that are being signed at a time, at most: a backend that hangs must not take every thread of the service."""
PAUSE = 5.0
"""Seconds for which nobody asks again when there was no signature: a page load would wait for each of its calls."""


class BackendSigner:
    """Has answers signed by the backend. One object serves many threads; it never raises."""

    def __init__(
        self,
        generate: Callable[[GenerateSignatureRequest], Answer[Signature]],
        *,
        patience: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``generate`` calls Generate Signature; ``patience``: seconds to wait for one's turn."""
        self._generate = generate
        self._patience = patience
        self._monotonic = monotonic
        self._turns = BoundedSemaphore(AT_ONCE)
        self._quiet_until = 0.0

    def __call__(self, results: Sequence[Mapping[str, object]]) -> str | None:
        if len(results) > limits.BATCH_ITEMS:
            self._tell(
                f"an answer of {len(results)} results is longer than the {limits.BATCH_ITEMS} that can be signed"
            )
            return None
        if self._monotonic() < self._quiet_until or not self._turns.acquire(timeout=self._patience):
            return None
        try:
            # While this one waited for its turn another may have met a backend that does not sign.
            if self._monotonic() < self._quiet_until:
                return None
            return self._generate(GenerateSignatureRequest.from_wire({"permissions": list(results)})).data.signature
        except ClientError as error:
            self._quiet_until = self._monotonic() + PAUSE
            self._tell(str(error))
            return None
        finally:
            self._turns.release()

    def _tell(self, cause: str) -> None:
        structlog.stdlib.get_logger(__name__).warning("answer_not_signed", cause=cause)
