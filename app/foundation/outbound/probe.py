"""The probe of a port: whether it speaks plain HTTP or TLS, where a failure alone does not tell the two apart."""

import socket
import ssl
from urllib.parse import urlsplit

from app.foundation.outbound.failure import CallFailure, FailureKind, failure_of, no_tls, only_tls
from app.foundation.outbound.route import Route, address_of

_PATIENCE = 2.0


def examined_failure(error: BaseException, url: str, route: Route | None = None) -> CallFailure:
    """As ``failure_of``; where the other side hung up, or never took up TLS, its port is asked what it speaks.

    May take some seconds more.
    """
    failure = failure_of(error, url, route)
    if route is not None and route.proxy_address:
        return failure
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if parts.scheme == "http" and failure.kind is FailureKind.CUT and speaks_tls(host, port):
        return only_tls(address_of(url))
    looks_like_http = parts.scheme == "https" and failure.kind in {
        FailureKind.HANDSHAKE,
        FailureKind.NO_TLS,
        FailureKind.CUT,
    }
    # Some servers answer plain HTTP at a TLS port, to say that this is one.
    if looks_like_http and speaks_http(host, port) and not speaks_tls(host, port):
        return no_tls(address_of(url))
    return failure


def speaks_tls(host: str, port: int) -> bool:
    """Whether the port takes up TLS, whatever its certificate is worth."""
    try:
        with socket.create_connection((host, port), timeout=_PATIENCE) as made:
            ssl.create_default_context().wrap_socket(made, server_hostname=host).close()
    except ssl.SSLCertVerificationError:
        return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    return True


def speaks_http(host: str, port: int) -> bool:
    """Whether the port answers a plain HTTP request, with whatever status."""
    try:
        with socket.create_connection((host, port), timeout=_PATIENCE) as made:
            made.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
            return made.recv(5) == b"HTTP/"
    except OSError:
        return False
