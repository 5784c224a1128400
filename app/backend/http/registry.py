"""The registry of handlers by operation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from app.backend.http.call import Call, Reply, RequestT
from app.contract.envelope import ResultT
from app.contract.operation import Operation

InTransaction = Callable[[Call[RequestT], Connection], Reply]
"""Runs within one transaction that the dispatcher opens: a read for operations that only read, else a write."""
Check = Callable[[Call[RequestT]], None]
"""Looks at the request alone, before the transaction begins: what takes time must not hold up writers. Raises what is
wrong with it.
"""
OnItsOwn = Callable[[Call[RequestT]], Reply]
"""Opens its transactions itself, because it waits for others in between or keeps something although it fails."""


@dataclass(frozen=True, slots=True)
class Handler:
    """One operation's handler; exactly one of the first two is set. Their request type was checked when they were
    added.
    """

    in_transaction: InTransaction[Any] | None = None
    on_its_own: OnItsOwn[Any] | None = None
    check: Check[Any] | None = None


class Registry:
    """The handlers by the name of their operation."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def add(
        self,
        operation: Operation[RequestT, ResultT],
        handler: InTransaction[RequestT],
        *,
        check: Check[RequestT] | None = None,
    ) -> None:
        """``handler`` serves ``operation``, within a transaction that begins after ``check``."""
        self._put(operation.name, Handler(in_transaction=handler, check=check))

    def add_on_its_own(self, operation: Operation[RequestT, ResultT], handler: OnItsOwn[RequestT]) -> None:
        """``handler`` serves ``operation`` and takes care of transactions itself."""
        self._put(operation.name, Handler(on_its_own=handler))

    def __getitem__(self, name: str) -> Handler:
        """The handler of the operation of that name."""
        return self._handlers[name]

    @property
    def names(self) -> frozenset[str]:
        """The operations that have one."""
        return frozenset(self._handlers)

    def _put(self, name: str, handler: Handler) -> None:
        if name in self._handlers:
            raise ValueError(f"{name} has a handler already")
        self._handlers[name] = handler
