"""The settings of object stores, and the URLs of objects."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from app.foundation.configuration.schema import SettingsSection
from app.foundation.outbound.urls import checked_url, is_plaintext

_BUCKET = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._-]{1,254}")


def usable_object_url(url: str) -> str:
    """The URL of an object. Raises ``ValueError``, whose message does not contain it."""
    scheme, _, rest = url.partition("://")
    if scheme not in ("s3", "gs", "az"):
        raise ValueError("should be a path, or the URL of an object, which begins with s3://, gs:// or az://")
    bucket, _, key = rest.partition("/")
    if "?" in rest or "@" in bucket:
        raise ValueError("should hold no user and no query; credentials come from the environment of the process")
    if not _BUCKET.fullmatch(bucket) or not key.isprintable() or {"", ".", ".."} & set(key.split("/")):
        raise ValueError("not the URL of an object; write s3://BUCKET/KEY, gs://BUCKET/KEY or az://CONTAINER/KEY")
    return url


def _usable_endpoint(url: str) -> str:
    return url and checked_url(url, credentials="come from the environment of the process").rstrip("/")


class StoreSettings(SettingsSection):
    """The store of an object. Credentials come from the environment of the process, or from the machine's role."""

    endpoint: Annotated[str, Field(max_length=2000), AfterValidator(_usable_endpoint)] = ""
    """The address of the store, for example of a MinIO server. Default: that of the provider."""
    region: str = Field(default="", max_length=100, pattern=r"^[a-z0-9-]*$")
    """The region of an S3 bucket. Default: that of the variable ``AWS_REGION``, otherwise ``us-east-1``."""
    allow_plaintext: bool = False
    """Whether objects may be read over a network without TLS."""
    connect_timeout: float = Field(default=10, gt=0, le=600)
    """Connect timeout, in seconds."""
    answer_timeout: float = Field(default=60, gt=0, le=3600)
    """Timeout of each response, which is a part of at most 8 MiB, in seconds."""

    @model_validator(mode="after")
    def _is_private(self) -> "StoreSettings":
        if is_plaintext(self.endpoint) and not self.allow_plaintext:
            raise ValueError(
                "endpoint: without TLS, records could be read and changed on the way; use https://, or allow_plaintext:"
                " true if the network is private"
            )
        return self
