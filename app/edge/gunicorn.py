"""The server that shows a Flask app to the world.

By gunicorn, in this process, with defaults that suit an API: threads in a few workers, bounds on everything that a
peer sends, workers that are replaced from time to time, and a graceful stop on SIGTERM. The app is made in each
worker, after the fork, so that no database connection is ever shared between processes.
"""

import contextlib
import gc
import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn
from uuid import uuid4

import structlog
from flask import Flask
from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped] # it ships no types
from gunicorn.errors import HaltServer  # type: ignore[import-untyped] # as above
from gunicorn.glogging import Logger  # type: ignore[import-untyped] # as above
from gunicorn.http import errors as http_errors  # type: ignore[import-untyped] # as above

from app.contract.errors import ContractError, Internal, InvalidArgument
from app.edge.listening import BindError, bind
from app.edge.worker import Bounds, PatientWorker, raw_answer
from app.processes import settle_garbage_collector

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - gunicorn makes its own unlinked files there

_COULD_NOT_LOAD = 4
"""The exit code by which a worker tells gunicorn's master that trying again is pointless."""


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
    """How long a request may take to arrive, from its first byte to its last."""
    write_timeout: float = 60.0
    """How long a peer may take to read an answer."""
    max_body_bytes: int = 16 * 1024 * 1024
    """A larger body is refused without being waited for; the app may refuse smaller ones."""
    memory_bytes: int = 128 * 1024 * 1024
    """What one worker holds of requests that arrive and answers that are not taken; beyond it, the largest go."""
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
    settle_garbage_collector()
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

    def load(self) -> Flask:
        try:
            app = self._factory()
        except self._options.startup_errors as error:
            self.logger_of_start.critical("cannot start: %s", error)
        except Exception:
            # Whatever it is, the master must be told not to start the worker over and over.
            self.logger_of_start.critical("cannot start", exc_info=True)
        else:
            settle_garbage_collector()
            # What requests leave behind is not made of cycles: with Python's own thresholds a service that remembers
            # much spends a third of its time looking through it.
            gc.set_threshold(50_000, 20, 100)
            return app
        raise SystemExit(_COULD_NOT_LOAD)

    @property
    def logger_of_start(self) -> logging.Logger:
        return logging.getLogger("gunicorn.error")

    def _bounds(self) -> Bounds:
        options = self._options
        return Bounds(
            max_body_bytes=options.max_body_bytes,
            read_timeout=options.read_timeout,
            write_timeout=options.write_timeout,
            memory_bytes=max(options.memory_bytes, 2 * options.max_body_bytes),
        )

    def _settings(self) -> dict[str, object]:
        options = self._options
        settings: dict[str, object] = {
            "bind": f"fd://{self._listener}",
            "backlog": options.backlog,
            "workers": options.workers,
            "worker_class": type("Worker", (EnvelopeWorker,), {"bounds": self._bounds()}),
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
            "http_parser": "python",
            "forwarded_allow_ips": options.forwarded_allow_ips,
            # Of a proxy only its X-Forwarded-Proto is believed. SCRIPT_NAME would shift paths past its rules, and other
            # names with underscores would pass for those with hyphens.
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


class PropagatingLogger(Logger):  # type: ignore[misc] # untyped base
    """Gunicorn's log lines go where all the others go: to the root logger's handlers."""

    def setup(self, cfg: object) -> None:
        super().setup(cfg)
        self.error_log.propagate = True
        self.error_log.setLevel(logging.NOTSET)


class EnvelopeWorker(PatientWorker):
    """Answers what is not even HTTP in the envelope of every other failure; gunicorn alone would send HTML."""

    def handle_error(self, req: object, client: socket.socket, addr: object, exc: BaseException) -> None:  # noqa: ARG002
        """For a request that could not be parsed, and for what escapes the app. (The signature is gunicorn's.)"""
        code = _code_of(exc)
        request_id = uuid4().hex
        error: ContractError
        if code is None:
            structlog.stdlib.get_logger(__name__).error("request_broke", request_id=request_id, exc_info=exc)
            error = Internal(f"something went wrong on this side; it is logged under request id {request_id}")
        else:
            log = structlog.stdlib.get_logger(__name__)
            log.warning("request_not_http", request_id=request_id, problem=type(exc).__name__)
            error = InvalidArgument(_PROTOCOL_MESSAGES.get(code, "this is not a valid HTTP request"), http_code=code)
        with contextlib.suppress(OSError):
            client.sendall(raw_answer(error, request_id))


_PROTOCOL_MESSAGES: Mapping[int, str] = MappingProxyType(
    {414: "the address is too long", 417: "this expectation cannot be met", 431: "the headers are too large"}
)


def _code_of(exc: BaseException) -> int | None:
    """The HTTP code for a request that could not be parsed; None for any other failure."""
    if isinstance(exc, http_errors.LimitRequestLine):
        return 414
    if isinstance(exc, http_errors.LimitRequestHeaders):
        return 431
    if isinstance(exc, http_errors.ExpectationFailed):
        return 417
    # Some of the reasons are I/O errors to gunicorn, and one is what it says of a path that does not fit a header.
    kinds = (
        http_errors.ParseException,
        http_errors.ConfigurationProblem,
        http_errors.ChunkMissingTerminator,
        http_errors.InvalidChunkSize,
        http_errors.NoMoreData,
    )
    return 400 if isinstance(exc, kinds) else None
