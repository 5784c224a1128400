"""A TCP proxy between a client and a server that cuts, stalls or delays the server's responses."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress


class TcpProxy:
    """Forwards a port to a server. Its fields configure the faults."""

    def __init__(self, host: str, port: int, *, at: int = 0) -> None:
        """``at``: the port to forward; 0: any."""
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", at))
        self.port: int = self._listener.getsockname()[1]
        self.passed = 0
        """Bytes of responses since ``reset``."""
        self.cut_after: int | None = None
        """Bytes of responses after which the connection is cut; None: never."""
        self.stall_after: int | None = None
        """Bytes of responses after which the connection stalls; None: never."""
        self.delay: Callable[[], object] = lambda: None
        """Called before each piece of a response. If it raises, the connection is cut."""
        self.errors: list[Exception] = []
        """The errors of ``delay``."""
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self) -> None:
        """Removes all faults and restarts the count of bytes."""
        self.cut_after = self.stall_after = None
        self.delay = lambda: None
        self.passed = 0

    @contextmanager
    def cut(self, after: int) -> Iterator[None]:
        """Cuts the connection after ``after`` bytes of responses from now on."""
        self.reset()
        self.cut_after = after
        try:
            yield
        finally:
            self.reset()

    def check(self) -> None:
        """Raises the first error of ``delay``."""
        if self.errors:
            raise self.errors[0]

    def close(self) -> None:
        """Ends all connections. They must be shut down first, because threads that wait for a socket keep it open."""
        _shut(self._listener, *self._open)
        for connection in (self._listener, *self._open):
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target, timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            self._open += [client, server]
            threading.Thread(target=_pump, args=(client, server), daemon=True).start()
            threading.Thread(target=self._answers, args=(server, client), daemon=True).start()

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        try:
            self._pass_on(server, client)
        finally:
            # Closing alone has no effect on the peer while a thread waits for the socket.
            _shut(client, server)
            client.close()
            server.close()

    def _pass_on(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(16384):
                try:
                    self.delay()
                except Exception as error:  # noqa: BLE001 - ``check`` raises it in the thread of the test
                    self.errors.append(error)
                    return
                with self._lock:
                    before, self.passed = self.passed, self.passed + len(data)
                if self.cut_after is not None and before + len(data) > self.cut_after:
                    client.sendall(data[: max(self.cut_after - before, 0)])
                    return
                if self.stall_after is not None and before + len(data) > self.stall_after:
                    client.sendall(data[: max(self.stall_after - before, 0)])
                    # Until the client closes the connection.
                    client.recv(1)
                    return
                client.sendall(data)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(16384):
            target.sendall(data)
    _shut(target)


def _shut(*sockets: socket.socket) -> None:
    for connection in sockets:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def tcp_proxy(host: str, port: int) -> Iterator[TcpProxy]:
    with closing(TcpProxy(host, port)) as proxy:
        yield proxy
        proxy.check()
