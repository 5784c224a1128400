"""What one thread heard of its calls: how often each was tried, and what its last answer said.

Whoever writes down what a backend answered listens around its calls. Nobody pays for it who does not: an answer is a
reference to bytes that are there anyway, and is made a text only where somebody wants to read it.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

LONGEST = 2000
"""Characters of an answer that are kept."""

_LOOKED_AT = 64 * 1024
"""Bytes of an answer in which secrets are looked for; far more than are kept."""

_NOT_DONE = re.compile(rb'"success"\s*:\s*false')


@dataclass(frozen=True, slots=True)
class Heard:
    """One call that has ended. ``code`` is the HTTP status of its last answer, None where none came."""

    code: int | None
    tries: int
    body: bytes
    problem: str
    """Why there is no answer, or what is wrong with it; empty: nothing."""
    mask: Callable[[str], str]
    """Takes credentials out of a text."""

    @property
    def says_no(self) -> bool:
        """Whether it was refused, or names items that were not done."""
        return bool(self.problem) or _NOT_DONE.search(self.body) is not None

    def says(self) -> str:
        """The beginning of the answer, or why there is none; without credentials."""
        told = self.body[:_LOOKED_AT].decode("utf-8", "replace").replace("\0", "\ufffd").strip() or self.problem
        return self.mask(told)[:LONGEST]


_HEARD: ContextVar[list[Heard] | None] = ContextVar("heard", default=None)


@contextmanager
def hearing() -> Iterator[list[Heard]]:
    """Within it the calls of this thread, as they end."""
    heard: list[Heard] = []
    token = _HEARD.set(heard)
    try:
        yield heard
    finally:
        _HEARD.reset(token)


def tell(heard: Heard) -> None:
    """A call has ended."""
    listening = _HEARD.get()
    if listening is not None:
        listening.append(heard)


def masked(text: str, secrets: Sequence[str]) -> str:
    """The text without these secrets, also where they stand in it as JSON writes them."""
    for secret in secrets:
        for spelled in {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}:
            text = text.replace(spelled, "***")
    return text
