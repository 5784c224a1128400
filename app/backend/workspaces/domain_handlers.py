"""Handler of Add Domains, and the normalization of domains."""

import ipaddress
import re

from sqlalchemy import select, update

from app.backend.http.call import Call, Reply
from app.backend.security.tables import AUTH_TOKEN
from app.backend.storage import json_columns
from app.contract import limits
from app.contract.errors import InvalidArgument, ResourceExhausted
from app.contract.workspace import AddDomainsRequest

_PROTOCOL = re.compile(r"\A[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_LABEL = re.compile(r"\A[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\Z")
_PORT = re.compile(r"\A[1-9][0-9]{0,4}\Z")
_MAX_NAME_LENGTH = 253
_MAX_PORT = 65535


def add_domains(call: Call[AddDomainsRequest]) -> Reply:
    """Adds the domains to every auth token of the API key. Returns those that at least one token did not have."""
    domains = dict.fromkeys(
        stripped_domain(text, f"data.domains[{number}]") for number, text in enumerate(call.request.domains)
    )
    of_key = AUTH_TOKEN.c.api_key_id == call.principal.api_key_id
    added: dict[str, None] = {}
    with call.exclusive_write() as connection:
        for row in connection.execute(select(AUTH_TOKEN.c.fingerprint, AUTH_TOKEN.c.domains).where(of_key)).all():
            existing = dict.fromkeys(json_columns.load_list(row.domains))
            new = [domain for domain in domains if domain not in existing]
            if not new:
                continue
            if len(existing) + len(new) > limits.DOMAINS_PER_KEY:
                raise ResourceExhausted(f"data.domains: an API key has at most {limits.DOMAINS_PER_KEY} domains")
            added |= dict.fromkeys(new)
            connection.execute(
                update(AUTH_TOKEN)
                .where(of_key, AUTH_TOKEN.c.fingerprint == row.fingerprint)
                .values(domains=json_columns.dump([*existing, *new]))
            )
    return Reply("Domains added successfully.", {"domainsAdded": list(added)})


def stripped_domain(text: str, field: str) -> str:
    """``https://www.Acme.example/`` as ``acme.example``: lower-case ASCII, without protocol and ``www.``, with a
    leading ``*.`` and a port. Raises ``InvalidArgument`` about ``field``."""
    rest = _PROTOCOL.sub("", text.strip()).removesuffix("/")
    wildcard = "*." if rest.startswith("*.") else ""
    host, colon, port = rest.removeprefix("*.").partition(":")
    host = _ascii_host(host)
    if not wildcard and "." in host.removeprefix("www."):
        # "*.www.acme.example" without "www." would match more, and "www.example" could become a top-level domain.
        host = host.removeprefix("www.")
    valid_host = _is_name(host) and not (wildcard and _is_address(host))
    valid_port = not colon or (_PORT.match(port) and int(port) <= _MAX_PORT)
    if not (valid_host and valid_port):
        raise InvalidArgument(f"{field}: must be a domain like acme.example or *.acme.example")
    return wildcard + host + colon + port


def _ascii_host(host: str) -> str:
    """The host in lower-case ASCII (IDNA), or an empty string."""
    if host.isascii():
        return host.lower()
    try:
        return host.encode("idna").decode().lower()
    except UnicodeError:
        return ""


def _is_name(host: str) -> bool:
    return 0 < len(host) <= _MAX_NAME_LENGTH and all(_LABEL.match(label) for label in host.split("."))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
