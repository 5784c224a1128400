"""The settings of the client: the backend's address, credentials and limits."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from app.contract.operation import DEFAULT_PREFIX
from app.foundation.configuration.schema import SettingsSection
from app.foundation.outbound.route import CaFile, Proxy
from app.foundation.outbound.urls import checked_url

_HEADER_PREFIX = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_CREDENTIAL = re.compile(r"[!-~]*")


def _base_url(text: str) -> str:
    return checked_url(text, credentials="go into api_key and auth_token").rstrip("/")


def _header_prefix(text: str) -> str:
    if not _HEADER_PREFIX.fullmatch(text):
        raise ValueError("must be the beginning of a header name, such as x-service-")
    return text.lower()


def _credential(secret: SecretStr) -> SecretStr:
    if not _CREDENTIAL.fullmatch(secret.get_secret_value()):
        raise ValueError("must be printable ASCII without spaces or line breaks: it travels in a header")
    return secret


Credential = Annotated[SecretStr, AfterValidator(_credential)]


class BackendSettings(SettingsSection):
    """The ``backend`` section."""

    base_url: Annotated[str, AfterValidator(_base_url)] = "http://127.0.0.1:8090"
    """The URL of the backend's API, without the version."""

    api_key: Credential = SecretStr("")
    """The API key whose data is synchronized."""
    auth_token: Credential = SecretStr("")
    """The auth token of that API key."""
    header_prefix: Annotated[str, AfterValidator(_header_prefix)] = DEFAULT_PREFIX
    """The prefix of the vendor's credential headers."""
    ca_file: CaFile = ""
    """A PEM file with the certificates to trust instead of the public ones. Empty: the public ones."""
    proxy: Proxy = SecretStr("")
    """The HTTP proxy for calls, with credentials if it requires them. Empty: none. The environment is ignored."""
    timeout: Annotated[float, Field(gt=0, le=600)] = 30
    """The timeout of one try of a call, in seconds."""
    max_in_flight: Annotated[int, Field(ge=1, le=64)] = 8
    """The maximum of concurrent calls. Fewer while the backend throttles."""
    batch_size: Annotated[int, Field(ge=1, le=1000)] = 200
    """The maximum of items per call."""
    operations: Literal["auto", "core", "extended"] = "auto"
    """``core``: only the operations of the reference. ``extended``: all, and fail without them. ``auto``: try all, and
    fall back on ``core``."""
