"""A proxy between a reader and a server that cuts, stalls or delays what the server answers."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress


class Meddler:
    """A port that leads to a server, and passes on what is said as long as its fields do not say otherwise."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.passed = 0
        """Bytes that the server's answers had since ``forget``."""
        self.cut_after: int | None = None
        """Bytes of answers after which the connection is cut; None: never."""
        self.stall_after: int | None = None
        """Bytes of answers after which nothing comes any more; None: always something."""
        self.delay: Callable[[], None] = lambda: None
        """Called before each piece of an answer. If it raises, the connection is cut."""
        self.errors: list[Exception] = []
        """What ``delay`` raised."""
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def forget(self) -> None:
        """Meddles no more, and counts from nothing."""
        self.cut_after = self.stall_after = None
        self.delay = lambda: None
        self.passed = 0

    @contextmanager
    def cut(self, after: int) -> Iterator[None]:
        """Cuts the connection after so many bytes of answers from now on."""
        self.forget()
        self.cut_after = after
        try:
            yield
        finally:
            self.forget()

    def check(self) -> None:
        """Raises what ``delay`` raised."""
        if self.errors:
            raise self.errors[0]

    def close(self) -> None:
        """Ends all connections. Closing alone would not: threads that wait for a socket keep it open, and a server in
        the middle of an answer its locks."""
        _shut(self._listener, *self._open)
        for one in (self._listener, *self._open):
            one.close()

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
            # However it ended, a reset included: closing alone tells nobody while a thread waits for the socket.
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
                    # Until the reader has had enough.
                    client.recv(1)
                    return
                client.sendall(data)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(16384):
            target.sendall(data)
    _shut(target)


def _shut(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@contextmanager
def meddler(host: str, port: int) -> Iterator[Meddler]:
    with closing(Meddler(host, port)) as one:
        yield one
        one.check()
