"""The settings of the self-hosted backend."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator

from app.contract.operation import DEFAULT_PREFIX
from app.foundation.configuration.schema import SettingsSection
from app.foundation.database.url import DatabaseUrl


class SelfHostedBackendSettings(SettingsSection):
    """The section ``self_hosted_backend`` of the settings."""

    database_url: DatabaseUrl = "sqlite:///var/backend.db"
    """The backend's own database, not that of the service: ``sqlite:///FILE`` or ``postgresql://user@host/name``."""

    header_prefixes: Annotated[tuple[str, ...], Field(min_length=1)] = (DEFAULT_PREFIX,)
    """Accepted prefixes of the credential headers. Error messages contain the first one."""

    public_url: str = "http://127.0.0.1:8090"
    """The URL for callers, in ``GET /openapi.json`` and tokens."""

    default_access_type: Literal["public", "organizationPrivate", "restricted"] = "organizationPrivate"
    """The access type that folders and documents inherit at the top of the tree."""

    allow_private_urls: bool = False
    """Whether permission providers and webhook receivers may be on loopback or in a private network."""

    secret_key: SecretStr | None = None
    """Encrypts secrets in the database. Without it, a key file is created beside a SQLite database."""

    secret_key_file: Path | None = None
    """A file with the secret key, instead of ``secret_key``."""

    workspaces_per_hour: Annotated[int, Field(ge=0)] = 20
    """Attempts to create a workspace per IP address and hour. 0: no workspaces can be created."""

    trusted_proxies: Annotated[int, Field(ge=0, le=10)] = 0
    """The number of reverse proxies that add to ``X-Forwarded-For``. 0: the header is ignored."""

    max_body_bytes: Annotated[int, Field(ge=1024)] = 16 * 1024 * 1024
    """The maximum size of a request body."""

    provider_timeout: Annotated[float, Field(gt=0, le=120)] = 5.0
    """Timeout of one call to a permission provider, in seconds."""

    provider_tries: Annotated[int, Field(ge=1, le=10)] = 3
    """Calls to a permission provider in total, before access is denied. The "3 retries" of other backends also mean
    three calls."""

    provider_pause: Annotated[float, Field(ge=0, le=60)] = 2.0
    """Seconds between two calls."""

    provider_deadline: Annotated[float, Field(gt=0, le=600)] = 10.0
    """Timeout of all calls and pauses of one request, in seconds."""

    webhook_timeout: Annotated[float, Field(gt=0, le=30)] = 15.0
    """Timeout of a call to a webhook receiver, in seconds."""

    webhook_threads: Annotated[int, Field(ge=0, le=64)] = 4
    """Concurrent calls of each process to webhook receivers. 0: none."""

    embedder: Literal["hashing", "minilm"] = "hashing"
    """How the search of judgments compares texts: by words, or by a sentence model (extra ``embeddings``)."""

    judgments_memory_mb: Annotated[int, Field(ge=16)] = 1024
    """Memory of one process for judgments, in MB. 100,000 need about 160 MB for each embedding type."""

    @field_validator("public_url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        if not re.fullmatch(r"https?://[^\s/]+\S*", url):
            raise ValueError("must be an http or https address such as https://backend.example.com")
        return url

    @field_validator("header_prefixes")
    @classmethod
    def _check_prefixes(cls, prefixes: tuple[str, ...]) -> tuple[str, ...]:
        lowered = tuple(prefix.lower() for prefix in prefixes)
        for prefix in lowered:
            letters = prefix.replace("-", "")
            if not (letters.isascii() and letters.isalnum() and prefix.endswith("-")):
                raise ValueError(f"{prefix!r} is not a header prefix like {DEFAULT_PREFIX!r}")
        return lowered
