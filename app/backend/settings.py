"""The settings of the self-hosted backend."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, field_validator

from app.contract.headers import DEFAULT_PREFIX
from app.foundation.database.engine import usable_url


class SelfHostedBackendSettings(BaseModel):
    """The section ``self_hosted_backend`` of the settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    database_url: Annotated[str, AfterValidator(usable_url)] = Field(default="sqlite:///var/backend.db", repr=False)
    """The backend's own database, apart from the service's: ``sqlite:///FILE`` or ``postgresql://user@host/name``."""

    header_prefixes: Annotated[list[str], Field(min_length=1)] = [DEFAULT_PREFIX]
    """Prefixes under which the credential headers are accepted; the first is the one that error messages name."""

    public_url: str = "http://127.0.0.1:8090"
    """Where callers reach it; stands in ``GET /openapi.json``."""

    default_access_type: Literal["public", "organizationPrivate", "restricted"] = "organizationPrivate"
    """What folders and documents inherit at the top of the tree."""

    allow_private_urls: bool = False
    """Whether permission providers and receivers of webhooks may live on loopback or in a private network."""

    secret_key: SecretStr | None = None
    """Secrets in the database are encrypted with it. Without one, a key file is made beside a SQLite database."""

    secret_key_file: Path | None = None
    """A file that holds the secret key, instead of ``secret_key``."""

    workspaces_per_hour: Annotated[int, Field(ge=0)] = 20
    """Attempts to create a workspace that one address gets within an hour; 0: nobody creates workspaces."""

    trusted_proxies: Annotated[int, Field(ge=0, le=10)] = 0
    """How many reverse proxies in front add to ``X-Forwarded-For``; 0: the header is not believed."""

    max_body_bytes: Annotated[int, Field(ge=1024)] = 16 * 1024 * 1024
    """The largest request body."""

    provider_timeout: Annotated[float, Field(gt=0, le=120)] = 5.0
    """Seconds that one call to a permission provider may take."""

    provider_tries: Annotated[int, Field(ge=1, le=10)] = 3
    """How often a call to a permission provider is made in all, the first one included, before access is denied. (The
    "3 retries" of other backends mean three calls, too.)"""

    provider_pause: Annotated[float, Field(ge=0, le=60)] = 2.0
    """Seconds between two tries."""

    provider_deadline: Annotated[float, Field(gt=0, le=600)] = 10.0
    """Seconds that all tries of one request may take together, pauses included."""

    webhook_timeout: Annotated[float, Field(gt=0, le=30)] = 15.0
    """Seconds that a webhook's receiver has to answer."""

    webhook_threads: Annotated[int, Field(ge=0, le=64)] = 4
    """How many receivers of webhooks the server calls side by side. 0: it calls none, other processes do."""

    embedder: Literal["hashing", "minilm"] = "hashing"
    """How the search of judgments compares texts: by their words, or by a sentence model (extra ``embeddings``)."""

    judgments_memory_mb: Annotated[int, Field(ge=16)] = 1024
    """How much of judgments one process remembers between searches; 100,000 take about 160 for each embedding type."""

    @field_validator("public_url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        if not re.fullmatch(r"https?://[^\s/]+\S*", url):
            raise ValueError("must be an http or https address such as https://backend.example.com")
        return url

    @field_validator("header_prefixes")
    @classmethod
    def _are_header_names(cls, prefixes: list[str]) -> list[str]:
        lowered = [prefix.lower() for prefix in prefixes]
        for prefix in lowered:
            letters = prefix.replace("-", "")
            if not (letters.isascii() and letters.isalnum() and prefix.endswith("-")):
                raise ValueError(f"{prefix!r} is no header prefix; write one like {DEFAULT_PREFIX!r}")
        return lowered
