"""The domains that an API key is used from: add."""

import ipaddress
import re
from collections.abc import Iterable

from sqlalchemy import Connection, select, update

from app.backend.http.call import Call, Reply
from app.backend.http.dispatch import exclusive_write
from app.backend.security.tables import AUTH_TOKEN
from app.backend.storage import json_sets
from app.contract import limits
from app.contract.errors import InvalidArgument, ResourceExhausted
from app.contract.workspace import AddDomainsRequest

_PROTOCOL = re.compile(r"\A[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_LABEL = re.compile(r"\A[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\Z")
_PORT = re.compile(r"\A[1-9][0-9]{0,4}\Z")
_LONGEST_NAME = 253
_LAST_PORT = 65535


def add_domains(call: Call[AddDomainsRequest]) -> Reply:
    """All auth tokens of the API key get the domains; told is what at least one of them did not have."""
    given = dict.fromkeys(
        stripped_domain(text, f"data.domains[{number}]") for number, text in enumerate(call.request.domains)
    )
    with exclusive_write(call) as connection:
        added = _add(connection, call.principal.api_key_id, given)
    return Reply("Domains added successfully.", {"domainsAdded": list(added)})


def _add(connection: Connection, api_key_id: str, given: Iterable[str]) -> Iterable[str]:
    of_key = AUTH_TOKEN.c.api_key_id == api_key_id
    added: dict[str, None] = {}
    for row in connection.execute(select(AUTH_TOKEN.c.fingerprint, AUTH_TOKEN.c.domains).where(of_key)).all():
        there = json_sets.load_list(row.domains)
        known = set(there)
        new = [domain for domain in given if domain not in known]
        if not new:
            continue
        if len(there) + len(new) > limits.DOMAINS_PER_KEY:
            raise ResourceExhausted(f"data.domains: an API key has at most {limits.DOMAINS_PER_KEY} domains")
        added |= dict.fromkeys(new)
        connection.execute(
            update(AUTH_TOKEN)
            .where(of_key, AUTH_TOKEN.c.fingerprint == row.fingerprint)
            .values(domains=json_sets.dump(there + new))
        )
    return added


def stripped_domain(text: str, field: str) -> str:
    """``https://www.Acme.example/`` as ``acme.example``: lower case, without protocol and ``www.``, in ASCII. A
    leading ``*.`` and a port stay. Raises ``InvalidArgument`` naming ``field`` for what is no domain.
    """
    rest = _PROTOCOL.sub("", text.strip()).removesuffix("/")
    wildcard = rest.startswith("*.")
    host, separator, port = (rest[2:] if wildcard else rest).rpartition(":")
    if not separator:
        host, port = port, ""
    host = _ascii_host(host)
    if not wildcard and "." in host.removeprefix("www."):
        # A wildcard without it would cover more, and what is left may be no more than a top-level domain.
        host = host.removeprefix("www.")
    sound = _is_name(host) and not (wildcard and _is_address(host))
    if not sound or (separator and not (_PORT.match(port) and int(port) <= _LAST_PORT)):
        raise InvalidArgument(f"{field}: must be a domain like acme.example or *.acme.example")
    return ("*." if wildcard else "") + host + separator + port


def _ascii_host(host: str) -> str:
    if host.isascii():
        return host.lower()
    try:
        return host.encode("idna").decode().lower()
    except UnicodeError:
        return ""


def _is_name(host: str) -> bool:
    return 0 < len(host) <= _LONGEST_NAME and all(_LABEL.match(label) for label in host.split("."))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
