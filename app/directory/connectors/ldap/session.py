"""A connection to a server: opened, made safe, bound, asked, and closed with whatever it still has to answer.

TLS is checked, always: the library's own configuration (``ldaprc``, ``LDAPTLS_REQCERT``) is overruled, and options of
TLS count only once a new context was asked for, which is therefore the last of them.
"""

import os
import socket
import ssl
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import ldap
import ldap.ldapobject
import ldap.sasl
from ldap.controls import LDAPControl
from ldap.controls.libldap import SimplePagedResultsControl

from app.directory.connectors.ldap.names import normalized
from app.directory.connectors.ldap.settings import LdapConnectionSettings
from app.directory.connectors.ldap.trouble import (
    LdapTroubleError,
    ServerAwayError,
    of_search,
    refused_bind,
    said_of,
    unreachable,
    unreadable,
)
from app.foundation.text import printable

SCOPES: Mapping[str, int] = {"base": ldap.SCOPE_BASE, "one": ldap.SCOPE_ONELEVEL, "subtree": ldap.SCOPE_SUBTREE}

EXTENDED_DN = LDAPControl("1.2.840.113556.1.4.529", True, encodedControlValue=bytes.fromhex("3003020101"))
"""Asks Active Directory to write DNs as ``<GUID=…>;<SID=…>;CN=…``, with the GUID as text."""

SHOW_DELETED = LDAPControl("1.2.840.113556.1.4.417", True)
"""Asks Active Directory for tombstones, too."""

_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
"""Where systems keep the authorities that they trust, if OpenSSL does not know it."""


class LdapEntry(NamedTuple):
    """An entry as the server gives it."""

    dn: str
    attributes: Mapping[str, Sequence[bytes]]


class Search(NamedTuple):
    """What is searched for."""

    base: str
    filter: str
    attributes: Sequence[str]
    scope: str = "subtree"
    where: str = "base"
    """The setting that is to be mended when it goes wrong."""
    controls: Sequence[LDAPControl] = ()


class SearchPage(NamedTuple):
    """Some entries, and the references to other servers that came with them."""

    entries: Sequence[LdapEntry]
    referrals: Sequence[str]


