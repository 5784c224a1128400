"""Trouble with a directory, in one line: what keeps it from being read, the setting, and the remedy.

No text holds a password: what servers say is shown printable and short, and it is not they who know it.
"""

import re
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import ldap

from app.directory.connectors.ldap.settings import LdapConnectionSettings
from app.foundation.files import read_small_file
from app.foundation.text import printable


class LdapTroubleError(Exception):
    """Nothing, or not all, could be read; the text is one line."""


class ServerAwayError(LdapTroubleError):
    """The server cannot be reached, or does not answer; another one may."""


class LoginRefusedError(LdapTroubleError):
    """The server refused the name or the password."""


class CursorRefusedError(Exception):
    """Changes since a cursor cannot be had; the text is one line."""


AD_REFUSALS = {
    "525": "the server knows nobody by this name; mend bind_dn",
    "52e": "the name or the password is wrong; mend bind_dn or bind_password",
    "530": "this account may not log in at this time",
    "531": "this account may not log in from this machine",
    "532": "the account's password has expired; give it a new one",
    "533": "the account is disabled; enable it, or name another in bind_dn",
    "701": "the account has expired",
    "773": "the account has to change its password first; give it one that lasts",
    "775": "the account is locked; unlock it",
}
"""What Active Directory adds to "invalid credentials" (``data 52e``)."""

_AD_DATA = re.compile(r"\bdata ([0-9a-f]{3})\b")


def said_of(error: ldap.LDAPError) -> str:
    """What library and server say of an error."""
    details = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
    desc, info = str(details.get("desc", "") or type(error).__name__), str(details.get("info", "") or "")
    # The library's word for "nothing is known", and errors of calls before this one.
    info = "" if "unknown error code" in info or info == desc else info
    return printable(f"{desc} ({info.strip()})" if info.strip() else desc, limit=200)


def refused_bind(error: ldap.LDAPError, settings: LdapConnectionSettings) -> LdapTroubleError:
    """Of a bind that did not succeed."""
    text = said_of(error)
    if isinstance(error, ldap.INVALID_CREDENTIALS):
        return LoginRefusedError(
            f"login refused: {_refused_login(error, settings, text)} (polls stop after three refused logins, so that"
            " the account is not locked; each sync still tries once)"
        )
    if isinstance(error, ldap.STRONG_AUTH_REQUIRED | ldap.CONFIDENTIALITY_REQUIRED):
        return LdapTroubleError(f"url: the server wants TLS ({text}); use ldaps://, or starttls: true")
    if isinstance(error, ldap.INAPPROPRIATE_AUTH):
        return LdapTroubleError(f"bind_dn: the server does not let this one in this way: {text}; name another reader")
    if isinstance(error, ldap.LOCAL_ERROR | ldap.AUTH_UNKNOWN | ldap.AUTH_METHOD_NOT_SUPPORTED):
        remedy = "see that there is a ticket (kinit -k) and KRB5CCNAME names it" if settings.sasl == "gssapi" else ""
        return LdapTroubleError(
            f"sasl: {settings.sasl} did not work: {text}; {remedy or 'see what the server supports'}"
        )
    if isinstance(error, ldap.INVALID_DN_SYNTAX):
        return LdapTroubleError(f"bind_dn {printable(settings.bind_dn, limit=100)}: is no DN; mend it")
    return of_search(error, settings, where="bind_dn")


def _refused_login(error: ldap.LDAPError, settings: LdapConnectionSettings, text: str) -> str:
    if settings.sasl:
        return f"sasl: {settings.sasl}: the server does not accept who this is: {text}"
    found = _AD_DATA.search(str(error))
    why = AD_REFUSALS.get(found[1]) if found else None
    why = why or "the name or the password is wrong; mend bind_dn or bind_password"
    return f"bind_dn {printable(settings.bind_dn, limit=100)}: {why}"


