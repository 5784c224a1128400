"""Translates the errors of Authlib, joserfc and requests about an invalid answer of the issuer into ``IssuerError``."""

from collections.abc import Iterator
from contextlib import contextmanager

import requests
from authlib.common.errors import AuthlibBaseError
from joserfc.errors import JoseError

from app.service.console.oidc.calls import IssuerAwayError, IssuerError

MALFORMED = (AuthlibBaseError, JoseError, ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""What the libraries raise for malformed data."""


@contextmanager
def library_call() -> Iterator[None]:
    """Raises ``IssuerError`` for an error of a library. Must not contain other code, whose errors it would hide."""
    try:
        yield
    except requests.RequestException as error:
        # Such as HTTP 500 of the issuer, which must not count as a failure of the caller.
        raise IssuerAwayError(_describe(error)) from error
    except MALFORMED as error:
        raise IssuerError(_describe(error)) from error


def _describe(error: Exception) -> str:
    """The error for the log: the claim or code that it is about, or its class. Never a token."""
    cause = getattr(error, "claim", "") or getattr(error, "error", "")
    is_short = isinstance(cause, str) and cause.isascii() and cause.isprintable() and len(cause) <= 60
    return f"its answer is not valid ({(is_short and cause) or type(error).__name__})"
