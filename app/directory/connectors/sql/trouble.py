"""Trouble with a database that is read, in one line: what is wrong, the setting it is about, and what to do.

No line holds the URL or its password.
"""

import re
from collections.abc import Iterator

from sqlalchemy import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from app.foundation.text import printable

_LONGEST = 300


class SqlTroubleError(Exception):
    """The read cannot go on; the text is the reason, for people."""

    def __init__(self, reason: str, *, login_refused: bool = False) -> None:
        """``login_refused``: the database refused the name or the password."""
        super().__init__(reason)
        self.login_refused = login_refused


def trouble_of(error: BaseException, url: URL, query: str = "") -> SqlTroubleError:
    """The reason of an error of SQLAlchemy or a driver. ``query`` is the query's name, empty while connecting."""
    where = f"queries.{query}" if query else "url"
    says = without_secrets(_words_of(error), url)
    advice = _advice(error, where, url)
    is_refused = advice == _OTHER_LOGIN
    reason = f"{'login refused: ' if is_refused else ''}{where}: {says}{f'; {advice}' if advice else ''}"
    return SqlTroubleError(reason, login_refused=is_refused)


def driver_missing(url: URL, error: BaseException) -> SqlTroubleError:
    """There is no driver for the URL's database, or SQLAlchemy does not know the database."""
    extra = {"postgresql": "postgres", "mysql": "mysql", "mariadb": "mysql"}.get(url.get_backend_name())
    if extra is not None:
        return SqlTroubleError(
            f'url: {url.get_backend_name()} needs the driver that the extra "{extra}" brings: '
            f"pip install 'usher[{extra}]'"
        )
    if isinstance(error, NoSuchModuleError | ArgumentError):
        return SqlTroubleError(
            f"url: SQLAlchemy knows no database {printable(url.drivername, limit=60)!r} here; install the package"
            " with its dialect and driver, or see how the URL begins"
        )
    missing = getattr(error, "name", "") or "its driver"
    return SqlTroubleError(f"url: {url.drivername} needs the Python package {missing}; install it beside Usher")


def _words_of(error: BaseException) -> str:
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    primary = getattr(getattr(original, "diag", None), "message_primary", None)
    if primary:
        return printable(str(primary), limit=_LONGEST)
    args = original.args
    # PyMySQL's errors are (number, text).
    text = str(args[1]) if len(args) > 1 and isinstance(args[0], int) else str(original)
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith("following errors:"):
        # psycopg, of several addresses of one host.
        lines = lines[1:]
    return printable(lines[0] if lines else type(original).__name__, limit=_LONGEST)


def without_secrets(text: str, url: URL) -> str:
    """The text without anything that only the URL may say."""
    for secret in _secrets(url):
        text = text.replace(secret, "********")
    return text


_SECRET = re.compile(r"pass|pwd|secret|token|key", re.IGNORECASE)


def _secrets(url: URL) -> Iterator[str]:
    if url.password:
        yield url.render_as_string(hide_password=False)
        yield str(url.password)
    for name, value in url.query.items():
        if _SECRET.search(name):
            yield from (value,) if isinstance(value, str) else value


_PASSWORD = ("28P01", "28000", 1045, 1698)
_OTHER_LOGIN = "let url name a user and password that the server accepts"
_DATABASE = ("3D000", 1049)
_SCOPE = ("42501", 1142, 1143, 1044, 1227, 1370)
_TABLE = ("42P01", "3F000", 1146)
_COLUMN = ("42703", 1054)
_SYNTAX = ("42601", 1064, "42P10")
_TIMEOUT = ("57014", 1969, 3024, 1205)
_READ_ONLY = ("25006", 1792)
_TWICE = (1060,)
_ENDED = ("57P01", "57P02", "57P03", "57P05", 1053, 1927)
_LOST = (2006, 2013, 2055)
_AWAY = (2002, 2003, 2005)
_FILES = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_capath", "sslrootcert", "sslcert", "sslkey", "sslcrl")
"""What URLs name files by."""


def _advice(error: BaseException, where: str, url: URL) -> str:
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    if isinstance(original, FileNotFoundError | PermissionError) and not where.startswith("queries"):
        named = [f"{name} {printable(str(url.query[name]), limit=100)}" for name in _FILES if name in url.query]
        if named:
            return f"let url name files that are there and that this user may read: {', '.join(named)}"
    given = _codes(original)
    for codes, advice in (
        (_PASSWORD, _OTHER_LOGIN),
        (_DATABASE, "let url end in a database that is there"),
        (_SCOPE, f"grant the user of url the right to read what {where} reads"),
        (_TABLE, f"mend {where}, or let url name the database that has the table"),
        (_COLUMN, f"mend {where}: the table has no such column"),
        (_SYNTAX, f"mend {where}: it must be one SELECT that may stand in parentheses"),
        (_TIMEOUT, f"make {where} faster, for example by an index, or raise answer_timeout"),
        (_READ_ONLY, f"mend {where}: it may read, and change nothing"),
        (_TWICE, f"give each column of {where} a name of its own"),
        (_ENDED, "see why the server ended it; the next read begins anew"),
        (_LOST, "see that the server and the network are well; the next read begins anew"),
        (_AWAY, "see that it runs, and that url names its host and port"),
    ):
        if not given.isdisjoint(codes):
            return advice
    return _advice_by_words(str(original), where, url)


def _codes(original: BaseException) -> set[object]:
    """The SQLSTATE and the server's own number, as far as the driver tells them."""
    return {getattr(original, "sqlstate", None), *original.args[:1]}


def _advice_by_words(text: str, where: str, url: URL) -> str:
    """For drivers and moments that have no codes: libpq while connecting, SQLite."""
    for words, advice in (
        ("password authentication failed", _OTHER_LOGIN),
        ("no password supplied", "let url name a password"),
        ("no such table", f"mend {where}, or let url name the database that has the table"),
        ("no such column", f"mend {where}: the table has no such column"),
        ("syntax error", f"mend {where}: it must be one SELECT that may stand in parentheses"),
        ("readonly database", f"mend {where}: it may read, and change nothing"),
        ("not authorized", f"mend {where}: it may read, and change nothing"),
        ("unable to open database file", "let url name a file that is there and that this user may read"),
        ("not a database", "let url name a SQLite file"),
        ("interrupted", f"make {where} faster, for example by an index, or raise answer_timeout"),
        ("root certificate file", "let sslrootcert in url name a PEM file with who signed the server's certificate"),
        ("does not match host name", "let url name the host that the certificate is for"),
        ("does not exist", "let url end in a database, and name a user, that are there"),
        ("certificate", "let sslrootcert (ssl_ca for MySQL) in url name the certificate of who signed the server's"),
        ("SSL", "see that sslmode and the certificates in url are what the server wants"),
        ("timeout", "see that url names its host and port, and that no firewall is in the way"),
    ):
        if words in text:
            return advice
    if where != "url":
        return "the next read begins anew"
    return f"see that it runs, and that url names its host and port ({address(url)})" if url.host else ""


def address(url: URL) -> str:
    """Host and port of a URL, for people."""
    host = printable(str(url.host or "this machine"), limit=100)
    return f"{host}:{url.port}" if url.port else host
