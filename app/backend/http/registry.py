"""The registration of a handler for an operation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from app.backend.http.call import Call, Reply, RequestT
from app.contract.envelope import ResultT
from app.contract.operation import AnyOperation, Operation

InTransaction = Callable[[Call[RequestT], Connection], Reply]
"""Runs in one transaction that the dispatcher opens. It is read-only if the operation is a read."""
Check = Callable[[Call[RequestT]], None]
"""Validates the request before the transaction begins, so that slow checks do not block writers. Raises
``ContractError``."""
OwnTransactions = Callable[[Call[RequestT]], Reply]
"""Opens its own transactions, because it waits between them or commits data before it fails."""


@dataclass(frozen=True, slots=True)
class Handler:
    """The handler of one operation. Exactly one of ``in_transaction`` and ``own_transactions`` is set."""

    operation: AnyOperation
    in_transaction: InTransaction[Any] | None = None
    own_transactions: OwnTransactions[Any] | None = None
    check: Check[Any] | None = None


def in_transaction(
    operation: Operation[RequestT, ResultT], handler: InTransaction[RequestT], *, check: Check[RequestT] | None = None
) -> Handler:
    """``handler`` serves ``operation`` in a transaction that begins after ``check``."""
    return Handler(operation, in_transaction=handler, check=check)


def own_transactions(operation: Operation[RequestT, ResultT], handler: OwnTransactions[RequestT]) -> Handler:
    """``handler`` serves ``operation`` and opens its own transactions."""
    return Handler(operation, own_transactions=handler)
