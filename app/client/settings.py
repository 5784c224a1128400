"""The settings of the client: which backend, with which credentials, and how hard it may be pressed."""

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from app.contract.headers import DEFAULT_PREFIX
from app.foundation.outbound.route import CaFile, Proxy

_HEADER_PREFIX = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_CREDENTIAL = re.compile(r"[!-~]*")


def _base_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not text.isascii() or any(character.isspace() for character in text):
        raise ValueError("must be an http or https address such as https://api.example.com")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not carry a user name or password; credentials go into api_key and auth_token")
    if parts.query or parts.fragment:
        raise ValueError("must not have a query or a fragment")
    return text.rstrip("/")


def _header_prefix(text: str) -> str:
    if not _HEADER_PREFIX.fullmatch(text):
        raise ValueError("must be the beginning of a header name, such as x-service-")
    return text.lower()


def _credential(secret: SecretStr) -> SecretStr:
    if not _CREDENTIAL.fullmatch(secret.get_secret_value()):
        raise ValueError("must be printable ASCII without spaces or line breaks: it travels in a header")
    return secret


Credential = Annotated[SecretStr, AfterValidator(_credential)]


class BackendSettings(BaseModel):
    """The ``backend`` section."""

    # A validation error would otherwise show what was given, credentials included.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    base_url: Annotated[str, AfterValidator(_base_url)] = "http://127.0.0.1:8090"
    """Where the backend's API begins, without the version."""

    api_key: Credential = SecretStr("")
    """The API key whose data is kept in step."""

    auth_token: Credential = SecretStr("")
    """The auth token of that API key."""

    header_prefix: Annotated[str, AfterValidator(_header_prefix)] = DEFAULT_PREFIX
    """What the vendor's credential headers begin with."""

    ca_file: CaFile = ""
    """A PEM file with the certificates to trust in place of the public ones; empty: the public ones."""

    proxy: Proxy = SecretStr("")
    """The HTTP proxy that leads there, with credentials where it wants some; empty: none, whatever the environment
    says."""

    timeout: Annotated[float, Field(gt=0, le=600)] = 30
    """Seconds that one try of a call may take."""

    max_in_flight: Annotated[int, Field(ge=1, le=64)] = 8
    """Calls side by side, at most. Fewer while the backend asks for it."""

    batch_size: Annotated[int, Field(ge=1, le=1000)] = 200
    """Items per call, at most."""

    operations: Literal["auto", "core", "extended"] = "auto"
    """Which operations to use: all of them and fall back on what is missing, the reference's alone, or all of them
    and fail."""
