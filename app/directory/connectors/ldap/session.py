"""A connection to an LDAP server: connecting with TLS, binding, and searching.

TLS certificates are always checked. The library's own configuration (``ldaprc``, ``LDAPTLS_REQCERT``) is overridden.
Errors of the library become a ``ReadError`` that names the setting and the remedy, and contains no password.
"""

import os
import re
import socket
import ssl
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import ldap
import ldap.ldapobject
from ldap.controls import LDAPControl
from ldap.controls.libldap import SimplePagedResultsControl

from app.directory.connector import LoginRefusedError, ReadError
from app.directory.connectors.ldap.settings import LdapConnectionSettings
from app.directory.connectors.ldap.values import LdapEntry, normalized
from app.foundation.files import read_small_file
from app.foundation.outbound.failure import FailureKind, call_failure, failure_of
from app.foundation.outbound.urls import bracketed
from app.foundation.text import printable

SCOPES: Mapping[str, int] = {"base": ldap.SCOPE_BASE, "one": ldap.SCOPE_ONELEVEL, "subtree": ldap.SCOPE_SUBTREE}

EXTENDED_DN = LDAPControl("1.2.840.113556.1.4.529", True, encodedControlValue=bytes.fromhex("3003020101"))
"""Active Directory returns DNs as ``<GUID=…>;<SID=…>;CN=…``, with the GUID as text."""

SHOW_DELETED = LDAPControl("1.2.840.113556.1.4.417", True)
"""Active Directory returns tombstones, too."""

_CA_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
"""The system's certificate authorities, if OpenSSL has no default."""


class ServerUnavailableError(ReadError):
    """The server cannot be reached or does not answer. Another server may."""


class Search(NamedTuple):
    base: str
    filter: str
    attributes: Sequence[str]
    scope: str = "subtree"
    where: str = "base"
    """The setting to name in errors."""
    controls: Sequence[LDAPControl] = ()


class SearchPage(NamedTuple):
    """A page of entries, and the referrals to other servers in it."""

    entries: Sequence[LdapEntry]
    referrals: Sequence[str]


