"""Translates errors of databases and their drivers to ``ReadError``.

A message names the setting and the remedy, without the URL and its secrets.
"""

import re

from sqlalchemy import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from app.directory.connector import LoginRefusedError, ReadError
from app.foundation.secrets import MASK
from app.foundation.text import printable

_LOGIN = "correct the user and password in url"
_COLUMN = "correct {where}: the table has no such column"
_SELECT_ONLY = "correct {where}: it must be one SELECT that is valid in parentheses"
_READS_ONLY = "correct {where}: it must not change anything"
_FASTER = "make {where} faster, for example by an index, or raise answer_timeout"
_TABLE = "correct {where}, or let url name the database that has the table"
_LOST = "check the server and the network; the next read starts again"

_ADVICE_BY_CODE = (
    (("28P01", "28000", 1045, 1698), _LOGIN),
    (("3D000", 1049), "let url end in a database that exists"),
    (("42501", 1142, 1143, 1044, 1227, 1370), "grant the user of url the right to read what {where} reads"),
    (("42P01", "3F000", 1146), _TABLE),
    (("42703", 1054), _COLUMN),
    (("42601", 1064, "42P10"), _SELECT_ONLY),
    (("57014", 1969, 3024, 1205), _FASTER),
    (("25006", 1792), _READS_ONLY),
    ((1060,), "give each column of {where} a name of its own"),
    (("57P01", "57P02", "57P03", "57P05", 1053, 1927), "see the server's log; the next read starts again"),
    ((2006, 2013, 2055), _LOST),
    ((2002, 2003, 2005), "check that it runs, and that url has its host and port"),
)
"""SQLSTATEs and error numbers of MySQL → advice."""

_ADVICE_BY_WORDS = (
    ("password authentication failed", _LOGIN),
    ("no password supplied", "add the password to url"),
    ("no such table", _TABLE),
    ("no such column", _COLUMN),
    ("syntax error", _SELECT_ONLY),
    ("readonly database", _READS_ONLY),
    ("not authorized", _READS_ONLY),
    ("unable to open database file", "let url name a file that exists and that this user may read"),
    ("not a database", "let url name a SQLite file"),
    ("interrupted", _FASTER),
    ("root certificate file", "let sslrootcert in url name a PEM file with the authority of the server's certificate"),
    ("does not match host name", "let url name the host that the certificate is for"),
    ("does not exist", "let url name a database and a user that exist"),
    ("certificate", "let sslrootcert (ssl_ca for MySQL) in url name the authority of the server's certificate"),
    ("SSL", "check sslmode and the certificates in url"),
    ("timeout", "check the host and port in url, and the firewalls on the way"),
)
"""Words of messages without a code, of SQLite and of libpq while it connects → advice. The first match is used."""

_FILE_PARAMETERS = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_capath", "sslrootcert", "sslcert", "sslkey", "sslcrl")
_SECRET_PARAMETER = re.compile(r"pass|pwd|secret|token|key", re.IGNORECASE)


def read_error(error: BaseException, url: URL, query: str = "") -> ReadError:
    """The error of a read, from an error of SQLAlchemy or of a driver. ``query``: its name. Empty: connecting."""
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    advice = _advice(original, url, query)
    where = f"queries.{query}" if query else "url"
    reason = f"{where}: {_without_secrets(_message(original), url)}{f'; {advice}' if advice else ''}"
    return LoginRefusedError(f"login refused: {reason}") if advice == _LOGIN else ReadError(reason)


def missing_driver(url: URL, error: BaseException) -> ReadError:
    """The error of a URL whose driver cannot be imported."""
    extra = {"postgresql": "postgres", "mysql": "mysql", "mariadb": "mysql"}.get(url.get_backend_name())
    if extra is not None:
        return ReadError(f"url: {url.get_backend_name()} needs a driver: pip install 'usher[{extra}]'")
    if isinstance(error, NoSuchModuleError | ArgumentError):
        return ReadError(
            f"url: SQLAlchemy knows no database {printable(url.drivername, limit=60)!r} here; install the package"
            " with its dialect and driver, or correct the beginning of the URL"
        )
    missing = getattr(error, "name", "") or "of its driver"
    return ReadError(f"url: {url.drivername} needs the Python package {missing}; install it beside Usher")


def _message(original: BaseException) -> str:
    primary = getattr(getattr(original, "diag", None), "message_primary", None)
    args = original.args
    # PyMySQL's errors are (number, text).
    message = str(primary or (args[1] if len(args) > 1 and isinstance(args[0], int) else original))
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith("following errors:"):
        # psycopg tried several addresses of one host.
        lines = lines[1:]
    return printable(lines[0] if lines else type(original).__name__, limit=300)


def _without_secrets(message: str, url: URL) -> str:
    secrets = [url.render_as_string(hide_password=False), str(url.password)] if url.password else []
    for name, value in url.query.items():
        if _SECRET_PARAMETER.search(name):
            secrets += [value] if isinstance(value, str) else value
    for secret in secrets:
        message = message.replace(secret, MASK)
    return message


def _advice(original: BaseException, url: URL, query: str) -> str:
    """The remedy. Empty if none is known."""
    if isinstance(original, FileNotFoundError | PermissionError) and not query:
        files = [
            f"{name} {printable(str(url.query[name]), limit=100)}" for name in _FILE_PARAMETERS if name in url.query
        ]
        if files:
            return f"let url name files that exist and that this user may read: {', '.join(files)}"
    codes = {getattr(original, "sqlstate", None), *original.args[:1]}
    by_code = (advice for known, advice in _ADVICE_BY_CODE if not codes.isdisjoint(known))
    by_words = (advice for words, advice in _ADVICE_BY_WORDS if words in str(original))
    advice = next(by_code, None) or next(by_words, None)
    if advice is not None:
        return advice.format(where=f"queries.{query}" if query else "url")
    if query:
        return "the next read starts again"
    host = printable(str(url.host), limit=100)
    address = f"{host}:{url.port}" if url.port else host
    return f"check that it runs, and that url has its host and port ({address})" if url.host else ""
