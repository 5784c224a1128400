"""Serves a Flask app with gunicorn.

Gunicorn runs in this process, with its ``gthread`` worker. Each worker creates the app after the fork, so processes
never share a database connection. A slow client occupies a thread while it sends its headers, so a server needs a proxy
in front (``config/nginx.conf``).
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
from gunicorn.arbiter import Arbiter  # type: ignore[import-untyped] # as above
from gunicorn.errors import HaltServer  # type: ignore[import-untyped] # as above
from gunicorn.glogging import Logger  # type: ignore[import-untyped] # as above
from gunicorn.http import errors as http_errors  # type: ignore[import-untyped] # as above
from werkzeug.wsgi import ClosingIterator

from app.contract.errors import InvalidArgument
from app.foundation.processes import freeze_garbage_collector
from app.http.body import INCOMPLETE_BODY
from app.http.listening import BACKLOG, BindError, bind

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - gunicorn makes its own unlinked files there

_COULD_NOT_LOAD: int = Arbiter.APP_LOAD_ERROR
"""The exit code of a worker that gunicorn's master must not restart."""

_logger = logging.getLogger("gunicorn.error")
_DISCARD_BYTES = 16 * 1024 * 1024
"""How much of an unread body is read after the response."""
_DISCARD_SECONDS = 2.0
"""How long each of these reads may take."""
_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The options of a server. Times are in seconds."""

    host: str = "127.0.0.1"
    port: int = 8080
    """0: any free port."""
    workers: int = 2
    threads: int = 8
    """Concurrent requests of one worker."""
    timeout: int = 60
    """A worker that makes no progress for this long is killed."""
    graceful_timeout: int = 20
    """How long requests may continue after SIGTERM."""
    max_requests: int = 100_000
    """A worker is replaced after about this number of requests, which bounds the effect of leaks. 0: never."""
    read_timeout: float = 15.0
    """How long a client may pause while it sends a body, and how long it may take to receive the response."""
    name: str = "usher"
    """The name in the process list."""
    startup_errors: tuple[type[Exception], ...] = ()
    """Errors of the factory that the operator can fix: logged as one line. Others are logged with a traceback."""
    reload_factory: Callable[[], Callable[[], Flask]] | None = None
    """Called in the master on SIGHUP: returns the factory for new workers. If it raises, the previous one stays."""
    on_worker_exit: Callable[[int], None] | None = None
    """Called in the master with the process id of an ended worker."""


def serve(factory: Callable[[], Flask], options: ServerOptions) -> NoReturn:
    """Serves the app of ``factory`` until SIGTERM or SIGINT. Exits with 0, or 1 if the server cannot start.

    The master reaps every child of this process, so start other processes from elsewhere.
    """
    master = os.getpid()
    try:
        listener = bind(options.host, options.port)
    except BindError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(1) from None
    server = _Server(factory, options, listener)
    # The collector writes to the objects that it examines. Frozen objects stay on pages that all workers share.
    freeze_garbage_collector()
    try:
        server.run()
    except HaltServer:
        # Workers could not start. They have logged the reason.
        raise SystemExit(1) from None
    except SystemExit as end:
        # Workers exit through here as well, and the master reads their exit codes.
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
            self.cfg.set(name, value)

    def reload(self) -> None:
        """On SIGHUP, before new workers take over from the old ones."""
        if self._options.reload_factory is not None:
            try:
                self._factory = self._options.reload_factory()
            except Exception as error:  # noqa: BLE001 - a mistake in a file must not end what runs
                _logger.error(  # noqa: TRY400 - the operator's mistake needs no traceback
                    "the settings cannot be reloaded; the previous ones stay in effect: %s", error
                )
        super().reload()

    def load(self) -> "BodyTimeouts":
        try:
            app = self._factory()
        except self._options.startup_errors as error:
            _logger.critical("cannot start: %s", error)
        except Exception:
            # The exit code below keeps the master from restarting the worker forever.
            _logger.critical("cannot start", exc_info=True)
        else:
            freeze_garbage_collector()
            # Requests create few cycles. With Python's default thresholds, a service with large caches spends a third
            # of its time in the collector.
            gc.set_threshold(50_000, 20, 100)
            return BodyTimeouts(app, self._options.read_timeout)
        raise SystemExit(_COULD_NOT_LOAD)

    def _settings(self) -> dict[str, object]:
        options = self._options
        settings: dict[str, object] = {
            "bind": f"fd://{self._listener}",
            "backlog": BACKLOG,
            "workers": options.workers,
            "worker_class": "gthread",
            "threads": options.threads,
            "timeout": options.timeout,
            "graceful_timeout": options.graceful_timeout,
            "keepalive": 15,
            "max_requests": options.max_requests,
            # Spreads the replacement of workers that started together.
            "max_requests_jitter": options.max_requests // 10,
            # Security. A proxy may set X-Forwarded-Proto only: SCRIPT_NAME would shift paths past its rules, and other
            # names with underscores would pass for those with hyphens.
            "limit_request_line": 8190,
            "limit_request_fields": 64,
            "limit_request_field_size": 8190,
            "forwarded_allow_ips": "127.0.0.1,::1",
            "forwarder_headers": "",
            "header_map": "drop",
            # The process, and its logs.
            "proc_name": options.name,
            "preload_app": False,
            "accesslog": None,
            "errorlog": None,
            "logger_class": PropagatingLogger,
            "control_socket_disable": True,
        }
        if _SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK):
            # Workers report progress by file times: on a slow disk a healthy worker would seem to hang.
            settings["worker_tmp_dir"] = str(_SHARED_MEMORY)
        if (on_exit := options.on_worker_exit) is not None:
            settings["child_exit"] = lambda server, worker: on_exit(worker.pid)  # noqa: ARG005 - gunicorn counts them
        return settings


class BodyTimeouts:
    """Wraps the app: limits how long a client may stall, and reports its errors while the body is read as
    ``InvalidArgument``."""

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
    """A request body. Raises ``InvalidArgument`` if it is malformed, incomplete or late."""

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
            raise InvalidArgument(INCOMPLETE_BODY) from error
        self._missing -= len(data)
        # Gunicorn returns fewer bytes than requested only at the end of the body.
        if len(data) < len(view):
            self.ended = True
            if self._missing > 0:
                raise InvalidArgument(INCOMPLETE_BODY)
        self.ended = self.ended or not self._missing
        view[: len(data)] = data
        return len(data)

    def discard(self) -> None:
        """Reads the rest after the response was sent: if a connection is closed over unread bytes, the proxy or the
        client may lose the response."""
        remaining = _DISCARD_BYTES
        with suppress(InvalidArgument):
            while remaining > 0 and (data := self.read(_CHUNK_BYTES)):
                remaining -= len(data)


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
