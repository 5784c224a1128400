"""What does a handler get, and what does it give back?"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

import requests
from sqlalchemy import Connection, Engine

from app.backend.background import Background
from app.backend.settings import SelfHostedBackendSettings
from app.backend.tokens import PageTokens
from app.backend.vault import Vault
from app.contract.base import Request
from app.database.engine import is_sqlite, writing

if TYPE_CHECKING:
    from app.backend.events import EventSink
    from app.backend.judgments.search import JudgmentSearch

RequestT = TypeVar("RequestT", bound=Request)

Clock = Callable[[], datetime]
"""Returns the time, aware and in UTC."""
Sleep = Callable[[float], None]


@dataclass(frozen=True, kw_only=True)
class Backend:
    """What every handler may use. `entropy` makes ids and secrets: a `SystemRandom` outside of tests."""

    settings: SelfHostedBackendSettings
    engine: Engine
    clock: Clock
    entropy: random.Random
    session: requests.Session
    sleep: Sleep
    vault: Vault
    page_tokens: PageTokens
    judgments: "JudgmentSearch"
    sinks: "tuple[EventSink, ...]" = ()
    """Who writes what follows from events, in this order."""
    background: Background = field(default_factory=Background, repr=False)
    """For work that no request waits for."""
    _turn: Lock = field(default_factory=Lock, repr=False)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A write transaction.

        SQLite has one writer at a time and lets the others look again after ever longer naps. The threads of this
        process queue up instead, so that the next one goes on at once.
        """
        if is_sqlite(self.engine):
            with self._turn, writing(self.engine) as connection:
                yield connection
        else:
            with writing(self.engine) as connection:
                yield connection


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, as far as his credentials prove it; an id that they do not prove is empty."""

    api_key_id: str = ""
    workspace_id: str = ""
    address: str = ""
    """The network address that the call comes from."""


@dataclass(frozen=True, slots=True)
class Call(Generic[RequestT]):
    """One call of an operation, authenticated and parsed."""

    operation: str
    request: RequestT
    caller: Caller
    backend: Backend
    now: int
    """When it came, in epoch milliseconds."""

    def position(self, page_token: str | None) -> list[str] | None:
        """The key after which the page begins; None for the first page."""
        tokens = self.backend.page_tokens
        return tokens.position(self.operation, self.caller.api_key_id, self.request, page_token)

    def next_page_token(self, position: list[str]) -> str:
        """The token of the page after the row with this key."""
        return self.backend.page_tokens.issue(self.operation, self.caller.api_key_id, self.request, position)


@dataclass(frozen=True, slots=True)
class Reply:
    """A success. `data` is made of plain JSON types or the contract's models."""

    message: str
    data: object = None
    next_page_token: str | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """One organization of one API key: what nearly every statement is limited to."""

    api_key_id: str
    organization_id: str


def new_id(entropy: random.Random, length: int = 20) -> str:
    """An id that nobody guesses or has given before: letters and digits, about 6 bits each."""
    letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    return "".join(entropy.choices(letters, k=length))


def new_ids(entropy: random.Random, number: int) -> list[str]:
    """Ids of things that come into being at one moment, in this order: sorted by time and id they keep it."""
    beginning, width = new_id(entropy), len(str(number))
    return [f"{beginning}{count:0{width}}" for count in range(number)]
