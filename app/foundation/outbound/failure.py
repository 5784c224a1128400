"""Classifies errors of outgoing calls: those of the HTTP libraries, the resolver, sockets and TLS.

``FailureKind`` has the message and the advice of each kind. They name hosts and ports, never credentials.
"""

import errno
import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from http.client import BadStatusLine, HTTPException
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import ConnectTimeoutError, LocationValueError, NewConnectionError, ProtocolError, ProxyError
from urllib3.exceptions import HTTPError as PoolError
from urllib3.exceptions import TimeoutError as PoolTimeout

from app.foundation.outbound.route import Route
from app.foundation.outbound.urls import address_of
from app.foundation.text import printable

_IF_PROXY = "; if this network requires a proxy, name it in {section}.proxy"
_SET_CA_FILE = "set {section}.ca_file to a PEM file with certificates"
_CHECK_ROUTE = "see that {address} is right and that this machine may connect there"
_CHECK_PEER = "see that {address} is right and that the server there works"


class Effect(Enum):
    NOT_SENT = "not sent"
    """The call was not sent. A retry may succeed."""
    LASTING = "lasting"
    """The call was not sent. A retry would fail in the same way."""
    MAYBE_SENT = "maybe sent"
    """The peer may have acted on the call."""


class FailureKind(Enum):
    """The kinds of failures: message, advice, and the effect of the call.

    In a message, ``{address}`` is the ``host:port`` of the peer or of the proxy, and ``{detail}`` the reason. In
    advice, ``{address}`` is the setting with the URL, and ``{section}`` the section with ``ca_file`` and ``proxy``.
    """

    INVALID_URL = ("the address cannot be used", "fix {address}", Effect.LASTING)
    UNRESOLVED = (
        "the name {address} cannot be resolved ({detail})",
        "see that {address} is spelt right and that this machine's name server resolves it" + _IF_PROXY,
    )
    REFUSED = (
        "nothing listens at {address} (connection refused)",
        "see that it runs and that {address} names its port" + _IF_PROXY,
    )
    UNREACHABLE = ("no connection to {address}{detail}", _CHECK_ROUTE + _IF_PROXY)
    CONNECT_TIMEOUT = (
        "no connection to {address} within the time allowed",
        "see that {address} is right and that no firewall blocks it" + _IF_PROXY,
    )
    UNTRUSTED = (
        "the TLS certificate of {address} is not trusted{detail}",
        "set {section}.ca_file to a file with the certificate of the authority that signed it",
        Effect.LASTING,
    )
    WRONG_HOST = (
        "the TLS certificate of {address} is for another host",
        "set {address} to the host that the certificate is for",
        Effect.LASTING,
    )
    EXPIRED = (
        "the TLS certificate of {address} is not valid now{detail}",
        "have it renewed there, and see that this machine's clock is right",
        Effect.LASTING,
    )
    CA_FILE_UNUSABLE = ("the file with the certificates to trust cannot be used", _SET_CA_FILE, Effect.LASTING)
    CA_FILE_MISSING = ("the file with the certificates to trust is gone", _SET_CA_FILE, Effect.LASTING)
    NOT_TLS = (
        "{address} speaks plain HTTP, but the request used TLS",
        "let {address} begin with http://, or name the port that speaks TLS",
        Effect.LASTING,
    )
    TLS_REQUIRED = (
        "{address} speaks TLS, but the request was plain HTTP",
        "let {address} begin with https://",
        Effect.LASTING,
    )
    HANDSHAKE = ("no TLS handshake with {address}: {detail}", "see that {address} names a port that speaks TLS")
    PROXY_UNREACHABLE = (
        "no connection to the proxy: {detail}",
        "see that {section}.proxy is right and that this machine may connect there",
    )
    PROXY_CREDENTIALS = (
        "the proxy {address} does not accept the credentials for it (407)",
        "put a user and password that it accepts into {section}.proxy",
        Effect.LASTING,
    )
    PROXY_REFUSED = (
        "the proxy {address} refuses a connection to {detail}",
        "have the proxy allow {section}, and see that {address} is right",
    )
    RESPONSE_TIMEOUT = ("no answer within the time allowed", _CHECK_PEER, Effect.MAYBE_SENT)
    CONNECTION_LOST = ("the connection was lost before an answer came", _CHECK_PEER, Effect.MAYBE_SENT)
    OTHER = ("the exchange failed", _CHECK_ROUTE, Effect.MAYBE_SENT)

    def __init__(self, message: str, advice: str, effect: Effect = Effect.NOT_SENT) -> None:
        self.message = message
        self.advice = advice
        self.effect = effect