class LdapSession:
    """An open connection. Its methods raise ``LdapTroubleError``."""

    def __init__(self, connection: ldap.ldapobject.SimpleLDAPObject, settings: LdapConnectionSettings) -> None:
        self.connection = connection
        self.settings = settings
        self.away: Sequence[str] = ()
        """Why servers were not read that are tried before this one."""
        self._is_closed = False
        self._root: Mapping[str, Sequence[bytes]] | None = None

    def pages(self, search: Search, *, one_by_one: bool = False, ahead: bool = True) -> Iterator[SearchPage]:
        """All that is found, page by page.

        ``one_by_one``: each entry as it comes, because a page of large ones would not fit into memory. Given up in the
        middle, it tells the server so. ``ahead``: while a page is looked at, the server makes the next. Not for who
        asks for something else meanwhile: libldap loses the end of a search that comes while it waits for another's.
        """
        waiting: int | None = self.begin(search, self._paging(""))
        try:
            while waiting is not None:
                page, controls = self._answer(waiting, search, whole=not one_by_one)
                cookie = b""
                if controls is not None:
                    waiting = None
                    cookie = self._cookie(search, controls)
                    if cookie and ahead:
                        waiting = self.begin(search, self._paging(cookie))
                yield page
                if cookie and waiting is None:
                    waiting = self.begin(search, self._paging(cookie))
        finally:
            if waiting is not None:
                self.give_up(waiting)

    def _cookie(self, search: Search, controls: Sequence[LDAPControl]) -> bytes:
        """What the next page is asked for with; empty: this was the last."""
        for one in controls:
            if one.controlType == SimplePagedResultsControl.controlType:
                return bytes(one.cookie or b"")
        raise LdapTroubleError(
            f"{search.where}: {self.settings.server} answers a search in pages without saying whether there are more;"
            " it cannot be read whole"
        )

    def entries(self, search: Search) -> Sequence[LdapEntry]:
        """What a search finds that has a handful of results, unpaged; references to others are left out."""
        return self._answer(self.begin(search), search)[0].entries

    def find(self, search: Search) -> Sequence[LdapEntry]:
        """As ``entries``; nothing, where the base is not there or may not be seen."""
        try:
            return self.entries(search)
        except LdapTroubleError as error:
            if isinstance(error.__cause__, ldap.NO_SUCH_OBJECT | ldap.INSUFFICIENT_ACCESS | ldap.REFERRAL):
                return ()
            raise

    def entry(self, dn: str, attributes: Sequence[str], *, where: str = "base") -> LdapEntry | None:
        """One entry by its DN; None: it is not there, or may not be seen."""
        found = self.find(Search(dn, "(objectClass=*)", list(attributes), "base", where))
        return found[0] if found else None

    def root(self) -> Mapping[str, Sequence[bytes]]:
        """What the server says of itself."""
        if self._root is None:
            names = ["namingContexts", "supportedControl", "highestCommittedUSN", "dsServiceName"]
            found = self.entry("", names, where="url")
            self._root = {} if found is None else found.attributes
        return self._root

    def forget_root(self) -> None:
        """What the server says of itself is asked anew."""
        self._root = None

    def supports(self, control: str) -> bool:
        """Whether the server knows a control."""
        return control.encode() in self.root().get("supportedControl", ())

    def naming_context(self, dn: str) -> str:
        """The naming context that a DN lies in; the DN itself, if the server tells of none."""
        sought = normalized(dn)
        contexts = [one.decode(errors="replace") for one in self.root().get("namingContexts", ())]
        around = [one for one in contexts if sought == normalized(one) or sought.endswith("," + normalized(one))]
        return max(around, key=len, default=dn)

    def begin(self, search: Search, *controls: LDAPControl) -> int:
        """Sends a search, and returns the number by which its answers are known."""
        try:
            message: int = self.connection.search_ext(
                search.base,
                SCOPES[search.scope],
                search.filter,
                list(search.attributes),
                serverctrls=[*controls, *search.controls],
            )
        except ldap.LDAPError as error:
            raise of_search(error, self.settings, where=search.where) from error
        return message

    def give_up(self, message: int) -> None:
        """Tells the server that the answers to a search are not wanted any more."""
        if not self._is_closed:
            with suppress(ldap.LDAPError):
                self.connection.abandon_ext(message)

    def close(self) -> None:
        """Ends the connection, with what is still to be answered."""
        self._is_closed = True
        with suppress(ldap.LDAPError):
            self.connection.unbind_ext()

    def _paging(self, cookie: bytes | str) -> SimplePagedResultsControl:
        return SimplePagedResultsControl(True, size=self.settings.page_size, cookie=cookie)

    def _answer(
        self, message: int, search: Search, *, whole: bool = True
    ) -> tuple[SearchPage, Sequence[LDAPControl] | None]:
        """What comes of a search: all of it, or the next piece; and the controls that come with the last."""
        try:
            kind, data, _, controls, _, _ = self.connection.result4(
                message, 1 if whole else 0, self.settings.answer_timeout
            )
        except ldap.LDAPError as error:
            if isinstance(error, ldap.TIMEOUT):
                self.give_up(message)
            raise of_search(error, self.settings, where=search.where) from error
        except UnicodeDecodeError:
            raise LdapTroubleError(
                f"{search.where}: {self.settings.server} names an entry in bytes that are not text"
            ) from None
        # A reference to another server has no DN.
        entries = [LdapEntry(one[0], one[1]) for one in data if one[0] is not None]
        page = SearchPage(entries, [str(url) for one in data if one[0] is None for url in one[1]])
        return page, controls if kind == ldap.RES_SEARCH_RESULT else None


@contextmanager
def opened(settings: LdapConnectionSettings, urls: Sequence[str]) -> Iterator[LdapSession]:
    """A connection to the first of the servers that can be reached, on which the reader is bound.

    A server that refuses the login ends the search: the others would refuse it, too, and lock the account. Raises
    ``LdapTroubleError``.
    """
    away: list[str] = []
    for url in urls:
        try:
            session = _opened(settings.model_copy(update={"url": url}))
        except ServerAwayError as error:
            away.append(str(error))
            continue
        session.away = away
        with closing(session):
            yield session
        return
    raise ServerAwayError("; ".join(away))


