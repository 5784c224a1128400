"""The routes of all operations, each with its handler.

Every operation of the contract's table gets a route for each of its paths, POST only. A route authenticates as the
table says, parses by the table's request model, runs the handler and wraps its reply as the table says. There is no
server in which an operation lacks its handler.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from flask import Flask, Response, request
from sqlalchemy import Connection, func, select

from app.backend.http.auth import WrongBodyCredentialsError, authenticate, shown_credentials
from app.backend.http.call import Backend, Call, Principal, Reply, RequestT
from app.backend.http.registry import Handler
from app.contract.errors import PermissionDenied
from app.contract.operation import AnyOperation, AuthLevel
from app.contract.operations import OPERATIONS
from app.foundation.clock import epoch_ms
from app.foundation.database.engine import is_sqlite, reading
from app.http.body import ANONYMOUS_BYTES, read_json
from app.http.json import json_response
from app.http.throttle import FailedCredentials

View = Callable[[], Response]


def install_operations(app: Flask, backend: Backend, handlers: Sequence[Handler]) -> None:
    """Adds the routes of all operations to ``app``. Raises ``ValueError`` unless each has one handler."""
    odd = Counter(operation.name for operation in OPERATIONS)
    odd.subtract(handler.operation.name for handler in handlers)
    if any(odd.values()):
        names = sorted(name for name, number in odd.items() if number)
        raise ValueError(f"an operation and a handler belong together: {', '.join(names)}")
    failures = FailedCredentials()
    for handler in handlers:
        operation = handler.operation
        view = _view(operation, handler, backend, failures)
        for path in operation.paths:
            app.add_url_rule(path, f"{operation.name} {path}", view, methods=["POST"], provide_automatic_options=False)


def _view(operation: AnyOperation, handler: Handler, backend: Backend, failures: FailedCredentials) -> View:
    max_bytes = backend.settings.max_body_bytes
    if not _shows_credentials(operation):
        max_bytes = min(max_bytes, ANONYMOUS_BYTES)

    def answer() -> Response:
        principal = _principal(operation, backend, failures)
        parsed = operation.parse(read_json(request, max_bytes=max_bytes))
        now = epoch_ms(backend.clock())
        try:
            reply = _run(operation, handler, Call(operation.name, parsed, principal, backend, now))
        except WrongBodyCredentialsError:
            failures.turn_away(request.remote_addr or "")
            raise
        return json_response(operation.respond(reply.message, reply.data, next_page_token=reply.next_page_token))

    return answer


def _shows_credentials(operation: AnyOperation) -> bool:
    """In its headers, so that they are judged before the body is read."""
    return operation.auth in {AuthLevel.K, AuthLevel.W}


def _principal(operation: AnyOperation, backend: Backend, failures: FailedCredentials) -> Principal:
    if not _shows_credentials(operation):
        return Principal(address=request.remote_addr or "")
    shown = shown_credentials(operation.auth, request.headers.get, backend.settings.header_prefixes)
    # A transaction of its own: whoever shows wrong credentials must not hold up writers.
    try:
        with reading(backend.engine) as connection:
            return authenticate(connection, backend.vault, operation.auth, shown)
    except PermissionDenied:
        failures.turn_away(request.remote_addr or "")
        raise


def _run(operation: AnyOperation, handler: Handler, call: Call) -> Reply:  # type: ignore[type-arg]  # any request
    if handler.own_transactions is not None:
        return handler.own_transactions(call)
    assert handler.in_transaction is not None  # noqa: S101 - one of the two is set
    if handler.check is not None:
        handler.check(call)
    if operation.is_read:
        with reading(call.backend.engine) as connection:
            return handler.in_transaction(call, connection)
    with exclusive_write(call) as connection:
        return handler.in_transaction(call, connection)


@contextmanager
def exclusive_write(call: Call[RequestT], api_key_id: str = "") -> Iterator[Connection]:
    """A write transaction in which nobody else writes for this API key; without one, for the caller's API key or
    workspace.
    """
    with call.backend.writing() as connection:
        lock_for_writing(connection, api_key_id or call.principal.api_key_id or call.principal.workspace_id)
        yield connection


def lock_for_writing(connection: Connection, name: str) -> None:
    """Waits until this transaction is the only one that writes for ``name``; until it ends.

    What it reads from here on cannot change under it. SQLite has one writer at a time anyway.
    """
    if not is_sqlite(connection):
        connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(name, 0))))
