"""A wire between a client and a server on loopback, which cuts, delays or swallows what comes back."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PIECE = 4096


class Wire:
    """A port that leads to a server. What it does to answers is told by its fields, at any time."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.limit: int | None = None
        """Bytes that a connection may bring back; then it is cut."""
        self.swallow_after: int | None = None
        """Bytes that a connection may bring back; then nothing comes any more, and it stays open."""
        self.delay = 0.0
        """Seconds by which each piece that comes back is late."""
        self.brought = 0
        """Bytes that the latest connection brought back."""
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Ends all connections."""
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    @contextmanager
    def cut(self, after: int) -> Iterator[None]:
        """Cuts connections that begin now after so many bytes that came back."""
        self.limit = after
        try:
            yield
        finally:
            self.limit = None

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            self.brought = 0
            self._open += [client, server]
            threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()
            threading.Thread(target=self._bring_back, args=(server, client), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while piece := client.recv(_PIECE):
                server.sendall(piece)
        _end(client, server)

    def _bring_back(self, server: socket.socket, client: socket.socket) -> None:
        limit, brought = self.limit, 0
        with suppress(OSError):
            while piece := server.recv(_PIECE):
                if limit is not None:
                    piece = piece[: limit - brought]
                if self.swallow_after is not None and brought + len(piece) > self.swallow_after:
                    continue
                if self.delay:
                    time.sleep(self.delay)
                client.sendall(piece)
                brought += len(piece)
                self.brought = brought
                if limit is not None and brought >= limit:
                    break
        _end(client, server)


def _end(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
