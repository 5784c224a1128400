"""Serves a Flask app with gunicorn.

Gunicorn runs in this process, with its `gthread` worker and defaults that suit an API. Each worker creates the app
after the fork, so processes never share a database connection.

A slow client occupies a thread while it sends its headers, so a service needs a proxy in front (`config/nginx.conf`).
"""

import gc
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from flask import Flask
from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped] # it ships no types
from gunicorn.errors import HaltServer  # type: ignore[import-untyped] # as above
from gunicorn.glogging import Logger  # type: ignore[import-untyped] # as above
from gunicorn.http import errors as http_errors  # type: ignore[import-untyped] # as above
from werkzeug.wsgi import ClosingIterator

from app.contract.errors import InvalidArgument
from app.foundation.processes import freeze_garbage_collector
from app.http.listening import BindError, bind

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - gunicorn makes its own unlinked files there

_COULD_NOT_LOAD = 4
"""The exit code by which a worker tells gunicorn's master that trying again is pointless."""

_DISCARD_BYTES = 16 * 1024 * 1024
_DISCARD_SECONDS = 2.0
_PIECE = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How to serve. Times are in seconds."""

    host: str = "127.0.0.1"
    port: int = 8080
    """0: any free one."""
    workers: int = 2
    threads: int = 8
    """Requests that one worker handles side by side."""
    timeout: int = 60
    """A worker that gave no sign of life for so long is killed."""
    graceful_timeout: int = 20
    """How long requests may go on after SIGTERM."""
    keepalive: int = 15
    """How long an idle connection is kept."""
    max_requests: int = 100_000
    """After about so many requests a worker is replaced, which bounds what a leak can do. 0: never."""
    read_timeout: float = 15.0
    """How long a client may pause while it sends a body, and how long it may take to receive the response."""
    backlog: int = 1024
    limit_request_line: int = 8190
    """Bytes."""
    limit_request_fields: int = 64
    limit_request_field_size: int = 8190
    """Bytes."""
    forwarded_allow_ips: str = "127.0.0.1,::1"
    """Proxies whose X-Forwarded-Proto is believed."""
    name: str = "usher"
    """In the process list."""
    startup_errors: tuple[type[Exception], ...] = ()
    """What the factory raises for mistakes of the operator's: logged as one line. Anything else is logged with its
    traceback."""
    reread: Callable[[], Callable[[], Flask]] | None = None
    """Called in the master on SIGHUP: gives the factory for the workers that take over. When it raises, the old one
    stays."""
    on_ready: Callable[[], None] | None = None
    """Called in the master when it listens."""
    on_worker_start: Callable[[], None] | None = None
    """Called in each worker right after the fork."""
    on_worker_exit: Callable[[int], None] | None = None
    """Called in the master with the process id of a worker that has ended (Prometheus' `mark_process_dead`)."""


def serve(factory: Callable[[], Flask], options: ServerOptions) -> NoReturn:
    """Serves what `factory` makes until SIGTERM or SIGINT; ends the process (code 0 then, 1 when it could not start).

    The master reaps every child of this process, so start other processes from elsewhere.
    """
    master = os.getpid()
    try:
        listener = bind(options.host, options.port, options.backlog)
    except BindError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(1) from None
    server = _Server(factory, options, listener)
    # Workers look only through what they made themselves: the pages of what was loaded before the fork, which a look
    # of the collector would write to, stay shared by all of them.
    freeze_garbage_collector()
    try:
        server.run()
    except HaltServer:
        # Two workers that could not start, at once: what was wrong stands in the log.
        raise SystemExit(1) from None
    except SystemExit as end:
        # Workers leave through here as well, and their exit codes mean something to the master.
        if os.getpid() == master and end.code not in {0, None}:
            raise SystemExit(1) from None
        raise
    raise SystemExit(0)


class _Server(BaseApplication):  # type: ignore[misc] # untyped base
    def __init__(self, factory: Callable[[], Flask], options: ServerOptions, listener: socket.socket) -> None:
        self._factory = factory
        self._options = options
        self._listener = listener.detach()
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._settings().items():
            # Older releases do not know the newest names.
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def reload(self) -> None:
        """On SIGHUP, before new workers take over from the old ones."""
        if self._options.reread is not None:
            try:
                self._factory = self._options.reread()
            except Exception as error:  # noqa: BLE001 - a mistake in a file must not end what runs
                self.logger_of_start.error(  # noqa: TRY400 - it is the operator's mistake, told in a line
                    "the settings cannot be read again, the old ones stay: %s", error
                )
        super().reload()

    def load(self) -> "ClientGuard":
        try:
            app = self._factory()
        except self._options.startup_errors as error:
            self.logger_of_start.critical("cannot start: %s", error)
        except Exception:
            # Whatever it is, the master must be told not to start the worker over and over.
            self.logger_of_start.critical("cannot start", exc_info=True)
        else:
            freeze_garbage_collector()
            # What requests leave behind is not made of cycles: with Python's own thresholds a service that remembers
            # much spends a third of its time looking through it.
            gc.set_threshold(50_000, 20, 100)
            return ClientGuard(app, self._options.read_timeout)
        raise SystemExit(_COULD_NOT_LOAD)

    @property
    def logger_of_start(self) -> logging.Logger:
        return logging.getLogger("gunicorn.error")

    def _settings(self) -> dict[str, object]:
        options = self._options
        settings: dict[str, object] = {
            "bind": f"fd://{self._listener}",
            "backlog": options.backlog,
            "workers": options.workers,
            "worker_class": "gthread",
            "threads": options.threads,
            "timeout": options.timeout,
            "graceful_timeout": options.graceful_timeout,
            "keepalive": options.keepalive,
            "max_requests": options.max_requests,
            # Workers that were born together must not all go at once.
            "max_requests_jitter": options.max_requests // 10,
            "limit_request_line": options.limit_request_line,
            "limit_request_fields": options.limit_request_fields,
            "limit_request_field_size": options.limit_request_field_size,
            "forwarded_allow_ips": options.forwarded_allow_ips,
            # A proxy may set X-Forwarded-Proto only. SCRIPT_NAME would shift paths past its rules, and other names with
            # underscores would pass for those with hyphens.
            "forwarder_headers": "",
            "header_map": "drop",
            "proc_name": options.name,
            "preload_app": False,
            "accesslog": None,
            "errorlog": None,
            "logger_class": PropagatingLogger,
            "control_socket_disable": True,
        }
        if _SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK):
            # The workers' signs of life are file times: on a slow disk a healthy worker would look dead.
            settings["worker_tmp_dir"] = str(_SHARED_MEMORY)
        on_ready, on_start, on_exit = options.on_ready, options.on_worker_start, options.on_worker_exit
        if on_ready is not None:
            settings["when_ready"] = lambda server: on_ready()  # noqa: ARG005 - gunicorn counts them
        if on_start is not None:
            settings["post_fork"] = lambda server, worker: on_start()  # noqa: ARG005 - as above
        if on_exit is not None:
            settings["child_exit"] = lambda server, worker: on_exit(worker.pid)  # noqa: ARG005 - as above
        return settings


