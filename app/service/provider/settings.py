"""The settings of the permission provider."""

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from app.access.decision.decide import DecisionPolicy
from app.access.records import AccessRole

INSTANCE_HEADER = "x-usher-instance"
"""A caller that sends it gets it back with the state of this service's access model, which no other Usher has."""

EXPLAIN_PATH = "/permissions/explain"
"""Where operators ask the same questions and get reasons too."""

LONGEST_DECISION_TTL = 365 * 24 * 60 * 60
"""Seconds; longer than any caller keeps an answer."""


_TAKEN = frozenset({"/", "/resync", "/healthz", "/readyz", "/metrics", "/openapi.json", "/console"})
"""What the service answers itself; so is everything below /resync, /directory and /console."""

_PLAIN_PATH = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@-]+)+/?|/")


def _path(value: str) -> str:
    if not _PLAIN_PATH.fullmatch(value) or {".", ".."} & set(value.split("/")):
        raise ValueError("must be a plain path that begins with a slash, as in /permissions/check")
    if value == EXPLAIN_PATH:
        raise ValueError(f"{EXPLAIN_PATH} is taken: reasons are given there")
    if value in _TAKEN or value.startswith(("/resync/", "/directory/", "/console/")):
        raise ValueError("is taken: the service answers something else there; use a path such as /permissions/check")
    return value


def _origin(value: str) -> str:
    parts = urlsplit(value)
    if value != f"{parts.scheme}://{parts.netloc}" or parts.scheme not in {"http", "https"} or not parts.netloc:
        raise ValueError("must be an origin without a path, as in http://localhost:3000")
    return value.lower()


def _token(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text or text != text.strip() or not text.isprintable():
        raise ValueError("must be neither empty nor hold control characters or spaces at its ends")
    return value


class ProviderSettings(BaseModel):
    """The section ``provider``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Annotated[str, AfterValidator(_path)] = "/permissions/check"
    """Where the permission-provider call is answered."""
    auth_tokens: tuple[Annotated[SecretStr, AfterValidator(_token)], ...] = ()
    """Bearer tokens. Any of them is accepted, so that one can be exchanged for another without a gap. Without any, and
    without ``allow_anonymous``, the service refuses to start."""
    allow_anonymous: bool = False
    """Whether calls are answered whatever token they show, or none."""
    decision_ttl: Annotated[int, Field(ge=0, le=LONGEST_DECISION_TTL)] = 600
    """Seconds after which the caller asks again at the latest; 0: no cap."""
    public_role: AccessRole = AccessRole.VIEWER
    """What someone may do on a public folder or document who is not a member of its organization."""
    unknown_document: Literal["deny", "inherit_folder"] = "deny"
    """Whether a document that is not in the directory is judged as if it lay in the folder that is hinted at."""
    max_requests: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Questions in one call, at most."""
    browser_origins: tuple[Annotated[str, AfterValidator(_origin)], ...] = ()
    """For development only: origins of web pages that may call from the browser."""
    signature_timeout: Annotated[float, Field(ge=0, le=30)] = 2.0
    """Seconds that the backend's Generate Signature may take for an answer to one of ``browser_origins``, which then
    carries ``signature``; 0: such answers are not signed."""

    @property
    def policy(self) -> DecisionPolicy:
        """What the decision needs of it."""
        return DecisionPolicy(
            decision_ttl=self.decision_ttl, public_role=self.public_role, unknown_document=self.unknown_document
        )