@dataclass(frozen=True, slots=True)
class CallFailure:
    """The reason why a call has no response. ``message`` is one sentence without a full stop."""

    kind: FailureKind
    message: str

    @property
    def may_have_been_sent(self) -> bool:
        """Whether the peer may have acted on the call."""
        return self.kind.effect is Effect.MAYBE_SENT

    @property
    def is_lasting(self) -> bool:
        """Whether a retry would fail in the same way."""
        return self.kind.effect is Effect.LASTING

    def advice(self, *, address: str, section: str) -> str:
        """Advice for the operator. ``address`` is the setting with the URL, ``section`` the one with ``ca_file`` and
        ``proxy``. Empty: ``ca_file`` is beside ``address``, and no proxy can be set."""
        text = self.kind.advice if section else self.kind.advice.removesuffix(_IF_PROXY).replace("{section}.", "")
        return text.format(address=address, section=section)


CALL_ERRORS = (requests.RequestException, PoolError, OSError, UnicodeError)
"""The errors of a call without a response. ``requests`` does not wrap all errors of its connection pool, nor of a host
name."""


def call_failure(kind: FailureKind, address: str = "", detail: str = "") -> CallFailure:
    """The failure of a call. ``address`` is the peer's ``host:port``."""
    return CallFailure(kind, kind.message.format(address=address, detail=detail))


def failure_of(error: BaseException, url: str, route: Route | None = None) -> CallFailure:
    """The failure that an error of ``requests``, ``urllib3``, ``ssl`` or a socket means for a call of ``url``."""
    causes = list(_causes(error))
    if any(isinstance(cause, requests.exceptions.InvalidURL | LocationValueError | UnicodeError) for cause in causes):
        return call_failure(FailureKind.INVALID_URL)
    address = address_of(url)
    return (
        (_proxy_failure(causes, address, route.proxy_address) if route is not None and route.proxy_address else None)
        or _tls_failure(causes, address)
        or _connection_failure(causes, address)
        or _response_failure(causes, address, is_tls=urlsplit(url).scheme == "https")
    )


_TUNNEL = re.compile(r"Tunnel connection failed: (\d{3}) ?(.*)")
"""The text of the error of ``http.client``. The errors of the libraries around it quote it."""


def _proxy_failure(causes: list[BaseException], address: str, proxy: str) -> CallFailure | None:
    for cause in causes:
        if isinstance(cause, OSError) and (match := _TUNNEL.fullmatch(str(cause))):
            if match[1] == "407":
                return call_failure(FailureKind.PROXY_CREDENTIALS, proxy)
            status = f"{match[1]} {printable(match[2], limit=80)}".strip()
            return call_failure(FailureKind.PROXY_REFUSED, proxy, f"{address} ({status})")
    if any(isinstance(cause, ProxyError) for cause in causes):
        inner = _tls_failure(causes, proxy) or _connection_failure(causes, proxy)
        detail = inner.message if inner else f"{proxy} hung up"
        return call_failure(FailureKind.PROXY_UNREACHABLE, detail=detail)
    return None


_CERTIFICATE_KINDS = {
    9: FailureKind.EXPIRED,
    10: FailureKind.EXPIRED,
    62: FailureKind.WRONG_HOST,
    64: FailureKind.WRONG_HOST,
}
"""OpenSSL's X509_V_ERR codes: not yet valid, expired, for another host name, for another address."""

_NOT_TLS_REASONS = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}
)
"""OpenSSL's reasons for a response that is not TLS."""


