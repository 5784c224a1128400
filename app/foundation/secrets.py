"""Secrets in settings and texts: the mask that replaces them, and the secret part of a URL."""

from enum import Enum

MASK = "********"


class SecretPart(Enum):
    """The secret part of a setting that is a URL. It is in the metadata of the field (``typing.Annotated``)."""

    CREDENTIALS = "user and password"
    PASSWORD = "password"  # noqa: S105 - the name of a part
    PATH = "path"