def of_search(error: ldap.LDAPError, settings: LdapConnectionSettings, *, where: str) -> LdapTroubleError:
    """Of a search of the settings ``where`` (``sets.users``)."""
    text = said_of(error)
    trouble = ServerAwayError if isinstance(error, _AWAY) else LdapTroubleError
    for kind, says in _SAYS:
        if isinstance(error, kind):
            return trouble(says(settings, where, text))
    return trouble(f"{where}: {settings.server} answers: {text}")


def _base(settings: LdapConnectionSettings, where: str) -> str:
    one = settings.sets_in_force().get(where.removeprefix("sets."))
    if one is not None and one.base is not None:
        return f"{where}.base {printable(one.base, limit=100)}"
    if one is not None and one.below:
        return f"{where}.below {printable(one.below, limit=100)}, seen from base {printable(settings.base, limit=100)}"
    return f"base {printable(settings.base, limit=100)}"


_AWAY = (ldap.SERVER_DOWN, ldap.CONNECT_ERROR, ldap.TIMEOUT, ldap.UNAVAILABLE, ldap.BUSY)

_Says = Callable[[LdapConnectionSettings, str, str], str]

_SAYS: tuple[tuple[type[ldap.LDAPError], _Says], ...] = (
    (
        ldap.SIZELIMIT_EXCEEDED,
        lambda settings, where, _: (
            f"{where}: the server's size limit ended the search, so not all was told; have the limit lifted for"
            f" {_reader(settings)} (OpenLDAP: limits … size.prtotal=unlimited)"
        ),
    ),
    (
        ldap.ADMINLIMIT_EXCEEDED,
        lambda settings, where, text: (
            f"{where}: a limit of the server ended the search, so not all was told: {text}; have it lifted for"
            f" {_reader(settings)}, or lower page_size"
        ),
    ),
    (
        ldap.TIMELIMIT_EXCEEDED,
        lambda settings, where, _: (
            f"{where}: the server's time limit ended the search, so not all was told; have the limit lifted for"
            f" {_reader(settings)}, or see that the filter's attributes are indexed"
        ),
    ),
    (
        ldap.TIMEOUT,
        lambda settings, where, _: (
            f"{where}: {settings.server} gave no answer within {settings.answer_timeout:g} s; see how it is, or raise"
            " answer_timeout"
        ),
    ),
    (
        ldap.NO_SUCH_OBJECT,
        lambda settings, where, _: (
            f"{_base(settings, where)}: is not there, or {_reader(settings)} may not see it; mend it, or have the right"
            " given"
        ),
    ),
    (
        ldap.REFERRAL,
        lambda settings, where, text: (
            f"{_base(settings, where)}: this server does not hold it and refers to another, which is not followed"
            f" ({text}); let url name the one that holds it, or mend the base"
        ),
    ),
    (
        ldap.INVALID_DN_SYNTAX,
        lambda settings, where, _: (
            f'{_base(settings, where)}: is no DN; it has the form "OU=People,DC=corp,DC=example"'
        ),
    ),
    (
        ldap.FILTER_ERROR,
        lambda _, where, __: f"{where}.filter: is no LDAP filter; mend it, as in (&(objectClass=person)(mail=*))",
    ),
    (
        ldap.INSUFFICIENT_ACCESS,
        lambda settings, where, _: f"{where}: {_reader(settings)} may not search here; have the right given",
    ),
    (
        ldap.OPERATIONS_ERROR,
        lambda settings, where, text: (
            f"{where}: {settings.server} answers: {text}"
            + ("" if settings.bind_dn or settings.sasl else "; it may want a bind_dn")
        ),
    ),
    (
        ldap.UNAVAILABLE_CRITICAL_EXTENSION,
        lambda settings, where, text: (
            f"{where}: the server does not support what preset {settings.preset} asks for ({text}); see that the preset"
            " is that of this server"
        ),
    ),
    (
        ldap.SERVER_DOWN,
        lambda settings, where, _: f"{where}: the connection to {settings.server} was lost before all was told",
    ),
)


def _reader(settings: LdapConnectionSettings) -> str:
    return printable(settings.bind_dn, limit=100) or (
        f"sasl {settings.sasl}" if settings.sasl else "the anonymous reader"
    )