class LdapSession:
    """An open connection. Its methods raise ``ReadError``."""

    def __init__(self, connection: ldap.ldapobject.SimpleLDAPObject, settings: LdapConnectionSettings) -> None:
        """``settings`` name only the server of the connection."""
        self.connection = connection
        self.settings = settings
        self.unavailable: Sequence[str] = ()  # the errors of the servers that were tried before
        self._is_closed = False
        self._root: LdapEntry | None = None

    def pages(self, search: Search, *, one_by_one: bool = False, prefetch: bool = True) -> Iterator[SearchPage]:
        """The results, page by page.

        ``one_by_one``: a page per entry, if whole pages may not fit into memory. ``prefetch``: request the next page
        before this one is consumed. This is not possible if the caller sends other searches in between: libldap loses
        the end of a search that arrives while it waits for another.
        """
        paging = partial(SimplePagedResultsControl, True, self.settings.page_size)
        message: int | None = self.begin(search, paging(""))
        try:
            while message is not None:
                page, controls = self._receive(message, search, complete=not one_by_one)
                cookie = b""
                if controls is not None:
                    message = None
                    cookie = self._cookie(search, controls)
                    if cookie and prefetch:
                        message = self.begin(search, paging(cookie))
                yield page
                if cookie and message is None:
                    message = self.begin(search, paging(cookie))
        finally:
            if message is not None:
                self.abandon(message)

    def _cookie(self, search: Search, controls: Sequence[LDAPControl]) -> bytes:
        """The cookie of the next page. Empty after the last one."""
        for control in controls:
            if control.controlType == SimplePagedResultsControl.controlType:
                return bytes(control.cookie or b"")
        raise ReadError(f"{search.where}: {self.settings.server} does not report whether there are more pages")

    def entries(self, search: Search) -> Sequence[LdapEntry]:
        """The results of a small search, without paging and referrals."""
        return self._receive(self.begin(search), search)[0].entries

    def find(self, search: Search) -> Sequence[LdapEntry]:
        """The same as ``entries``, but empty if the base does not exist or is not visible."""
        try:
            return self.entries(search)
        except ReadError as error:
            if isinstance(error.__cause__, ldap.NO_SUCH_OBJECT | ldap.INSUFFICIENT_ACCESS | ldap.REFERRAL):
                return ()
            raise

    def entry(self, dn: str, attributes: Sequence[str], *, where: str = "base") -> LdapEntry:
        """The entry with a DN. It has no attributes if it does not exist or is not visible."""
        found = self.find(Search(dn, "(objectClass=*)", list(attributes), "base", where))
        return found[0] if found else LdapEntry(dn, {})

    def root(self, *, refresh: bool = False) -> LdapEntry:
        """The server's description of itself (root DSE), cached unless ``refresh``."""
        if self._root is None or refresh:
            names = ["namingContexts", "supportedControl", "highestCommittedUSN", "dsServiceName"]
            self._root = self.entry("", names, where="url")
        return self._root

    def naming_context(self, dn: str) -> str:
        """The naming context of a DN, or the DN itself if the server reports none."""
        name = normalized(dn)
        contexts = [value.decode(errors="replace") for value in self.root().values("namingContexts")]
        parents = [context for context in contexts if f",{name}".endswith("," + normalized(context))]
        return max(parents, key=len, default=dn)

    def begin(self, search: Search, *controls: LDAPControl) -> int:
        """Sends a search, and returns its message id."""
        try:
            message: int = self.connection.search_ext(
                search.base,
                SCOPES[search.scope],
                search.filter,
                list(search.attributes),
                serverctrls=[*controls, *search.controls],
            )
        except ldap.LDAPError as error:
            raise search_error(error, self.settings, search.where) from error
        return message

    def abandon(self, message: int) -> None:
        if not self._is_closed:
            with suppress(ldap.LDAPError):
                self.connection.abandon_ext(message)

    def close(self) -> None:
        self._is_closed = True
        with suppress(ldap.LDAPError):
            self.connection.unbind_ext()

    def _receive(
        self, message: int, search: Search, *, complete: bool = True
    ) -> tuple[SearchPage, Sequence[LDAPControl] | None]:
        """All results of a search, or the next one, and at its end the response controls."""
        try:
            kind, data, _, controls, _, _ = self.connection.result4(
                message, 1 if complete else 0, self.settings.answer_timeout
            )
        except ldap.LDAPError as error:
            if isinstance(error, ldap.TIMEOUT):
                self.abandon(message)
            raise search_error(error, self.settings, search.where) from error
        except UnicodeDecodeError:
            raise ReadError(f"{search.where}: {self.settings.server} returns a DN that is not UTF-8") from None
        entries = [LdapEntry(item[0], item[1]) for item in data if item[0] is not None]
        referrals = [str(url) for item in data if item[0] is None for url in item[1]]
        return SearchPage(entries, referrals), controls if kind == ldap.RES_SEARCH_RESULT else None


@contextmanager
def open_session(settings: LdapConnectionSettings, urls: Sequence[str]) -> Iterator[LdapSession]:
    """A bound connection to the first server that can be reached. Raises ``ReadError``.

    A refused login ends the search for a server: the others would refuse it, too, and lock the account.
    """
    unavailable: list[str] = []
    for url in urls:
        try:
            session = _connected(settings.model_copy(update={"url": url}))
        except ServerUnavailableError as error:
            unavailable.append(str(error))
            continue
        session.unavailable = unavailable
        with closing(session):
            yield session
        return
    raise ServerUnavailableError("; ".join(unavailable))


