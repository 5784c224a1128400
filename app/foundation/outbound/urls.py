"""URLs of peers: whether one is usable, whether it stays on this machine, and its address."""

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

_PRINTABLE_ASCII = re.compile(r"[!-~]+")


def is_http_url(text: str) -> bool:
    """Whether the text is an http or https URL with a host and a valid port."""
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def checked_url(text: str, *, credentials: str, query: bool = False) -> str:
    """An http or https URL of printable ASCII, without a user, and unless ``query``, without a query and a fragment.

    Raises ``ValueError``, whose message does not contain the URL. ``credentials``: where they belong instead.
    """
    if not is_http_url(text) or not _PRINTABLE_ASCII.fullmatch(text):
        raise ValueError("must be an http or https URL, such as https://HOST")
    parts = urlsplit(text)
    if "@" in parts.netloc:
        raise ValueError(f"must not contain a user name or password; credentials {credentials}")
    if not query and (parts.query or parts.fragment):
        raise ValueError(f"must not have a query or fragment; credentials {credentials}")
    return text


def is_loopback(url: str) -> bool:
    """Whether the URL's host is this machine: a loopback address, or ``localhost``.

    Names below ``localhost`` are not: only browsers resolve them without a query to a DNS server.
    """
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def is_plaintext(url: str, proxy: str = "") -> bool:
    """Whether calls to the URL leave this machine without TLS. ``proxy``: the URL of their proxy, if there
    is one. Calls to this machine go through it too."""
    return urlsplit(url).scheme in {"http", "ldap"} and not all(map(is_loopback, filter(None, (url, proxy))))


def address_of(url: str) -> str:
    """``host:port`` of a valid URL."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{bracketed(parts.hostname or '')}:{port}"


def bracketed(host: str) -> str:
    """The host as in a URL: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host else host


def local_host(host: str) -> str:
    """The host, as in a URL, at which this machine reaches a server that listens on ``host``."""
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, bracketed(host))  # noqa: S104
