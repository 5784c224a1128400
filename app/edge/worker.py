"""A gunicorn worker whose threads never wait for a peer.

Why: gunicorn's threads read requests and write answers themselves: as many slow peers as threads, and nobody else is
served. Here the loop that watches all connections reads each request to its end, by gunicorn's own parser, and sends
what a peer does not take at once; each of its waits ends, and what it holds is bounded. It relies on private parts of
gunicorn: `TConn`, the steps of `ThreadWorker`'s loop, what `request_buffer` imports (so pyproject has an upper bound).
Remove it when gunicorn itself buffers, or when a server that does (waitress) runs several worker processes.
"""

import contextlib
import errno
import io
import selectors
import socket
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import IO, Any, ClassVar
from uuid import uuid4

import orjson
import structlog
from gunicorn.workers.gthread import TConn, ThreadWorker  # type: ignore[import-untyped] # it ships no types

from app.contract.errors import ContractError, InvalidArgument, Unavailable, error_envelope
from app.edge.request_buffer import RequestBuffer
from app.edge.request_id import HEADER
from app.edge.strict_json import weight
from app.edge.uploads import BOUNDS, Upload, UploadBounds, upload_for

_PIECE = 64 * 1024
_LARGE = 1024 * 1024
_LINGER_SECONDS = 2.0
_LINGER_BYTES = 8 * 1024 * 1024
_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NOTHING_THERE = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.ECONNABORTED, errno.EPROTO})


@dataclass(frozen=True, slots=True)
class Bounds:
    """What peers may cost. Times are in seconds."""

    max_body_bytes: int = 16 * 1024 * 1024
    """A larger body is not waited for; the app refuses it."""
    max_head_bytes: int = 64 * 1024
    """Request line and headers together."""
    read_timeout: float = 15.0
    """From the first byte (on a new connection: from the beginning) until the request is whole."""
    write_timeout: float = 60.0
    """Until the peer has taken the whole answer."""
    memory_bytes: int = 128 * 1024 * 1024
    """What one process holds of requests that arrive or are worked on and of answers that are not taken."""
    uploads: UploadBounds = BOUNDS
    """What bodies may cost that go to a file."""


class Peer(TConn):  # type: ignore[misc] # untyped base
    """A connection, with what of its next request is there."""

    def __init__(self, cfg: Any, sock: "PeerSocket", client: Any, server: Any) -> None:
        super().__init__(cfg, sock, client, server)
        # Gunicorn makes the parser when a thread has the connection; here the request is read before.
        self.initialized = True
        self.buffer: RequestBuffer | None = None
        self.ahead = b""
        """What came behind the request that a thread works on."""
        self.line: WaitingLine | None = None
        self.invited = False
        """Whether it was told to go on with the body."""
        self.whole = False
        self.keep = False
        self.held = 0
        """Bytes of a request that arrives, or what one costs that a thread works on."""
        self.drained = 0


