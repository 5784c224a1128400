"""HTTP sessions for URLs that API callers provide: permission providers and webhook receivers.

Such URLs must not lead into the server's own network (SSRF). A host name may resolve to another address a moment later,
so the check is part of connecting: the name is resolved once, all addresses are checked, and the connection is made to
a checked address. TLS still verifies the name.
"""

import ipaddress
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Lock, Thread, Timer
from typing import ClassVar
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError
from urllib3.response import HTTPResponse
from urllib3.util.connection import create_connection

from app.contract.errors import InvalidArgument
from app.foundation.outbound.session import bare_session

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
_MAX_ADDRESSES = 4
"""The number of a name's addresses to try. Each may take as long as the connect timeout."""


def is_public_address(address: str) -> bool:
    """Whether ``address`` is public: not loopback, private, link-local, multicast or reserved."""
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            ip = inner
        elif ip not in _GLOBAL_UNICAST:
            # Other addresses (IPv4-compatible and translated ones, site-local ones, local NAT64) may be private, and
            # ``is_global`` does not recognize all of them.
            return False
    return ip.is_global and not ip.is_multicast


def names_private_host(url: str) -> bool:
    """Whether the URL's host is a private address in any notation, or ``localhost``. Does not query DNS."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        # Parses 127.1, 0x7f000001 and 2130706433 like the operating system.
        entries = socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return False
    return not all(is_public_address(str(entry[4][0])) for entry in entries)


def check_url(url: str, field: str, *, allow_private: bool) -> None:
    """Raises ``InvalidArgument`` about ``field`` for a URL that this server must not call. Accepts an empty one."""
    if not url:
        return
    if "@" in urlsplit(url).netloc:
        raise InvalidArgument(f"{field}: must not carry credentials")
    if not allow_private and names_private_host(url):
        raise InvalidArgument(f"{field}: must not lead to a private network")


def check_token(token: str, field: str) -> None:
    """Raises ``InvalidArgument`` about ``field`` for a token that is invalid in a header."""
    if not all("!" <= character <= "~" for character in token):
        raise InvalidArgument(f"{field}: must be printable ASCII without spaces")


def open_session(*, allow_private: bool) -> requests.Session:
    """A pooled session without proxies, netrc and cookies. It calls only public addresses, unless ``allow_private``."""
    session = bare_session()
    adapter = _Adapter(allow_private)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session


class ConnectionWatch:
    """The connections that were made or used within ``time_limit``."""

    def __init__(self) -> None:
        self.was_cut = False
        """Whether the time limit was exceeded."""
        self._lock = Lock()
        self._sockets: list[socket.socket] = []

    def add(self, connected: socket.socket) -> None:
        """Keeps a duplicate handle, so that ``cut`` works even if TLS wraps the socket later. After ``cut``, it shuts
        the connection down at once."""
        with self._lock:
            # A TLS socket has no dup().
            self._sockets.append(socket.socket(fileno=os.dup(connected.fileno())))
            if self.was_cut:
                self._shut_down()

    def cut(self) -> None:
        """Shuts down the connections, so that blocked reads and writes end."""
        with self._lock:
            self.was_cut = True
            self._shut_down()

    def _shut_down(self) -> None:
        for connected in self._sockets:
            # Fails if the peer has closed the connection.
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Closes the duplicate handles."""
        with self._lock:
            for connected in self._sockets:
                connected.close()
            self._sockets.clear()


_WATCH: ContextVar[ConnectionWatch | None] = ContextVar("watch", default=None)


@contextmanager
def time_limit(seconds: float) -> Iterator[ConnectionWatch]:
    """Cuts connections that sessions of this module use within the block, if it takes longer. Socket timeouts restart
    with every byte, this limit does not."""
    watch = ConnectionWatch()
    timer = Timer(seconds, watch.cut)
    timer.daemon = True
    token = _WATCH.set(watch)
    timer.start()
    try:
        yield watch
    finally:
        timer.cancel()
        _WATCH.reset(token)
        watch.release()


def addresses_of(host: str, port: int, timeout: object) -> list[str]:
    """Resolves a host name. ``timeout`` is in seconds. Anything else means the system's own.

    ``socket.getaddrinfo`` has no timeout, so it runs in a thread that is abandoned after the timeout. Raises
    ``TimeoutError``, or an error of ``socket.getaddrinfo``.
    """
    result: Future[list[str]] = Future()

    def resolve() -> None:
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except Exception as error:  # noqa: BLE001 - ``Future.result`` raises it
            result.set_exception(error)
        else:
            result.set_result(list(dict.fromkeys(str(entry[4][0]) for entry in entries)))

    Thread(target=resolve, name="resolver", daemon=True).start()
    return result.result(timeout=timeout if isinstance(timeout, int | float) else None)


class _Connection(HTTPConnection):
    """Connects to checked addresses, and registers with the ``ConnectionWatch``."""

    allow_private: ClassVar[bool] = False

    def _new_conn(self) -> socket.socket:
        host = self._dns_host
        try:
            addresses = addresses_of(host, self.port, self.timeout)
        except TimeoutError as error:
            raise ConnectTimeoutError(self, "resolving the host name took too long") from error
        except (OSError, UnicodeError) as error:
            raise NewConnectionError(self, "the host name cannot be resolved") from error
        # A name with public and private addresses is not trusted.
        if not self.allow_private and not all(is_public_address(address) for address in addresses):
            raise NewConnectionError(self, "the host is in a private network")
        connected = self._connect_to_one_of(addresses)
        watch = _WATCH.get()
        if watch is not None:
            watch.add(connected)
        return connected

    def _connect_to_one_of(self, addresses: Sequence[str]) -> socket.socket:
        """Tries the addresses in order. One of the two address families may be unreachable."""
        last_error: OSError | None = None
        watch = _WATCH.get()
        for address in addresses[:_MAX_ADDRESSES]:
            if watch is not None and watch.was_cut:
                break
            try:
                return create_connection(
                    (address, self.port),
                    self.timeout,
                    source_address=self.source_address,
                    socket_options=self.socket_options,
                )
            except OSError as error:
                last_error = error
        if last_error is None or isinstance(last_error, TimeoutError):
            raise ConnectTimeoutError(self, "connecting took too long") from last_error
        raise NewConnectionError(self, "the connection could not be made") from last_error

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # urllib3 returns its own class
        # The pool may have reused a connection of an earlier call.
        watch = _WATCH.get()
        if watch is not None and self.sock is not None:
            watch.add(self.sock)
        return super().getresponse()


class _Adapter(HTTPAdapter):
    def __init__(self, allow_private: bool) -> None:
        self._allow_private = allow_private
        super().__init__()

    def init_poolmanager(self, *arguments: object, **options: object) -> None:
        super().init_poolmanager(*arguments, **options)  # type: ignore[arg-type,no-untyped-call,unused-ignore]  # unchanged
        self.poolmanager.pool_classes_by_scheme = _pool_classes(self._allow_private)


def _pool_classes(allowed: bool) -> Mapping[str, type[HTTPConnectionPool]]:
    """Pools of ``_Connection``, by scheme."""

    class Plain(_Connection):
        allow_private = allowed

    # ``Plain`` makes the connection. Everything else comes from urllib3.
    class Tls(Plain, HTTPSConnection):
        pass

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class TlsPool(HTTPSConnectionPool):
        ConnectionCls = Tls

    return {"http": PlainPool, "https": TlsPool}