_STARTTLS = bytes.fromhex("301d02010177188016") + b"1.3.6.1.4.1.1466.20037"
"""The request of an LDAP client to begin TLS."""


def unreachable(error: ldap.LDAPError, settings: LdapConnectionSettings, ca_file: str | None) -> ServerAwayError:
    """Of a connection that was not made. The library knows no reason; so it is tried once more by hand."""
    parts = urlsplit(settings.server)
    if parts.scheme == "ldapi":
        return ServerAwayError(f"url {settings.server}: nobody listens at this socket; see that the server runs")
    host, port = parts.hostname or "", parts.port or (636 if parts.scheme == "ldaps" else 389)
    found = _by_hand(host, port, settings, ca_file)
    if not found and isinstance(error, ldap.TIMEOUT):
        found = _silent(f"{host}:{port}", min(settings.connect_timeout, settings.answer_timeout))
    if not found and host.lower() == "localhost" and (settings.starttls or parts.scheme == "ldaps"):
        found = (
            f"url: the TLS certificate of localhost:{port} is for another host than {socket.gethostname()}; the LDAP"
            " library takes localhost for this machine's name, so let url name the host that the certificate is for"
        )
    return ServerAwayError(found or f"url: the connection to {host}:{port} was lost; see how the server is")


def _by_hand(host: str, port: int, settings: LdapConnectionSettings, ca_file: str | None) -> str:
    """What goes wrong on the way to TLS; empty: nothing does."""
    address = f"{host}:{port}"
    patience = min(settings.connect_timeout, 5)
    try:
        with socket.create_connection((host, port), timeout=patience) as made:
            if settings.starttls:
                made.sendall(_STARTTLS)
                if not made.recv(4096):
                    return f"starttls: {address} hangs up instead; see that url names a port that speaks LDAP"
            if settings.starttls or settings.server.startswith("ldaps:"):
                context = ssl.create_default_context(cafile=ca_file)
                if settings.cert_file and settings.key_file:
                    context.load_cert_chain(settings.cert_file, settings.key_file)
                context.wrap_socket(made, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        return _of_certificate(error, address, settings)
    except ssl.SSLError as error:
        if error.library == "X509" or error.reason == "NO_CERTIFICATE_OR_CRL_FOUND":
            return f"ca_file {ca_file}: holds no certificate; name a PEM file"
        reason = (error.reason or "the connection ended").replace("_", " ").lower()
        return f"url: {address} and this machine did not agree on TLS ({reason}); see that it is a port for TLS"
    except socket.gaierror as error:
        return f"url: the name {host} cannot be resolved ({error.strerror}); mend url"
    except TimeoutError:
        return _silent(address, patience)
    except OSError as error:
        return f"url: no connection to {address}: {error.strerror or error}; see that it runs there"
    return ""


def _silent(address: str, seconds: float) -> str:
    return (
        f"url: {address} gave no answer within {seconds:g} s (connect_timeout, answer_timeout); see that it runs, and"
        " that no firewall is in the way"
    )


def _of_certificate(error: ssl.SSLCertVerificationError, address: str, settings: LdapConnectionSettings) -> str:
    # Set by the standard library, which an error made by hand would lack.
    code, message = getattr(error, "verify_code", 0), getattr(error, "verify_message", "")
    if code in (62, 64):
        host = address.rpartition(":")[0]
        return f"url: the TLS certificate of {address} is not for {host}; let url name the host that it is for"
    if code in (9, 10):
        return f"url: the TLS certificate of {address} is not valid now ({message}); have it renewed there"
    trusted = f"ca_file {settings.ca_file} has" if settings.ca_file else "this machine knows"
    return (
        f"ca_file: the TLS certificate of {address} is not trusted ({message}): {trusted} not the authority that signed"
        " it; name a PEM file with that authority"
    )


def unreadable(path: Path | None) -> str:
    """Why a file of the settings cannot be read; empty: it can."""
    if path is None:
        return ""
    try:
        read_small_file(path)
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return ""
