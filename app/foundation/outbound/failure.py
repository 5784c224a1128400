"""Failures of outgoing calls: what kept one from being answered, and what to do about it.

The errors of the HTTP libraries, the resolver, sockets and TLS become one ``CallFailure`` with a phrase for people. It
names hosts and ports, and never a credential.
"""

import errno
import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from http.client import BadStatusLine, HTTPException
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import ConnectTimeoutError, LocationValueError, NewConnectionError, ProtocolError, ProxyError
from urllib3.exceptions import TimeoutError as PoolTimeout

from app.foundation.outbound.route import Route, address_of
from app.foundation.text import printable


class FailureKind(Enum):
    """What sort of thing went wrong."""

    ADDRESS = auto()
    NAME = auto()
    REFUSED = auto()
    UNREACHABLE = auto()
    SLOW_CONNECTION = auto()
    UNTRUSTED = auto()
    OTHER_NAME = auto()
    EXPIRED = auto()
    CA_FILE = auto()
    NO_TLS = auto()
    """TLS was spoken to a port that does not."""
    ONLY_TLS = auto()
    """Plain HTTP was spoken to a port that speaks TLS."""
    HANDSHAKE = auto()
    PROXY = auto()
    """There is no connection to the proxy."""
    PROXY_CREDENTIALS = auto()
    PROXY_REFUSAL = auto()
    SILENT = auto()
    CUT = auto()
    OTHER = auto()


_MAY_HAVE_BEEN_SENT = frozenset({FailureKind.SILENT, FailureKind.CUT, FailureKind.OTHER})
_LASTING = frozenset(
    {
        FailureKind.ADDRESS,
        FailureKind.UNTRUSTED,
        FailureKind.OTHER_NAME,
        FailureKind.EXPIRED,
        FailureKind.CA_FILE,
        FailureKind.NO_TLS,
        FailureKind.ONLY_TLS,
        FailureKind.PROXY_CREDENTIALS,
    }
)


@dataclass(frozen=True, slots=True)
class CallFailure:
    """Why there was no answer. ``says`` is a phrase for people."""

    kind: FailureKind
    says: str

    @property
    def may_have_been_sent(self) -> bool:
        """Whether the other side may have acted on the call."""
        return self.kind in _MAY_HAVE_BEEN_SENT

    @property
    def is_lasting(self) -> bool:
        """Whether another try would end the same."""
        return self.kind in _LASTING


def failure_of(error: BaseException, url: str, route: Route | None = None) -> CallFailure:
    """What an error of ``requests``, ``urllib3``, ``ssl`` or a socket means for a call of ``url`` along ``route``."""
    causes = list(_causes(error))
    if any(isinstance(cause, requests.exceptions.InvalidURL | LocationValueError) for cause in causes):
        return CallFailure(FailureKind.ADDRESS, "the address cannot be used")
    address = address_of(url)
    if route is not None and route.proxy_address:
        by_proxy = _proxy_failure(causes, address, route.proxy_address)
        if by_proxy is not None:
            return by_proxy
    return (
        _tls_failure(causes, address)
        or _connection_failure(causes, address)
        or _lost_answer(causes, address, is_tls=urlsplit(url).scheme == "https")
    )