class ClientGuard:
    """The app with a timeout on the client's connection, and with client errors while it reads the body."""

    def __init__(self, app: Flask, timeout: float) -> None:
        self._app = app
        self._timeout = timeout

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        connection = environ["gunicorn.socket"]
        connection.settimeout(self._timeout)
        body = RequestBody(environ["wsgi.input"], environ)
        environ["wsgi.input"] = body
        response = self._app(environ, start_response)
        if body.ended:
            return response

        def discard() -> None:
            connection.settimeout(min(self._timeout, _DISCARD_SECONDS))
            body.discard()

        return ClosingIterator(response, discard)


class RequestBody(RawIOBase):
    """A request body. Raises `InvalidArgument` if it is malformed, incomplete or late."""

    def __init__(self, stream: Any, environ: "WSGIEnvironment") -> None:
        self._stream = stream
        self._missing = int(environ.get("CONTENT_LENGTH") or 0)
        self.ended = not self._missing and "HTTP_TRANSFER_ENCODING" not in environ

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer)
        try:
            data: bytes = self._stream.read(len(view))
        except TimeoutError as error:
            raise InvalidArgument("the request took too long to arrive", http_code=408) from error
        except (OSError, http_errors.ParseException) as error:
            raise InvalidArgument("the body could not be read to its end") from error
        self._missing -= len(data)
        # Gunicorn returns less than it was asked for only at the end.
        if len(data) < len(view):
            self.ended = True
            if self._missing > 0:
                raise InvalidArgument("the body could not be read to its end")
        self.ended = self.ended or not self._missing
        view[: len(data)] = data
        return len(data)

    def discard(self) -> None:
        """Reads the rest after the response was sent: if a connection is closed over unread bytes, the proxy or the
        client may lose the response."""
        left = _DISCARD_BYTES
        with suppress(InvalidArgument):
            while left > 0 and (data := self.read(_PIECE)):
                left -= len(data)


class PropagatingLogger(Logger):  # type: ignore[misc] # untyped base
    """Sends gunicorn's log lines to the root logger's handlers, and shortens those about a client's errors."""

    def setup(self, cfg: object) -> None:
        super().setup(cfg)
        self.error_log.propagate = True
        self.error_log.setLevel(logging.NOTSET)

    def warning(self, msg: str, *args: object, **kwargs: object) -> None:
        """Gunicorn quotes a malformed request, which may contain a secret."""
        error = sys.exc_info()[1]
        if type(error).__module__ == http_errors.__name__:
            msg, args = "a request is not valid HTTP: %s", (type(error).__name__,)
        super().warning(msg, *args, **kwargs)

    def exception(self, msg: str, *args: object, **kwargs: object) -> None:
        """A client that does not receive its response is not worth a traceback."""
        if isinstance(sys.exc_info()[1], TimeoutError):
            super().warning("a client did not receive its response in time")
        else:
            super().exception(msg, *args, **kwargs)