def _opened(settings: LdapConnectionSettings) -> LdapSession:
    ca_file = _authorities(settings)
    try:
        connection = ldap.initialize(settings.server)
    except ldap.LDAPError as error:
        raise LdapTroubleError(f"url {settings.server}: cannot be used: {said_of(error)}") from error
    session = LdapSession(connection, settings)
    with ExitStack() as closed_unless_bound:
        closed_unless_bound.callback(session.close)
        _prepare(connection, settings, ca_file)
        try:
            if settings.starttls:
                connection.start_tls_s()
            _bind(connection, settings)
            _limit_waiting(connection, settings)
        except (ldap.SERVER_DOWN, ldap.CONNECT_ERROR, ldap.TIMEOUT) as error:
            raise unreachable(error, settings, ca_file) from error
        except ldap.PROTOCOL_ERROR as error:
            where = "starttls" if settings.starttls else "url"
            raise LdapTroubleError(f"{where}: the server refuses: {said_of(error)}") from error
        except ldap.LDAPError as error:
            raise refused_bind(error, settings) from error
        closed_unless_bound.pop_all()
    return session


def _limit_waiting(connection: ldap.ldapobject.SimpleLDAPObject, settings: LdapConnectionSettings) -> None:
    """Limits each wait for bytes. The timeout of the library does not apply after a part of an answer."""
    seconds = int(settings.answer_timeout)
    limit = struct.pack("ll", seconds, max(int((settings.answer_timeout - seconds) * 1_000_000), 1))
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def _authorities(settings: LdapConnectionSettings) -> str | None:
    """The file with the authorities to trust; files of the settings are looked at."""
    for name in ("ca_file", "cert_file", "key_file"):
        if reason := unreadable(getattr(settings, name)):
            raise LdapTroubleError(f"{name} {printable(reason, limit=300)}; name a file that can be read")
    if settings.ca_file is not None:
        return str(settings.ca_file)
    known = ssl.get_default_verify_paths().cafile
    return next((one for one in (known, *_BUNDLES) if one and Path(one).is_file()), None)


def _prepare(
    connection: ldap.ldapobject.SimpleLDAPObject, settings: LdapConnectionSettings, ca_file: str | None
) -> None:
    connection.set_option(ldap.OPT_PROTOCOL_VERSION, ldap.VERSION3)
    # References are reported, never followed: elsewhere the password has no business.
    connection.set_option(ldap.OPT_REFERRALS, 0)
    connection.set_option(ldap.OPT_NETWORK_TIMEOUT, settings.connect_timeout)
    connection.set_option(ldap.OPT_TIMEOUT, min(settings.connect_timeout, settings.answer_timeout))
    if urlsplit(settings.server).scheme == "ldapi":
        return
    try:
        connection.set_option(ldap.OPT_X_TLS_REQUIRE_CERT, ldap.OPT_X_TLS_DEMAND)
        connection.set_option(ldap.OPT_X_TLS_PROTOCOL_MIN, 0x303)
        if ca_file is not None:
            connection.set_option(ldap.OPT_X_TLS_CACERTFILE, ca_file)
        if settings.cert_file is not None:
            connection.set_option(ldap.OPT_X_TLS_CERTFILE, str(settings.cert_file))
            connection.set_option(ldap.OPT_X_TLS_KEYFILE, str(settings.key_file))
        connection.set_option(ldap.OPT_X_TLS_NEWCTX, 0)
    except (ldap.LDAPError, ValueError):
        names = ", ".join(
            f"{name} {value}"
            for name, value in (
                ("ca_file", ca_file),
                ("cert_file", settings.cert_file),
                ("key_file", settings.key_file),
            )
            if value
        )
        raise LdapTroubleError(f"{names}: cannot be used for TLS; each should be a PEM file") from None


def _bind(connection: ldap.ldapobject.SimpleLDAPObject, settings: LdapConnectionSettings) -> None:
    if settings.sasl == "external":
        connection.sasl_non_interactive_bind_s("EXTERNAL")
    elif settings.sasl == "gssapi":
        connection.sasl_non_interactive_bind_s("GSSAPI")
    else:
        connection.simple_bind_s(settings.bind_dn, settings.bind_password.get_secret_value())


def named_in(referral: str) -> str:
    """The DN that a reference to another server names, normalized; empty: none."""
    return normalized(unquote(urlsplit(referral).path.removeprefix("/")))
