"""The input and output of handlers: a call with its transactions, pages and events, and its reply."""

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from threading import Lock, Semaphore
from typing import Any, Generic, TypeVar

import orjson
import requests
from sqlalchemy import Column, Connection, Engine, Select

from app.backend.embedders.embedder import Embedder
from app.backend.events import Event, EventContext, EventSink
from app.backend.scope import Scope
from app.backend.security.vault import UnreadableSecretError, Vault
from app.backend.settings import SelfHostedBackendSettings
from app.backend.storage import json_columns
from app.backend.storage.locks import lock_for_writing
from app.backend.storage.paging import Page, cut, page_rows, payload_length
from app.contract.base import InOrganization, Order, Paged, Request
from app.contract.errors import InvalidArgument
from app.foundation.clock import Clock, Sleep
from app.foundation.database.engine import is_sqlite, writing

RequestT = TypeVar("RequestT", bound=Request)
InOrganizationT = TypeVar("InOrganizationT", bound=InOrganization)
PagedT = TypeVar("PagedT", bound=Paged)


@dataclass(frozen=True, kw_only=True)
class Backend:
    """The resources of one process, which all calls share. Outside of tests, ``entropy`` is a ``SystemRandom``."""

    settings: SelfHostedBackendSettings
    engine: Engine
    clock: Clock
    entropy: random.Random
    session: requests.Session
    sleep: Sleep
    vault: Vault
    embedder: Embedder
    provider_calls: Semaphore
    """Limits the threads that call permission providers, so that slow providers leave threads to other requests."""
    sinks: tuple[EventSink, ...]
    """Called with the events of a request, in this order."""
    on_documents_deleted: tuple[Callable[[Connection, Scope, Collection[str]], None], ...]
    """Callbacks that delete the rows that depend on documents, in the transaction that deletes the documents."""
    on_organizations_deleted: tuple[Callable[[Connection, str, Collection[str]], None], ...]
    """The same for organizations of an API key, for rows that ``scope.delete_of_organizations`` cannot find."""
    on_users_removed: tuple[Callable[[Connection, Scope, Collection[str], str | None], None], ...]
    """The same for rows addressed to removed users: in the whole organization, or about one document."""
    _sqlite_writer: Lock = field(default_factory=Lock, repr=False)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A write transaction. On SQLite, which allows one writer, threads wait for a lock instead of polling with
        growing delays."""
        lock = self._sqlite_writer if is_sqlite(self.engine) else nullcontext()
        with lock, writing(self.engine) as connection:
            yield connection


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated caller. An id that the credentials do not prove is empty."""

    api_key_id: str = ""
    workspace_id: str = ""
    address: str = ""
    """The caller's IP address."""


@dataclass(frozen=True, slots=True)
class Call(Generic[RequestT]):
    """One call of an operation, authenticated and parsed."""

    operation: str
    request: RequestT
    principal: Principal
    backend: Backend
    now: int
    """The time of the call, in epoch milliseconds."""

    @property
    def scope(self: "Call[InOrganizationT]") -> Scope:
        """The organization of the request."""
        return Scope(self.principal.api_key_id, self.request.organization_id)

    @contextmanager
    def exclusive_write(self, api_key_id: str = "") -> Iterator[Connection]:
        """A write transaction, the only one for this API key. The default is the caller's API key or workspace."""
        with self.backend.writing() as connection:
            lock_for_writing(connection, api_key_id or self.principal.api_key_id or self.principal.workspace_id)
            yield connection

    def emit(self, connection: Connection, events: Sequence[Event]) -> None:
        """Passes events to every sink of the backend. Must be called in the transaction that causes them."""
        if events:
            context = EventContext(self.principal.api_key_id, self.now, self.backend.entropy, self.backend.vault)
            for sink in self.backend.sinks:
                sink(connection, context, events)

    def page(
        self: "Call[PagedT]",
        connection: Connection,
        query: Select[*tuple[Any, ...]],
        keys: tuple[Column[Any], ...],
        *,
        order: Order = "asc",
        length: Callable[[Any], int] = payload_length,
    ) -> tuple[list[Any], str | None]:
        """The requested page of ``query``, sorted by ``keys``, and the token of the next page."""
        page = Page(keys, self.position(self.request.page_token), page_rows(self.request.page_size), order)
        rows, more = cut(connection.execute(page.of(query)), page.size, length)
        return rows, self.token_after(page.position(rows[-1])) if more else None

    def position(self, page_token: str | None) -> list[str] | None:
        """The key of the last row before the page of this token. None for the first page.

        Keys, unlike offsets, stay right if rows are inserted or deleted between two pages. Tokens are encrypted. Raises
        ``InvalidArgument`` for the token of another operation, API key or other parameters.
        """
        if not page_token:
            return None
        try:
            return json_columns.load_list(self.backend.vault.pages.open(page_token, self._query()))
        except UnreadableSecretError as error:
            raise InvalidArgument("data.pageToken: is not a token of this query") from error

    def token_after(self, position: list[str]) -> str:
        """The token of the page after the row with this key."""
        return self.backend.vault.pages.close(json_columns.dump(position), self._query())

    def _query(self) -> str:
        ignored = {"pageToken", "pageSize"}
        parameters = {key: value for key, value in self.request.to_wire().items() if key not in ignored}
        query = [self.operation, self.principal.api_key_id, parameters]
        return orjson.dumps(query, option=orjson.OPT_SORT_KEYS).decode()


@dataclass(frozen=True, slots=True)
class Reply:
    """A success. ``data`` consists of plain JSON types and the contract's models."""

    message: str
    data: object = None
    next_page_token: str | None = None
