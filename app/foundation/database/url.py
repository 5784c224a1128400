"""Parses database URLs, and validates those of settings."""

from typing import Annotated

from pydantic import AfterValidator, Field
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from app.foundation.secrets import SecretPart


class DatabaseUrlError(ValueError):
    """An invalid or unsupported database URL. The text contains no password."""


class DriverMissingError(DatabaseUrlError):
    """The database's driver is not installed. The text names the extra that contains it."""


def parse_url(text: str) -> URL:
    """Parses a database URL and selects the driver. Raises ``DatabaseUrlError``."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise DatabaseUrlError(
            "not a database URL; write sqlite:///var/usher.db or postgresql://user@host/name"
        ) from error
    backend = url.get_backend_name()
    if backend == "sqlite":
        if not url.database or url.database == ":memory:":
            raise DatabaseUrlError("a SQLite database needs a file, as in sqlite:///var/usher.db")
        return url
    if text.count("@") > 1:
        # Messages show the host, which would contain a part of the password.
        raise DatabaseUrlError(
            "each @ but the one before the host is written as %40, as in a password (and a / there as %2F)"
        )
    if backend not in {"postgresql", "postgres"}:
        raise DatabaseUrlError(f"{backend} is not supported; use sqlite:///FILE or postgresql://user@host/name")
    return url.set(drivername="postgresql+psycopg")


def _validated(text: str) -> str:
    parse_url(text)
    return text


DatabaseUrl = Annotated[str, AfterValidator(_validated), Field(repr=False), SecretPart.PASSWORD]
"""A setting: the URL of a database."""
