"""The settings of the permission provider."""

import re
from functools import cached_property
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from app.access.decision.decide import DecisionPolicy
from app.access.records import AccessRole
from app.foundation.configuration.schema import SettingsSection
from app.foundation.outbound.urls import is_http_url

INSTANCE_HEADER = "x-usher-instance"
"""A request with this header gets it back with an identifier of the access model, unique among all deployments.
The doctor sends it to find out whether the registered URL leads to this deployment."""

REVISION_HEADER = "x-usher-revision"
"""The revision of the access model by which a call was answered."""

MIN_REVISION_HEADER = "x-usher-min-revision"
"""A request with this header is answered by this revision or a later one, or with 503. Callers that
have just changed access send it, so that the answer contains their change."""

EXPLAIN_PATH = "/permissions/explain"
"""The endpoint that answers permission requests with reasons, for operators."""

LIST_RESOURCES_PATH = "/permissions/list-resources"
"""The endpoint that lists what a user may open, for operators."""

LIST_USERS_PATH = "/permissions/list-users"
"""The endpoint that lists who may open a resource, for operators."""

MAX_BODY_BYTES = 8 * 1024 * 1024
"""The limit for the body of a permission call with a token."""

MAX_DECISION_TTL = 365 * 24 * 60 * 60
"""Seconds. No caller caches an answer longer."""

_TAKEN = {
    "/", "/resync", "/healthz", "/readyz", "/metrics", "/openapi.json", "/console",
    EXPLAIN_PATH, LIST_RESOURCES_PATH, LIST_USERS_PATH,
}  # fmt: skip
_TAKEN_PREFIXES = ("/resync/", "/directory/", "/scim/", "/console/")
"""All paths with these prefixes, and those in ``_TAKEN``, are kept for other endpoints of the service."""

_PLAIN_PATH = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@-]+)+/?|/")


def _path(value: str) -> str:
    if not _PLAIN_PATH.fullmatch(value) or {".", ".."} & set(value.split("/")):
        raise ValueError("must be a plain path that begins with a slash, as in /permissions/check")
    if value in _TAKEN or value.startswith(_TAKEN_PREFIXES):
        raise ValueError("is taken by another endpoint; use a path such as /permissions/check")
    return value


def _origin(value: str) -> str:
    if not is_http_url(value) or value != f"{(parts := urlsplit(value)).scheme}://{parts.netloc}":
        raise ValueError("must be an origin without a path, as in http://localhost:3000")
    return value.lower()


def _token(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text or text != text.strip() or not text.isprintable():
        raise ValueError("must not be empty, contain control characters, or begin or end with a space")
    return value


def _file(path: str) -> str:
    if "\0" in path:
        raise ValueError("must not contain a NUL character")
    return path


class DecisionLogSettings(SettingsSection):
    """The section ``provider.decision_log``."""

    path: Annotated[str, AfterValidator(_file)] = ""
    """The file to which decisions are appended. ``-``: standard output. Empty: no log."""
    sample: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The share of decisions that is written."""
    denies_only: bool = False
    """Whether only denials are written."""


class ProviderSettings(SettingsSection):
    """The section ``provider``."""

    path: Annotated[str, AfterValidator(_path)] = "/permissions/check"
    """The path of the permission-provider call."""
    auth_tokens: tuple[Annotated[SecretStr, AfterValidator(_token)], ...] = ()
    """Bearer tokens. Each of them is valid, so that tokens can be rotated. Without tokens, and without
    ``allow_anonymous``, the service refuses to start."""
    allow_anonymous: bool = False
    """Whether calls are answered without a valid token."""
    decision_ttl: Annotated[int, Field(ge=0, le=MAX_DECISION_TTL)] = 600
    """Maximum seconds for which the caller caches an answer. 0: no maximum."""
    public_role: AccessRole = AccessRole.VIEWER
    """The role of users on public resources of organizations that they are not members of."""
    unknown_document: Literal["deny", "inherit_folder"] = "deny"
    """Whether a document that is not in the directory has the access of the folder in the request, if any."""
    max_requests: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Maximum number of permission requests in one call."""
    browser_origins: tuple[Annotated[str, AfterValidator(_origin)], ...] = ()
    """For development only: origins of web pages that may call the provider from a browser."""
    signature_timeout: Annotated[float, Field(ge=0, le=30)] = 2.0
    """Timeout of the backend's Generate Signature, in seconds. 0: answers to ``browser_origins`` are not signed."""
    decision_log: DecisionLogSettings = DecisionLogSettings()

    @cached_property
    def policy(self) -> DecisionPolicy:
        return DecisionPolicy(
            decision_ttl=self.decision_ttl, public_role=self.public_role, unknown_document=self.unknown_document
        )
