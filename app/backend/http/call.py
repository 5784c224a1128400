"""A call of an operation: what a handler gets, and what it gives back."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Generic, TypeVar

import requests
from sqlalchemy import Column, Connection, Engine, Select

from app.backend.cascade import Cascade
from app.backend.embedders.embedder import Embedder
from app.backend.events import Event, EventContext, EventSink
from app.backend.http.background import Background
from app.backend.http.locks import StripedLocks
from app.backend.http.page_tokens import PageTokens
from app.backend.http.provider_gate import ProviderGate
from app.backend.scope import Scope
from app.backend.security.vault import Vault
from app.backend.settings import SelfHostedBackendSettings
from app.backend.storage.paging import Page, page_rows
from app.contract.base import InOrganization, Order, Request
from app.foundation.clock import Clock, Sleep
from app.foundation.database.engine import is_sqlite, writing

RequestT = TypeVar("RequestT", bound=Request)
InOrganizationT = TypeVar("InOrganizationT", bound=InOrganization)


@dataclass(frozen=True, kw_only=True)
class Backend:
    """What every handler may use. ``entropy`` makes ids and secrets: a ``SystemRandom`` outside of tests."""

    settings: SelfHostedBackendSettings
    engine: Engine
    clock: Clock
    entropy: random.Random
    session: requests.Session
    sleep: Sleep
    vault: Vault
    page_tokens: PageTokens
    embedder: Embedder
    providers: ProviderGate
    sinks: tuple[EventSink, ...] = ()
    """Who writes what follows from events, in this order."""
    cascade: Cascade = field(default_factory=Cascade)
    """What is forgotten with documents, organizations and users."""
    background: Background = field(default_factory=Background, repr=False)
    """For work that no request waits for."""
    locks: StripedLocks = field(default_factory=StripedLocks, repr=False)
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
class Principal:
    """Who calls, as far as their credentials prove it; an id that they do not prove is empty."""

    api_key_id: str = ""
    workspace_id: str = ""
    address: str = ""
    """The network address that the call comes from."""


@dataclass(frozen=True, slots=True)
class Call(Generic[RequestT]):
    """One call of an operation, authenticated and parsed."""

    operation: str
    request: RequestT
    principal: Principal
    backend: Backend
    now: int
    """When it came, in epoch milliseconds."""

    @property
    def scope(self: "Call[InOrganizationT]") -> Scope:
        """The organization that the request names."""
        return Scope(self.principal.api_key_id, self.request.organization_id)

    def emit(self, connection: Connection, events: Sequence[Event]) -> None:
        """Hands the events of this request to every sink of the backend, in the transaction in which they happen."""
        if events:
            context = EventContext(self.principal.api_key_id, self.now, self.backend.entropy, self.backend.vault)
            for sink in self.backend.sinks:
                sink(connection, context, events)

    def page(
        self,
        connection: Connection,
        query: Select[*tuple[Any, ...]],
        keys: tuple[Column[Any], ...],
        *,
        order: Order = "asc",
        weight: Callable[[Any], int] | None = None,
        any_of: tuple[Column[Any], Sequence[str]] | None = None,
    ) -> tuple[list[Any], str | None]:
        """The rows of ``query`` on the page that the request asks for, sorted by ``keys``, and the token of the next
        page. ``any_of``: only those in which a column is one of these values (see ``Page.of_any``).
        """
        request: Any = self.request
        page = Page(keys, self.position(request.page_token), page_rows(request.page_size), order)
        query = page.of(query) if any_of is None else page.of_any(connection, query, *any_of)
        rows, more = page.cut(connection.execute(query), weight)
        return rows, self.next_page_token(page.position(rows[-1])) if more else None

    def position(self, page_token: str | None) -> list[str] | None:
        """The key after which the page begins; None for the first page."""
        tokens = self.backend.page_tokens
        return tokens.position(self.operation, self.principal.api_key_id, self.request, page_token)

    def next_page_token(self, position: list[str]) -> str:
        """The token of the page after the row with this key."""
        return self.backend.page_tokens.issue(self.operation, self.principal.api_key_id, self.request, position)


@dataclass(frozen=True, slots=True)
class Reply:
    """A success. ``data`` is made of plain JSON types or the contract's models."""

    message: str
    data: object = None
    next_page_token: str | None = None
