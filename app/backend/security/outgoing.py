"""Outgoing calls: where may this server connect to at a caller's request?

URLs come from API callers, so they must not lead into the network that the server stands in. A host name may resolve
to anything, and to something else a moment later, so the check sits where the connection is made: the name is
resolved once, every address is judged, and the connection goes to a judged address. TLS still verifies the name.
"""

import ipaddress
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Lock, Thread, Timer
from types import MappingProxyType
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


class ForbiddenAddressError(OSError):
    """The name leads to an address that this server does not call."""


def is_public_address(address: str) -> bool:
    """Whether ``address`` is one of the internet at large: not loopback, private, link-local, multicast or reserved."""
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            ip = inner
        elif ip not in _GLOBAL_UNICAST:
            # What else there is (IPv4-compatible and translated addresses, site-local ones, local NAT64) leads to
            # places of somebody's own, and Python's judgement does not know all of it.
            return False
    return ip.is_global and not ip.is_multicast


_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")


def names_private_host(url: str) -> bool:
    """Whether the URL's host is local on its face: an address in any spelling, or a name of this machine. Asks no
    name server.
    """
    host = (urlsplit(url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        # Understands 127.1, 0x7f000001 and 2130706433 as the operating system will.
        found = socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return False
    return not all(is_public_address(str(entry[4][0])) for entry in found)


def check_url(url: str, field: str, *, allow_private: bool) -> None:
    """Raises ``InvalidArgument`` about ``field`` for a URL that this server would not call. The empty one is none."""
    if not url:
        return
    if "@" in urlsplit(url).netloc:
        raise InvalidArgument(f"{field}: must not carry credentials")
    if not allow_private and names_private_host(url):
        raise InvalidArgument(f"{field}: must not lead to a private network")


def check_token(token: str, field: str) -> None:
    """Raises ``InvalidArgument`` about ``field`` for a token that fits no header: it would be cut, changed or
    dangerous."""
    if not all("!" <= character <= "~" for character in token):
        raise InvalidArgument(f"{field}: must be printable ASCII without spaces")


def open_session(*, allow_private: bool) -> requests.Session:
    """A pooled session that follows no environment (proxies, netrc), keeps no cookies and, unless told otherwise, calls
    public addresses only.
    """
    session = bare_session()
    adapter = _Adapter(_POOLS if allow_private else _PUBLIC_POOLS)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session


class ConnectionWatch:
    """The connections that were made or used within ``at_most``."""

    def __init__(self) -> None:
        self.was_cut = False
        """Whether time ran out."""
        self._lock = Lock()
        self._held: list[socket.socket] = []

    def hold(self, made: socket.socket) -> None:
        """Keeps a handle of its own on a connection: whatever is wrapped around it, cutting this cuts it."""
        with self._lock:
            # Not its own dup(), which TLS does not have.
            self._held.append(socket.socket(fileno=os.dup(made.fileno())))

    def cut(self) -> None:
        """Ends all of them, so that whoever waits for one stops waiting."""
        with self._lock:
            self.was_cut = True
            for one in self._held:
                # A connection that the other side has ended already cannot be shut down.
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def let_go(self) -> None:
        with self._lock:
            for one in self._held:
                one.close()
            self._held.clear()


_WATCH: ContextVar[ConnectionWatch | None] = ContextVar("watch", default=None)


@contextmanager
def time_limit(seconds: float) -> Iterator[ConnectionWatch]:
    """Connections that sessions of this module make or use within the block are cut when it lasts longer.

    Timeouts of sockets start anew with every byte; this one does not.
    """
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
        watch.let_go()


def addresses_of(host: str, port: int, patience: object) -> list[str]:
    """The addresses that the name has, each once. ``patience``: seconds, or anything else for the system's own.

    The system's resolver knows no timeout: it is asked from a thread, which is left alone when it takes too long.
    Raises ``TimeoutError`` then, and what ``socket.getaddrinfo`` raises.
    """
    answer: Future[list[str]] = Future()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except Exception as error:  # noqa: BLE001 - raised again by who waits
            answer.set_exception(error)
        else:
            answer.set_result(list(dict.fromkeys(str(entry[4][0]) for entry in found)))

    Thread(target=ask, name="resolver", daemon=True).start()
    return answer.result(timeout=patience if isinstance(patience, int | float) else None)


_MOST_ADDRESSES = 4
"""So many of a name's addresses are tried: each may take as long as the timeout for connecting."""


class _Connection(HTTPConnection):
    """Made to addresses that were looked at, and cut by a ``ConnectionWatch``."""

    public_only: ClassVar[bool] = False

    def _new_conn(self) -> socket.socket:
        host = self._dns_host
        try:
            addresses = addresses_of(host, self.port, self.timeout)
        except TimeoutError as error:
            raise ConnectTimeoutError(self, "resolving the host name took too long") from error
        except (OSError, UnicodeError) as error:
            raise NewConnectionError(self, "the host name cannot be resolved") from error
        # One bad address is enough: a name that leads inside as well as outside is not to be trusted.
        if self.public_only and not all(is_public_address(address) for address in addresses):
            raise NewConnectionError(self, "the host is in a private network") from ForbiddenAddressError(host)
        made = self._connect_to_one_of(addresses)
        watch = _WATCH.get()
        if watch is not None:
            watch.hold(made)
        return made

    def _connect_to_one_of(self, addresses: Sequence[str]) -> socket.socket:
        """Connects to the first that lets us: of a name's two families, one may lead nowhere."""
        failure: OSError | None = None
        watch = _WATCH.get()
        for address in addresses[:_MOST_ADDRESSES]:
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
                failure = error
        if failure is None or isinstance(failure, TimeoutError):
            raise ConnectTimeoutError(self, "connecting took too long") from failure
        raise NewConnectionError(self, "the connection could not be made") from failure

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # urllib3 has its own class there, too
        # Perhaps the connection was kept from an earlier call.
        watch = _WATCH.get()
        if watch is not None and self.sock is not None:
            watch.hold(self.sock)
        return super().getresponse()


class _TlsConnection(_Connection, HTTPSConnection):
    """The same below TLS: how it is made comes from the first, all else from urllib3."""


class _PublicConnection(_Connection):
    public_only = True


class _PublicTlsConnection(_TlsConnection):
    public_only = True


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _PublicPool(HTTPConnectionPool):
    ConnectionCls = _PublicConnection


class _PublicTlsPool(HTTPSConnectionPool):
    ConnectionCls = _PublicTlsConnection


_Pools = Mapping[str, type[HTTPConnectionPool]]
_POOLS: _Pools = MappingProxyType({"http": _Pool, "https": _TlsPool})
_PUBLIC_POOLS: _Pools = MappingProxyType({"http": _PublicPool, "https": _PublicTlsPool})


class _Adapter(HTTPAdapter):
    def __init__(self, pools: _Pools) -> None:
        self._pools = pools
        super().__init__()

    def init_poolmanager(self, *arguments: object, **options: object) -> None:
        super().init_poolmanager(*arguments, **options)  # type: ignore[arg-type,no-untyped-call,unused-ignore]  # passed on as they came
        self.poolmanager.pool_classes_by_scheme = dict(self._pools)