def advice(failure: CallFailure, *, address: str, section: str) -> str:
    """What to do about it, in words for people. ``address`` is the setting that holds the URL, ``section`` the one with
    ``ca_file`` and ``proxy``."""
    by_proxy = f"if the way out of this network leads through a proxy, name it in {section}.proxy"
    return {
        FailureKind.ADDRESS: f"mend {address}",
        FailureKind.NAME: f"see that {address} is spelt right and that this machine's name server knows it; {by_proxy}",
        FailureKind.REFUSED: f"see that it runs and that {address} names its port; {by_proxy}",
        FailureKind.UNREACHABLE: f"see that {address} is right and that this machine may connect there; {by_proxy}",
        FailureKind.SLOW_CONNECTION: f"see that {address} is right and that no firewall is in the way; {by_proxy}",
        FailureKind.UNTRUSTED: f"name a PEM file with the certificate of whoever signed it in {section}.ca_file",
        FailureKind.OTHER_NAME: f"let {address} name the host that the certificate is for",
        FailureKind.EXPIRED: "have it renewed there, and see that this machine's clock is right",
        FailureKind.CA_FILE: f"let {section}.ca_file name a PEM file with certificates",
        FailureKind.NO_TLS: f"let {address} begin with http://, or name the port that speaks TLS",
        FailureKind.ONLY_TLS: f"let {address} begin with https://",
        FailureKind.HANDSHAKE: f"see that {address} names a port that speaks TLS",
        FailureKind.PROXY: f"see that {section}.proxy is right and that this machine may connect there",
        FailureKind.PROXY_CREDENTIALS: f"put a user and password that it accepts into {section}.proxy",
        FailureKind.PROXY_REFUSAL: f"have the proxy let {section} through, and see that {address} is right",
        FailureKind.SILENT: f"see that {address} is right and that what answers there is well",
        FailureKind.CUT: f"see that {address} is right and that what answers there is well",
        FailureKind.OTHER: f"see that {address} is right and that this machine may connect there",
    }[failure.kind]


_TUNNEL = re.compile(r"Tunnel connection failed: (\d{3}) ?(.*)")


def _proxy_failure(causes: list[BaseException], address: str, proxy: str) -> CallFailure | None:
    for cause in causes:
        if isinstance(cause, OSError) and (found := _TUNNEL.search(str(cause))):
            code, reason = found[1], printable(found[2], limit=80)
            if code == "407":
                return refused_by_proxy(proxy)
            return CallFailure(
                FailureKind.PROXY_REFUSAL,
                f"the proxy {proxy} answers a connection to {address} with {code} {reason}".strip(),
            )
    if any(isinstance(cause, ProxyError) for cause in causes):
        inner = _tls_failure(causes, proxy) or _connection_failure(causes, proxy)
        return CallFailure(
            FailureKind.PROXY, f"no connection to the proxy: {inner.says if inner else f'{proxy} hung up'}"
        )
    return None


def refused_by_proxy(proxy: str) -> CallFailure:
    """The proxy, ``host:port``, wants other credentials."""
    return CallFailure(FailureKind.PROXY_CREDENTIALS, f"the proxy {proxy} does not accept the credentials for it (407)")


_EXPIRED = frozenset({9, 10})
_OTHER_NAME = frozenset({62, 64})
"""OpenSSL's X509_V_ERR_: not yet valid, expired; of another host name, of another address."""

_PLAIN_ANSWERS = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}
)
"""What OpenSSL calls an answer that is no TLS."""


def _tls_failure(causes: list[BaseException], address: str) -> CallFailure | None:
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _certificate_failure(cause, address)
    for cause in causes:
        if isinstance(cause, ssl.SSLError):
            if cause.library == "X509" or cause.reason == "NO_CERTIFICATE_OR_CRL_FOUND":
                return CallFailure(FailureKind.CA_FILE, "the file with the certificates to trust cannot be used")
            if cause.reason in _PLAIN_ANSWERS:
                return CallFailure(FailureKind.NO_TLS, f"what answers at {address} does not speak TLS")
            reason = (cause.reason or "the connection ended").replace("_", " ").lower()
            return CallFailure(FailureKind.HANDSHAKE, f"{address} and this machine did not agree on TLS: {reason}")
    if any("handshake" in str(cause) for cause in causes if isinstance(cause, TimeoutError)):
        return CallFailure(FailureKind.HANDSHAKE, f"{address} did not take up TLS within the time allowed")
    # Of `requests` itself, and of `ssl`: the file is looked at for each connection.
    if any("CA certificate bundle" in str(cause) or isinstance(cause, FileNotFoundError) for cause in causes):
        return CallFailure(FailureKind.CA_FILE, "the file with the certificates to trust is gone")
    return None


