"""Binds the address of a server, and waits until a server responds."""

import contextlib
import os
import socket
from collections.abc import Callable
from time import monotonic

import requests

from app.foundation.outbound.session import bare_session
from app.foundation.outbound.urls import bracketed

BACKLOG = 1024
"""The maximum number of connections that wait until the server accepts them."""


class BindError(Exception):
    """The server cannot listen on the address. The text contains the address and the reason."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ``BindError``."""
    address = f"{bracketed(host)}:{port}"
    if not 0 <= port <= 65535:
        # getaddrinfo takes the port modulo 65536.
        raise BindError(f"cannot listen on {address}: a port lies between 0 and 65535")
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, resolved = addresses[0]
        return socket.create_server(resolved, family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = str(error)
        if isinstance(error, OSError) and error.errno:
            # create_server's own text repeats the address. The errno of a failed lookup is unknown to os.strerror.
            reason = str(error.strerror) if isinstance(error, socket.gaierror) else os.strerror(error.errno)
        raise BindError(f"cannot listen on {address}: {reason}") from error


def wait_until_ready(url: str, timeout: float, sleep: Callable[[float], None]) -> bool:
    """Polls ``url`` until it answers 200. False if it does not within ``timeout`` seconds."""
    end = monotonic() + timeout
    with bare_session() as session:
        while monotonic() < end:
            with contextlib.suppress(requests.RequestException):
                if session.get(url, timeout=2, allow_redirects=False).status_code == 200:
                    return True
            sleep(0.05)
    return False
