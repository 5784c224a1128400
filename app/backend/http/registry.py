"""An operation's handler: how it runs, and the function that does."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from app.backend.http.call import Call, Reply, RequestT
from app.contract.envelope import ResultT
from app.contract.operation import AnyOperation, Operation

InTransaction = Callable[[Call[RequestT], Connection], Reply]
"""Runs within one transaction that the dispatcher opens: a read for operations that only read, else a write."""
Check = Callable[[Call[RequestT]], None]
"""Checks the request alone, before the transaction begins: what takes time must not hold up writers. Raises what is
wrong with it.
"""
OwnTransactions = Callable[[Call[RequestT]], Reply]
"""Opens its transactions itself, because it waits for others in between or keeps something although it fails."""


@dataclass(frozen=True, slots=True)
class Handler:
    """One operation's handler; exactly one of ``in_transaction`` and ``own_transactions`` is set."""

    operation: AnyOperation
    in_transaction: InTransaction[Any] | None = None
    own_transactions: OwnTransactions[Any] | None = None
    check: Check[Any] | None = None


def in_transaction(
    operation: Operation[RequestT, ResultT], handler: InTransaction[RequestT], *, check: Check[RequestT] | None = None
) -> Handler:
    """``handler`` serves ``operation``, within a transaction that begins after ``check``."""
    return Handler(operation, in_transaction=handler, check=check)


def own_transactions(operation: Operation[RequestT, ResultT], handler: OwnTransactions[RequestT]) -> Handler:
    """``handler`` serves ``operation`` and opens its transactions itself."""
    return Handler(operation, own_transactions=handler)
