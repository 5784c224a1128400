"""The address that a server listens on, and the wait until it answers there."""

import contextlib
import os
import socket
from collections.abc import Callable
from time import monotonic

import requests

from app.foundation.outbound.session import bare_session


class BindError(Exception):
    """The address cannot be listened on; the text says which and why."""


def bind(host: str, port: int, backlog: int = 1024) -> socket.socket:
    """A socket that listens there. Raises `BindError`."""
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if not 0 <= port <= 65535:
        # The look-up below would quietly take it modulo 65536.
        raise BindError(f"cannot listen on {where}: a port lies between 0 and 65535")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = found[0]
        return socket.create_server(address, family=family, backlog=backlog)
    except (OSError, UnicodeError) as error:
        reason = str(error)
        if isinstance(error, OSError) and error.errno:
            # The library's own text repeats the address; a failed look-up has a text but no errno that strerror knows.
            reason = str(error.strerror) if isinstance(error, socket.gaierror) else os.strerror(error.errno)
        raise BindError(f"cannot listen on {where}: {reason}") from error


def wait_until_ready(url: str, timeout: float, sleep: Callable[[float], None]) -> bool:
    """Asks `url` again and again until it answers 200; False when it has not done so within `timeout` seconds."""
    end = monotonic() + timeout
    with bare_session() as session:
        while monotonic() < end:
            with contextlib.suppress(requests.RequestException):
                if session.get(url, timeout=2, allow_redirects=False).status_code == 200:
                    return True
            sleep(0.05)
    return False
