"""Field types of URLs."""

from typing import Annotated

from pydantic import AfterValidator, StringConstraints

from app.contract import limits
from app.foundation.outbound.urls import is_http_url


def _is_url(text: str) -> str:
    if not is_http_url(text):
        raise ValueError("must be an http or https URL")
    return text


# The JSON Schema of `_is_url`, so that clients that validate in advance get the same result.
_USER = r"([^\s\x00-\x20\x7f-\xa0/?#@\[\]\\]*@)?"
_HEX = "[0-9A-Fa-f]{1,4}"
# IPv6 in full, without its start, or without its middle after at most three groups.
_IPV6 = rf"\[(({_HEX}:){{7}}{_HEX}|::({_HEX}(:{_HEX}){{0,6}})?|{_HEX}(:{_HEX}){{0,2}}::({_HEX}(:{_HEX}){{0,3}})?)\]"
_HOST = rf"({_IPV6}|[^\s\x00-\x2c/\x3a-\x40\x5b-\x5e\x60\x7b-\xa0]+)"
_PORT = r"(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?"
_REST = r"([/?#][^\s\x00-\x20\x7f-\xa0]*)?"
_URL = f"[Hh][Tt][Tt][Pp][Ss]?://{_USER}{_HOST}{_PORT}{_REST}"
Url = Annotated[str, StringConstraints(max_length=limits.URL_LENGTH, pattern=rf"^{_URL}$"), AfterValidator(_is_url)]
UrlOrEmpty = Annotated[
    str,
    StringConstraints(max_length=limits.URL_LENGTH, pattern=rf"^({_URL})?$"),
    AfterValidator(lambda text: text and _is_url(text)),
]
"""A URL. The empty string removes a stored one."""