class PeerSocket(socket.socket):
    """A socket that never keeps a thread waiting: what cannot be sent at once is kept for the loop."""

    unsent: bytes | memoryview = b""

    def setblocking(self, flag: bool) -> None:
        """Nothing: each call says for itself that it does not wait."""

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Sends what the peer takes now."""
        if not self.unsent:
            with contextlib.suppress(BlockingIOError):
                data = data[super().send(data, flags | socket.MSG_DONTWAIT) :]
        if data:
            self.unsent = b"".join((self.unsent, data))

    def send_more(self) -> int:
        """How much of what is kept the peer takes now."""
        sent = super().send(self.unsent, socket.MSG_DONTWAIT)
        self.unsent = memoryview(self.unsent)[sent:]
        return sent

    def recv(self, size: int, flags: int = 0) -> bytes:  # noqa: ARG002 - the signature is the socket's
        """For a thread, which has no reason to ask: it got all that there is."""
        # An ended connection is what gunicorn knows to end in peace.
        raise ConnectionResetError(errno.ECONNRESET, "a request is read before it is handed to a thread")

    def recv_now(self, size: int) -> bytes | None:
        """What is there; None when nothing is."""
        try:
            return super().recv(size, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return None


class WaitingLine:
    """Connections that wait for the same thing, in the order in which their time ends."""

    def __init__(self, seconds: float, event: int, ready: Callable[[Peer], None], over: Callable[[Peer], None]) -> None:
        self.seconds = seconds
        self.event = event
        self.ready = ready
        self.over = over
        self.ends: dict[Peer, float] = {}

    def first(self) -> Peer | None:
        """Whose time ends first."""
        return next(iter(self.ends), None)


class PatientWorker(ThreadWorker):  # type: ignore[misc] # untyped base
    """Waits for peers in its loop, never in a thread."""

    bounds: ClassVar[Bounds] = Bounds()

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        read, write, bounds = selectors.EVENT_READ, selectors.EVENT_WRITE, self.bounds
        self._idle = WaitingLine(self.cfg.keepalive, read, self._read, self._drop)
        self._receiving = WaitingLine(bounds.read_timeout, read, self._read, self._too_slow)
        self._uploading = WaitingLine(bounds.uploads.seconds, read, self._read, self._too_slow)
        self._sending = WaitingLine(bounds.write_timeout, write, self._write, self._drop)
        self._lingering = WaitingLine(_LINGER_SECONDS, read, self._drain, self._drop)
        self._lines = (self._idle, self._lingering, self._receiving, self._sending, self._uploading)
        self._held = 0
        """Bytes, of all connections."""
        self._working = 0
        """Of these, what requests cost that threads work on."""

    # The loop is gunicorn's; these are its steps.

    def accept(self, listener: Any) -> None:
        """A new connection waits for its request."""
        if self.nr_conns >= self.worker_connections - 1:
            self._make_room()
        try:
            accepted, address = listener.accept()
        except OSError as error:
            if error.errno in _OUT_OF_DESCRIPTORS:
                self._make_room()
            elif error.errno not in _NOTHING_THERE:
                raise
            return
        sock = PeerSocket(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self.nr_conns += 1
        self._enter(self._receiving, Peer(self.cfg, sock, address, listener.getsockname()))

    def finish_request(self, conn: Peer, fs: "Future[object]") -> None:
        """A thread is done with it: the answer is sent to its end, then the next request is waited for."""
        self._working -= conn.held
        self._count(conn, 0)
        conn.parser = None
        try:
            conn.keep = fs.result() is True
        except BaseException:  # noqa: BLE001 - whatever it was, gunicorn has logged it, and the connection is over
            conn.keep = False
        if conn.sock.unsent:
            self._held += len(conn.sock.unsent)
            self._enter(self._sending, conn)
            self._shed()
        else:
            self._answered(conn)

    def murder_pending(self) -> None:
        """Ends every wait whose time is over. (The name is gunicorn's.)"""
        now = monotonic()
        for line in self._lines:
            while (conn := line.first()) is not None and line.ends[conn] <= now:
                line.over(conn)

    def murder_keepalived(self, force: bool = False) -> None:
        """Gunicorn's way to end idle connections; with ``force`` all of them."""
        lines = (self._idle, self._lingering, self._receiving, self._uploading)
        while force and (conn := next(filter(None, (line.first() for line in lines)), None)) is not None:
            self._drop(conn)

    def _cap_keepalive(self, deadline: float) -> None:
        """The worker stops: who has not sent a request by then has to go elsewhere."""
        for line in (self._idle, self._receiving, self._lingering, self._uploading):
            for conn, end in line.ends.items():
                line.ends[conn] = min(end, deadline)

    def _keepalive_after(self, conn: Peer, keepalive: bool) -> bool:
        """Only after a request that was read to its end does anyone know where the next one begins."""
        return bool(keepalive and conn.whole)

    # What happens to a connection.

    def _enter(self, line: WaitingLine, conn: Peer) -> None:
        self._leave(conn)
        conn.line = line
        line.ends[conn] = monotonic() + line.seconds
        self.poller.register(conn.sock, line.event, partial(self._call, line.ready, conn))

    def _leave(self, conn: Peer) -> None:
        if conn.line is not None:
            del conn.line.ends[conn]
            conn.line = None
            self.poller.unregister(conn.sock)

    def _call(self, step: Callable[[Peer], None], conn: Peer, _sock: object) -> None:
        # Another event of the same round may have ended it.
        if conn.line is None:
            return
        try:
            step(conn)
        except OSError:
            self._drop(conn)

    def _read(self, conn: Peer) -> None:
        data = conn.sock.recv_now(_PIECE)
        if data is None:
            return
        if data:
            self._take_in(conn, data)
        elif conn.buffer is None:
            self._drop(conn)
        else:
            self._goes_on(conn, conn.buffer.end)

    def _take_in(self, conn: Peer, data: bytes) -> None:
        """More of a request, which goes to a thread when it is ready."""
        bounds = self.bounds
        if conn.buffer is None:
            conn.buffer = RequestBuffer(
                self.cfg,
                conn.client,
                max_head=bounds.max_head_bytes,
                max_body=bounds.max_body_bytes,
                upload_for=self._upload_for,
            )
            conn.invited = False
        buffer = conn.buffer
        if not self._goes_on(conn, partial(buffer.add, data)):
            return
        self._count(conn, len(buffer))
        if buffer.expects and not conn.invited:
            conn.invited = True
            conn.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        line = self._receiving if buffer.upload is None else self._uploading
        if conn.line is not line:
            self._enter(line, conn)
        self._shed()

    def _upload_for(self, request: Any) -> Upload | None:
        """Where the body goes of a request that is too large for memory, if the app wants it."""
        bounds = self.bounds
        upload = upload_for(self.wsgi, request, max_body=bounds.max_body_bytes, bounds=bounds.uploads)
        if upload is not None and len(self._uploading.ends) >= bounds.uploads.at_once:
            raise Unavailable("as much is uploaded already as is taken in at once; try again later")
        return upload

    def _goes_on(self, conn: Peer, step: Callable[[], bool]) -> bool:
        """Whether more is to come. If not, a thread has the request, or it was refused and the connection ends."""
        try:
            ready = step()
        except ContractError as error:
            self._refuse(conn, error)
        except Exception as error:  # noqa: BLE001 - whatever the parser raises concerns this request alone
            self._forget(conn)
            self.handle_error(None, conn.sock, conn.client, error)
            self._end(conn)
        else:
            if not ready:
                return True
            self._hand_over(conn)
        return False

    def _hand_over(self, conn: Peer) -> None:
        buffer = conn.buffer
        if buffer is None:
            return
        request, ahead = buffer.take()
        cost = len(buffer) + costs_more(request.body)
        # What is worked on cannot be shed; something large goes alone before it goes never.
        if cost > _LARGE and self._working and self._working + cost > self.bounds.memory_bytes:
            self._refuse(conn, Unavailable("too much is worked on at once; try again"))
            return
        self._leave(conn)
        self._count(conn, cost)
        self._working += cost
        conn.whole, conn.ahead, conn.buffer = buffer.whole, ahead, None
        conn.parser = iter((request,))
        self.enqueue_req(conn)
        self._shed()

    def _count(self, conn: Peer, held: int) -> None:
        self._held += held - conn.held
        conn.held = held

    def _write(self, conn: Peer) -> None:
        self._held -= conn.sock.send_more()
        if not conn.sock.unsent:
            conn.sock.unsent = b""
            self._leave(conn)
            self._answered(conn)

    def _answered(self, conn: Peer) -> None:
        if not conn.keep:
            self._linger(conn)
            return
        # A client may have sent its next request before it had the answer to this one.
        ahead, conn.ahead = conn.ahead, b""
        if ahead:
            self._take_in(conn, ahead)
        else:
            self._enter(self._idle, conn)

    def _linger(self, conn: Peer) -> None:
        """The peer gets to read the answer: a connection that is closed over unread bytes is reset, answer and all."""
        self._leave(conn)
        try:
            conn.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._drop(conn)
            return
        self._enter(self._lingering, conn)

    def _drain(self, conn: Peer) -> None:
        data = conn.sock.recv_now(_PIECE)
        if data is None:
            return
        conn.drained += len(data)
        if not data or conn.drained > _LINGER_BYTES:
            self._drop(conn)

    def _too_slow(self, conn: Peer) -> None:
        if conn.buffer is not None:
            self._refuse(conn, InvalidArgument("the request took too long to arrive", http_code=408))
        else:
            self._drop(conn)

    def _refuse(self, conn: Peer, error: ContractError) -> None:
        """Answers from here what never becomes a request of the app's."""
        request_id = uuid4().hex
        # Not self.log: this line belongs to the request, not to the server.
        log = structlog.stdlib.get_logger(__name__)
        log.warning("request_refused", request_id=request_id, problem=str(error))
        self._forget(conn)
        with contextlib.suppress(OSError):
            conn.sock.sendall(raw_answer(error, request_id))
        self._end(conn)

    def _end(self, conn: Peer) -> None:
        """After an answer from here: who does not take the little that it is goes without."""
        conn.sock.unsent = b""
        self._linger(conn)

    def _drop(self, conn: Peer) -> None:
        self._leave(conn)
        self._forget(conn)
        self._held -= len(conn.sock.unsent)
        conn.sock.unsent = b""
        self.nr_conns -= 1
        conn.sock.close()

    def _forget(self, conn: Peer) -> None:
        self._count(conn, 0)
        conn.buffer = None

    def _shed(self) -> None:
        """Keeps within the memory that there is: whoever holds most of it goes."""
        while self._held > self.bounds.memory_bytes:
            waiting = [conn for line in (self._receiving, self._sending) for conn in line.ends]
            largest = max(waiting, key=_weight, default=None)
            if largest is None or not _weight(largest):
                return
            if largest.sock.unsent:
                self._drop(largest)
            else:
                self._refuse(largest, Unavailable("too much arrives at once; try again"))

    def _make_room(self) -> None:
        for line in self._lines:
            conn = line.first()
            if conn is not None:
                self._drop(conn)
                return


def _weight(conn: Peer) -> int:
    return conn.held + len(conn.sock.unsent)


def costs_more(body: IO[bytes]) -> int:
    """About how many bytes beyond its own it takes to understand a body: if it is JSON, that of its values."""
    if not isinstance(body, io.BytesIO):
        # A file, which is read piece by piece.
        return 0
    raw = body.getvalue()
    return weight(raw) if len(raw) > _PIECE else 0


def raw_answer(error: ContractError, request_id: str) -> bytes:
    """The answer to what never reached the app, in the envelope of every other failure."""
    body = orjson.dumps(error_envelope(error))
    head = (
        f"HTTP/1.1 {error.http_code} {HTTPStatus(error.http_code).phrase}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n{HEADER}: {request_id}\r\n"
        "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n\r\n"
    )
    return head.encode() + body