def _connected(settings: LdapConnectionSettings) -> LdapSession:
    ca_file = _ca_file(settings)
    try:
        connection = ldap.initialize(settings.server)
    except ldap.LDAPError as error:
        raise ReadError(f"url {settings.server}: cannot be used: {message_of(error)}") from error
    session = LdapSession(connection, settings)
    with ExitStack() as closed_on_error:
        closed_on_error.callback(session.close)
        _set_options(connection, settings, ca_file)
        try:
            if settings.starttls:
                connection.start_tls_s()
            if settings.sasl:
                connection.sasl_non_interactive_bind_s(settings.sasl.upper())
            else:
                connection.simple_bind_s(settings.bind_dn, settings.bind_password.get_secret_value())
            # The library's timeout does not apply after a part of an answer has arrived.
            seconds = int(settings.answer_timeout)
            limit = struct.pack("ll", seconds, max(int((settings.answer_timeout - seconds) * 1_000_000), 1))
            with socket.socket(fileno=os.dup(connection.fileno())) as same:
                same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        except (ldap.SERVER_DOWN, ldap.CONNECT_ERROR, ldap.TIMEOUT) as error:
            raise _connect_error(error, settings, ca_file) from error
        except ldap.LDAPError as error:
            raise _bind_error(error, settings) from error
        closed_on_error.pop_all()
    return session


def _ca_file(settings: LdapConnectionSettings) -> str | None:
    """The file of trusted authorities. Raises ``ReadError`` if a file of the settings cannot be read."""
    for name in ("ca_file", "cert_file", "key_file"):
        path: Path | None = getattr(settings, name)
        try:
            if path is not None:
                read_small_file(path)
        except OSError as error:
            reason = printable(f"{path}: {error.strerror or error}", limit=300)
            raise ReadError(f"{name} {reason}; name a file that can be read") from None
    if settings.ca_file is not None:
        return str(settings.ca_file)
    known = ssl.get_default_verify_paths().cafile
    return next((path for path in (known, *_CA_BUNDLES) if path and Path(path).is_file()), None)


def _set_options(
    connection: ldap.ldapobject.SimpleLDAPObject, settings: LdapConnectionSettings, ca_file: str | None
) -> None:
    connection.set_option(ldap.OPT_PROTOCOL_VERSION, ldap.VERSION3)
    # Referrals are not followed: other servers must not get the password.
    connection.set_option(ldap.OPT_REFERRALS, 0)
    connection.set_option(ldap.OPT_NETWORK_TIMEOUT, settings.connect_timeout)
    connection.set_option(ldap.OPT_TIMEOUT, min(settings.connect_timeout, settings.answer_timeout))
    if urlsplit(settings.server).scheme == "ldapi":
        return
    files = {"ca_file": ca_file, "cert_file": settings.cert_file, "key_file": settings.key_file}
    try:
        connection.set_option(ldap.OPT_X_TLS_REQUIRE_CERT, ldap.OPT_X_TLS_DEMAND)
        connection.set_option(ldap.OPT_X_TLS_PROTOCOL_MIN, 0x303)
        if ca_file is not None:
            connection.set_option(ldap.OPT_X_TLS_CACERTFILE, ca_file)
        if settings.cert_file is not None:
            connection.set_option(ldap.OPT_X_TLS_CERTFILE, str(settings.cert_file))
            connection.set_option(ldap.OPT_X_TLS_KEYFILE, str(settings.key_file))
        # Last: the options above apply to a new context only.
        connection.set_option(ldap.OPT_X_TLS_NEWCTX, 0)
    except (ldap.LDAPError, ValueError):
        names = ", ".join(f"{name} {path}" for name, path in files.items() if path)
        raise ReadError(f"{names}: cannot be used for TLS; each should be a PEM file") from None


# Errors.

_UNAVAILABLE = (ldap.SERVER_DOWN, ldap.CONNECT_ERROR, ldap.TIMEOUT, ldap.UNAVAILABLE, ldap.BUSY)