def _certificate_failure(error: ssl.SSLCertVerificationError, address: str) -> CallFailure:
    # Set by the module of the standard library, which an error made by hand would lack.
    code, message = getattr(error, "verify_code", 0), getattr(error, "verify_message", "")
    if code in _OTHER_NAME:
        return CallFailure(FailureKind.OTHER_NAME, f"the TLS certificate of {address} is for another host")
    if code in _EXPIRED:
        return CallFailure(FailureKind.EXPIRED, f"the TLS certificate of {address} is not valid now: {message}")
    return CallFailure(
        FailureKind.UNTRUSTED, f"the TLS certificate of {address} is not trusted: {message}".removesuffix(": ")
    )


def _connection_failure(causes: list[BaseException], address: str) -> CallFailure | None:
    for cause in causes:
        if isinstance(cause, socket.gaierror):
            return CallFailure(
                FailureKind.NAME, f"the name {address.rpartition(':')[0]} cannot be resolved ({cause.strerror})"
            )
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return CallFailure(FailureKind.REFUSED, f"nobody listens at {address} (connection refused)")
    reasons = [cause.strerror for cause in causes if isinstance(cause, OSError) and cause.errno in _NO_WAY]
    if reasons:
        return CallFailure(FailureKind.UNREACHABLE, f"no connection to {address}: {reasons[0]}")
    # To urllib3 a connection that failed is a kind of one that took too long.
    if any(_is_slow_connection(cause) for cause in causes):
        return CallFailure(FailureKind.SLOW_CONNECTION, f"no connection to {address} within the time allowed")
    if any(isinstance(cause, NewConnectionError) for cause in causes):
        return CallFailure(FailureKind.UNREACHABLE, f"no connection to {address}")
    return None


def _is_slow_connection(cause: BaseException) -> bool:
    if isinstance(cause, NewConnectionError):
        return False
    return isinstance(cause, requests.ConnectTimeout | ConnectTimeoutError)


_NO_WAY = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM})

_TLS_ALERT = ("\x15\x03", "\x16\x03")
"""What the first line of an answer begins with that is TLS and no HTTP."""


def _lost_answer(causes: list[BaseException], address: str, *, is_tls: bool) -> CallFailure:
    for cause in causes:
        if isinstance(cause, BadStatusLine) and not is_tls and str(cause).startswith(_TLS_ALERT):
            return only_tls(address)
    if any(isinstance(cause, requests.Timeout | PoolTimeout | TimeoutError) for cause in causes):
        return CallFailure(FailureKind.SILENT, "no answer within the time allowed")
    if any(isinstance(cause, ProtocolError | HTTPException | ConnectionError) for cause in causes):
        return CallFailure(FailureKind.CUT, "the connection was lost before an answer came")
    return CallFailure(FailureKind.OTHER, "the exchange failed")


_PLAIN_TO_TLS = (
    b"plain http request was sent to https port",  # nginx
    b"client sent an http request to an https server",  # Go
    b"speaking plain http to an ssl-enabled server port",  # Apache
)


def says_only_tls(http_code: int, body: bytes) -> bool:
    """Whether an answer to plain HTTP comes from a server that knows TLS alone and is polite about it."""
    return http_code == 400 and any(phrase in body[:4096].lower() for phrase in _PLAIN_TO_TLS)


def only_tls(address: str) -> CallFailure:
    """Plain HTTP was spoken to ``address``, ``host:port``, which knows TLS alone."""
    return CallFailure(FailureKind.ONLY_TLS, f"{address} speaks TLS, and was spoken to in plain HTTP")


def no_tls(address: str) -> CallFailure:
    """TLS was spoken to ``address``, ``host:port``, which knows plain HTTP alone."""
    return CallFailure(FailureKind.NO_TLS, f"{address} speaks plain HTTP, and was spoken to in TLS")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and everything that it wraps; the libraries put causes into arguments and `reason` rather than
    `__cause__`."""
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [*one.args, getattr(one, "reason", None), one.__cause__, one.__context__]
