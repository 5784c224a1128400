"""How does a process that has other work show something over HTTP as well?

From a thread of its own, with Werkzeug's server: for the scrapes of a monitoring system, not for the world.
"""

import sys
import threading
from socket import socket
from typing import Any
from uuid import uuid4

import structlog
from flask import Flask
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from app.contract.errors import InvalidArgument
from app.edge.gunicorn import bind
from app.edge.worker import raw_answer

PATIENCE_SECONDS = 10
"""How long a peer may take over each piece of its request, and over taking the answer."""


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE_SECONDS

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002 - the signature is the library's
        """For what is not even HTTP: as the service answers it."""
        self.close_connection = True
        self.wfile.write(raw_answer(InvalidArgument("this is not a valid HTTP request", http_code=code), uuid4().hex))

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - the signature is Werkzeug's
        """Not a word: who scrapes does so all day."""


class _Server(ThreadedWSGIServer):
    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the signature is the library's
        """A peer that went away, or whose request line is beyond understanding: one line, and on with the others."""
        log = structlog.stdlib.get_logger(__name__)
        log.warning("request_failed", problem=type(sys.exc_info()[1]).__name__)


def serve_beside(app: Flask, host: str, port: int) -> int:
    """Serves ``app`` from a thread that ends with the process; the port, which is another one for 0.

    Raises ``BindError``.
    """
    listener: socket = bind(host, port, backlog=16)
    taken: int = listener.getsockname()[1]
    server = _Server(host, taken, app, handler=_Handler, fd=listener.detach())
    threading.Thread(target=server.serve_forever, name="beside", daemon=True).start()
    return taken