_SEARCH_ERRORS = {
    ldap.SIZELIMIT_EXCEEDED: "{where}: the server's size limit ended the search, so the result is incomplete; have the"
    " limit raised for {reader} (OpenLDAP: limits … size.prtotal=unlimited)",
    ldap.ADMINLIMIT_EXCEEDED: "{where}: a limit of the server ended the search, so the result is incomplete: {message};"
    " have it raised for {reader}, or lower page_size",
    ldap.TIMELIMIT_EXCEEDED: "{where}: the server's time limit ended the search, so the result is incomplete; have the"
    " limit raised for {reader}, or index the attributes of the filter",
    ldap.TIMEOUT: "{where}: {server} gave no answer within {seconds:g} s; check the server, or raise answer_timeout",
    ldap.NO_SUCH_OBJECT: "{base}: does not exist, or {reader} may not see it; correct it, or grant the right",
    ldap.REFERRAL: "{base}: this server refers to another one for it, which is not followed ({message}); let url name"
    " that server, or correct the base",
    ldap.INVALID_DN_SYNTAX: '{base}: is no DN; it has the form "OU=People,DC=corp,DC=example"',
    ldap.FILTER_ERROR: "{where}.filter: is no LDAP filter; it has the form (&(objectClass=person)(mail=*))",
    ldap.INSUFFICIENT_ACCESS: "{where}: {reader} may not search here; grant the right",
    ldap.OPERATIONS_ERROR: "{where}: {server} answers: {message}{bind_hint}",
    ldap.UNAVAILABLE_CRITICAL_EXTENSION: "{where}: the server does not support a control that preset {preset} uses"
    " ({message}); choose the preset of this server",
    ldap.SERVER_DOWN: "{where}: the connection to {server} was lost before the end of the search",
}

_AD_LOGIN_ERRORS = {
    "525": "the server knows no such name; correct bind_dn",
    "52e": "the name or the password is wrong; correct bind_dn or bind_password",
    "530": "this account may not log in at this time",
    "531": "this account may not log in from this machine",
    "532": "the account's password has expired; change it",
    "533": "the account is disabled; enable it, or name another in bind_dn",
    "701": "the account has expired",
    "773": "the account must change its password first; give it one that does not expire",
    "775": "the account is locked; unlock it",
}
"""Codes that Active Directory adds to "invalid credentials" (``data 52e``)."""

_STARTTLS_REQUEST = bytes.fromhex("301d02010177188016") + b"1.3.6.1.4.1.1466.20037"


def message_of(error: ldap.LDAPError) -> str:
    """The message of the library and of the server."""
    details = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
    desc, info = str(details.get("desc", "") or type(error).__name__), str(details.get("info", "") or "").strip()
    if "unknown error code" in info or info == desc:
        info = ""
    return printable(f"{desc} ({info})" if info else desc, limit=200)


def search_error(error: ldap.LDAPError, settings: LdapConnectionSettings, where: str) -> ReadError:
    """The error of a search of the setting ``where`` (``sets.users``)."""
    one = settings.sets_in_force().get(where.removeprefix("sets."))
    base = f"base {printable(settings.base, limit=100)}"
    if one is not None and one.base is not None:
        base = f"{where}.base {printable(one.base, limit=100)}"
    elif one is not None and one.below:
        base = f"{where}.below {printable(one.below, limit=100)}, relative to {base}"
    anonymous = f"sasl {settings.sasl}" if settings.sasl else "the anonymous reader"
    text = next(
        (text for kind, text in _SEARCH_ERRORS.items() if isinstance(error, kind)),
        "{where}: {server} answers: {message}",
    )
    return (ServerUnavailableError if isinstance(error, _UNAVAILABLE) else ReadError)(
        text.format(
            where=where,
            base=base,
            message=message_of(error),
            reader=printable(settings.bind_dn, limit=100) or anonymous,
            server=settings.server,
            seconds=settings.answer_timeout,
            preset=settings.preset,
            bind_hint="" if settings.bind_dn or settings.sasl else "; it may require bind_dn",
        )
    )


