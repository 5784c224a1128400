"""Registers the handlers of operations, and adds a route for each path of each operation.

A route authenticates the caller, parses the request with the model in the table of operations, runs the handler and
wraps its reply in the operation's envelope. The server does not start if an operation lacks a handler.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flask import Flask, Response, request
from sqlalchemy import Connection

from app.backend.http.auth import WrongBodyCredentialsError, authenticate, credentials_in_headers
from app.backend.http.call import Backend, Call, Principal, Reply, RequestT
from app.contract.errors import PermissionDenied
from app.contract.operation import AnyOperation, AuthLevel, Operation, ResultT
from app.contract.operations import OPERATIONS
from app.foundation.clock import epoch_ms
from app.foundation.database.engine import reading
from app.http.body import ANONYMOUS_BYTES, read_json
from app.http.json import json_response
from app.http.throttle import FailedCredentials

InTransaction = Callable[[Call[RequestT], Connection], Reply]
"""Runs in one transaction that the dispatcher opens. It is read-only if the operation is a read."""
Check = Callable[[Call[RequestT]], None]
"""Validates the request before the transaction begins, so that slow checks do not block writers. Raises
``ContractError``."""
OwnTransactions = Callable[[Call[RequestT]], Reply]
"""Opens its own transactions, because it waits between them or commits data before it fails."""


@dataclass(frozen=True, slots=True)
class Handler:
    """The handler of one operation."""

    operation: AnyOperation
    run: OwnTransactions[Any]


def in_transaction(
    operation: Operation[RequestT, ResultT], handler: InTransaction[RequestT], *, check: Check[RequestT] | None = None
) -> Handler:
    """``handler`` serves ``operation`` in a transaction that begins after ``check``."""

    def run(call: Call[RequestT]) -> Reply:
        if check is not None:
            check(call)
        with reading(call.backend.engine) if operation.is_read else call.exclusive_write() as connection:
            return handler(call, connection)

    return Handler(operation, run)


def own_transactions(operation: Operation[RequestT, ResultT], handler: OwnTransactions[RequestT]) -> Handler:
    """``handler`` serves ``operation`` and opens its own transactions."""
    return Handler(operation, handler)


def install_operations(app: Flask, backend: Backend, handlers: Sequence[Handler]) -> None:
    """Adds the routes of all operations to ``app``. Raises ``ValueError`` unless each has one handler."""
    number_of_handlers = Counter(handler.operation.name for handler in handlers)
    names = [operation.name for operation in OPERATIONS if number_of_handlers[operation.name] != 1]
    if names:
        raise ValueError(f"these operations need exactly one handler: {', '.join(names)}")
    failures = FailedCredentials()
    for handler in handlers:
        view = _view(handler, backend, failures)
        for path in handler.operation.paths:
            endpoint = f"{handler.operation.name} {path}"
            app.add_url_rule(path, endpoint, view, methods=["POST"], provide_automatic_options=False)


def _view(handler: Handler, backend: Backend, failures: FailedCredentials) -> Callable[[], Response]:
    operation = handler.operation
    max_bytes = backend.settings.max_body_bytes
    if not _has_credential_headers(operation):
        max_bytes = min(max_bytes, ANONYMOUS_BYTES)

    def view() -> Response:
        principal = _principal(operation, backend, failures)
        parsed = operation.parse(read_json(request, max_bytes=max_bytes))
        now = epoch_ms(backend.clock())
        try:
            reply = handler.run(Call(operation.name, parsed, principal, backend, now))
        except WrongBodyCredentialsError:
            failures.record_or_raise(request.remote_addr or "")
            raise
        return json_response(operation.respond(reply.message, reply.data, next_page_token=reply.next_page_token))

    return view


def _has_credential_headers(operation: AnyOperation) -> bool:
    return operation.auth in {AuthLevel.K, AuthLevel.W}


def _principal(operation: AnyOperation, backend: Backend, failures: FailedCredentials) -> Principal:
    if not _has_credential_headers(operation):
        return Principal(address=request.remote_addr or "")
    credentials = credentials_in_headers(operation.auth, request.headers.get, backend.settings.header_prefixes)
    # A separate transaction: requests with wrong credentials must not block writers.
    try:
        with reading(backend.engine) as connection:
            return authenticate(connection, backend.vault, operation.auth, credentials)
    except PermissionDenied:
        failures.record_or_raise(request.remote_addr or "")
        raise
