"""The settings of the console."""

from enum import StrEnum
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr


class Role(StrEnum):
    """What somebody may do at the console; each may what those before it may."""

    VIEWER = "viewer"
    """Sees everything but secrets."""
    APPROVER = "approver"
    """Previews, syncs, approves, discards, cancels and retries."""
    ADMIN = "admin"
    """Also lifts the limits of deletes, and ends sessions."""

    def may(self, what: "Role") -> bool:
        """Whether this role includes the other."""
        order = list(Role)
        return order.index(self) >= order.index(what)


def _origin(value: str) -> str:
    if not value:
        return value
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.netloc or "@" in parts.netloc:
        raise ValueError("must be the address at which browsers reach the service, as https://usher.corp.example")
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError("must have no path: the console is at /console there")
    return f"{parts.scheme}://{parts.netloc}".lower()


def _is_shown(value: str) -> str:
    if not value.strip() or not value.isprintable() or len(value) > 100:
        raise ValueError("must be a name of up to 100 printable characters, which stands in the audit log")
    return value.strip()


class ConsoleToken(BaseModel):
    """One of ``console.tokens``: somebody who signs in with a token."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, AfterValidator(_is_shown)]
    """Who that is, in the audit log."""
    role: Role
    token: SecretStr


class ConsoleSettings(BaseModel):
    """The section ``console``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = True
    """Whether the service answers ``/console``."""
    name: str = Field(default="", max_length=40)
    """What stands beside the brand, as ``production``."""
    public_url: Annotated[str, AfterValidator(_origin)] = ""
    """Where browsers reach the service, as ``https://usher.corp.example``; empty: where it listens."""
    tokens: tuple[ConsoleToken, ...] = ()
    """Who may sign in with a token, and as what; ``admin.tokens`` are admins besides."""
    idle_timeout: int = Field(default=3600, ge=60, le=86_400)
    """Seconds after its last request at which a session ends."""
    session_timeout: int = Field(default=43_200, ge=300, le=604_800)
    """Seconds after which a session ends at the latest."""
    keep_audit_days: int = Field(default=400, ge=1, le=3650)
    """Days for which the audit log is kept."""