def _bind_error(error: ldap.LDAPError, settings: LdapConnectionSettings) -> ReadError:
    message, bind_dn = message_of(error), printable(settings.bind_dn, limit=100)
    if isinstance(error, ldap.INVALID_CREDENTIALS):
        code = re.search(r"\bdata ([0-9a-f]{3})\b", str(error))
        reason = f"bind_dn {bind_dn}: {_AD_LOGIN_ERRORS.get(code[1] if code else '', _AD_LOGIN_ERRORS['52e'])}"
        if settings.sasl:
            reason = f"sasl: {settings.sasl}: the server does not accept this identity: {message}"
        return LoginRefusedError(
            f"login refused: {reason} (polls stop after three refused logins, so that the account is not locked; each"
            " sync still tries once)"
        )
    if isinstance(error, ldap.PROTOCOL_ERROR):
        return ReadError(f"{'starttls' if settings.starttls else 'url'}: the server refuses: {message}")
    if isinstance(error, ldap.STRONG_AUTH_REQUIRED | ldap.CONFIDENTIALITY_REQUIRED):
        return ReadError(f"url: the server requires TLS ({message}); use ldaps://, or starttls: true")
    if isinstance(error, ldap.INAPPROPRIATE_AUTH):
        return ReadError(f"bind_dn: the server does not accept this kind of login: {message}; name another reader")
    if isinstance(error, ldap.LOCAL_ERROR | ldap.AUTH_UNKNOWN | ldap.AUTH_METHOD_NOT_SUPPORTED):
        gssapi = settings.sasl == "gssapi"
        remedy = "check that KRB5CCNAME names a valid ticket (kinit -k)" if gssapi else "check what the server supports"
        return ReadError(f"sasl: {settings.sasl} did not work: {message}; {remedy}")
    if isinstance(error, ldap.INVALID_DN_SYNTAX):
        return ReadError(f"bind_dn {bind_dn}: is no DN; correct it")
    return search_error(error, settings, "bind_dn")


def _connect_error(
    error: ldap.LDAPError, settings: LdapConnectionSettings, ca_file: str | None
) -> ServerUnavailableError:
    """The error of a failed connection. The library reports no cause, so this connects again to find it."""
    parts = urlsplit(settings.server)
    if parts.scheme == "ldapi":
        return ServerUnavailableError(f"url {settings.server}: no server listens at this socket; check that it runs")
    host, port = parts.hostname or "", parts.port or (636 if parts.scheme == "ldaps" else 389)
    reason = _diagnosed(host, port, settings, ca_file)
    if not reason and isinstance(error, ldap.TIMEOUT):
        reason = _timed_out(f"{host}:{port}", min(settings.connect_timeout, settings.answer_timeout))
    if not reason and host.lower() == "localhost" and (settings.starttls or parts.scheme == "ldaps"):
        reason = (
            f"url: the TLS certificate of localhost:{port} is for another host than {socket.gethostname()}; the LDAP"
            " library takes localhost for this machine's name, so let url name the host that the certificate is for"
        )
    return ServerUnavailableError(reason or f"url: the connection to {host}:{port} was lost; check the server")


_UNSPECIFIC = (FailureKind.CONNECTION_LOST, FailureKind.OTHER)
"""Failures whose message needs the system's reason."""


def _diagnosed(host: str, port: int, settings: LdapConnectionSettings, ca_file: str | None) -> str:
    """The cause of a failed connection. Empty if TCP and TLS succeed."""
    address, timeout = f"{bracketed(host)}:{port}", min(settings.connect_timeout, 5)
    try:
        with socket.create_connection((host, port), timeout=timeout) as connection:
            if settings.starttls:
                connection.sendall(_STARTTLS_REQUEST)
                if not connection.recv(4096):
                    return f"starttls: {address} closes the connection; check that it is an LDAP port"
            if settings.starttls or settings.server.startswith("ldaps:"):
                context = ssl.create_default_context(cafile=ca_file)
                if settings.cert_file and settings.key_file:
                    context.load_cert_chain(settings.cert_file, settings.key_file)
                context.wrap_socket(connection, server_hostname=host).close()
    except TimeoutError:
        return _timed_out(address, timeout)
    except OSError as error:
        failure = failure_of(error, f"ldap://{address}")
        if failure.kind is FailureKind.NOT_TLS:
            # Its advice is for HTTP.
            failure = call_failure(FailureKind.HANDSHAKE, address, "the response is not TLS")
        what = f"ca_file {ca_file}" if failure.kind is FailureKind.CA_FILE_UNUSABLE else address
        where = "" if what in failure.message else f"{what}: "
        cause = f" ({error.strerror})" if failure.kind in _UNSPECIFIC and error.strerror else ""
        return f"{where}{failure.message}{cause}; {failure.advice(address='url', section='')}"
    return ""


def _timed_out(address: str, seconds: float) -> str:
    return (
        f"url: {address} gave no answer within {seconds:g} s (connect_timeout, answer_timeout); check that it runs, and"
        " the firewalls on the way"
    )
