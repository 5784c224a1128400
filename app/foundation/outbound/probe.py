"""Probes the port of a failed call, if the error does not distinguish between plain HTTP and TLS."""

import socket
import ssl
from urllib.parse import urlsplit

from app.foundation.outbound.failure import CallFailure, FailureKind, call_failure, failure_of
from app.foundation.outbound.route import Route
from app.foundation.outbound.urls import address_of

_PROBE_TIMEOUT = 2.0
"""Seconds."""

_AMBIGUOUS = frozenset({FailureKind.HANDSHAKE, FailureKind.NOT_TLS, FailureKind.CONNECTION_LOST})


def probed_failure_of(error: BaseException, url: str, route: Route | None = None) -> CallFailure:
    """Like ``failure_of``. It also probes the port of an ambiguous failure without a proxy, for some seconds."""
    failure = failure_of(error, url, route)
    if route is not None and route.proxy_address:
        return failure
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if parts.scheme == "http" and failure.kind is FailureKind.CONNECTION_LOST and _speaks_tls(host, port):
        return call_failure(FailureKind.TLS_REQUIRED, address_of(url))
    # Some servers answer plain HTTP on a TLS port with an error page.
    if (
        parts.scheme == "https"
        and failure.kind in _AMBIGUOUS
        and _speaks_http(host, port)
        and not _speaks_tls(host, port)
    ):
        return call_failure(FailureKind.NOT_TLS, address_of(url))
    return failure


def _speaks_tls(host: str, port: int) -> bool:
    """Whether the port begins a TLS handshake, whatever its certificate."""
    try:
        with socket.create_connection((host, port), timeout=_PROBE_TIMEOUT) as connection:
            ssl.create_default_context().wrap_socket(connection, server_hostname=host).close()
    except ssl.SSLCertVerificationError:
        return True
    except ssl.SSLError as error:
        # OpenSSL names an alert of the server so, such as a refused version. Only a TLS server sends alerts.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    return True


def _speaks_http(host: str, port: int) -> bool:
    """Whether the port answers a plain HTTP request, with any status."""
    try:
        with socket.create_connection((host, port), timeout=_PROBE_TIMEOUT) as connection:
            connection.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
            return connection.recv(5) == b"HTTP/"
    except OSError:
        return False