def _tls_failure(causes: list[BaseException], address: str) -> CallFailure | None:
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            # An error that does not come from the ssl module lacks both attributes.
            kind = _CERTIFICATE_KINDS.get(getattr(cause, "verify_code", 0), FailureKind.UNTRUSTED)
            message = getattr(cause, "verify_message", "")
            return call_failure(kind, address, f": {message}" if message else "")
    for cause in causes:
        if isinstance(cause, ssl.SSLError):
            if cause.library == "X509" or cause.reason == "NO_CERTIFICATE_OR_CRL_FOUND":
                return call_failure(FailureKind.CA_FILE_UNUSABLE)
            if cause.reason in _NOT_TLS_REASONS:
                return call_failure(FailureKind.NOT_TLS, address)
            reason = (cause.reason or "the connection ended").replace("_", " ").lower()
            return call_failure(FailureKind.HANDSHAKE, address, reason)
    if any("handshake" in str(cause) for cause in causes if isinstance(cause, TimeoutError)):
        return call_failure(FailureKind.HANDSHAKE, address, "no response within the time allowed")
    # `requests` and `ssl` read the file with the certificates for each connection. A call opens no other file.
    if any("CA certificate bundle" in str(cause) or isinstance(cause, FileNotFoundError) for cause in causes):
        return call_failure(FailureKind.CA_FILE_MISSING)
    return None


_UNREACHABLE = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM})


def _connection_failure(causes: list[BaseException], address: str) -> CallFailure | None:
    for cause in causes:
        if isinstance(cause, socket.gaierror):
            return call_failure(FailureKind.UNRESOLVED, address.rpartition(":")[0], str(cause.strerror))
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return call_failure(FailureKind.REFUSED, address)
    reasons = [cause.strerror for cause in causes if isinstance(cause, OSError) and cause.errno in _UNREACHABLE]
    if reasons:
        return call_failure(FailureKind.UNREACHABLE, address, f": {reasons[0]}")
    # In urllib3, NewConnectionError is a subclass of ConnectTimeoutError.
    if any(
        isinstance(cause, requests.ConnectTimeout | ConnectTimeoutError) and not isinstance(cause, NewConnectionError)
        for cause in causes
    ):
        return call_failure(FailureKind.CONNECT_TIMEOUT, address)
    if any(isinstance(cause, NewConnectionError) for cause in causes):
        return call_failure(FailureKind.UNREACHABLE, address)
    return None


_TLS_ALERT = ("\x15\x03", "\x16\x03")
"""The beginning of a TLS record in place of a status line."""


def _response_failure(causes: list[BaseException], address: str, *, is_tls: bool) -> CallFailure:
    for cause in causes:
        if isinstance(cause, BadStatusLine) and not is_tls and str(cause).startswith(_TLS_ALERT):
            return call_failure(FailureKind.TLS_REQUIRED, address)
    if any(isinstance(cause, requests.Timeout | PoolTimeout | TimeoutError) for cause in causes):
        return call_failure(FailureKind.RESPONSE_TIMEOUT)
    if any(isinstance(cause, ProtocolError | HTTPException | ConnectionError) for cause in causes):
        return call_failure(FailureKind.CONNECTION_LOST)
    return call_failure(FailureKind.OTHER)


_TLS_REQUIRED_TEXTS = (
    b"plain http request was sent to https port",  # nginx
    b"client sent an http request to an https server",  # Go
    b"speaking plain http to an ssl-enabled server port",  # Apache
)


def requires_tls(http_code: int, body: bytes) -> bool:
    """Whether a response to plain HTTP is a server's error page about missing TLS."""
    return http_code == 400 and any(text in body[:4096].lower() for text in _TLS_REQUIRED_TEXTS)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and all errors inside it. The libraries keep them in arguments and ``reason`` as well as in
    ``__cause__``."""
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        candidate = waiting.pop()
        if not isinstance(candidate, BaseException) or id(candidate) in seen:
            continue
        seen.add(id(candidate))
        yield candidate
        waiting += [*candidate.args, getattr(candidate, "reason", None), candidate.__cause__, candidate.__context__]


def refused_by_proxy(status: int, route: Route) -> CallFailure | None:
    """The failure of a call that the proxy of ``route`` answered itself, because of its credentials."""
    if status == requests.codes.proxy_authentication_required and route.proxy_address:
        return call_failure(FailureKind.PROXY_CREDENTIALS, route.proxy_address)
    return None
