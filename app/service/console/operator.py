"""Whoever is signed in at the console, for one request."""

from dataclasses import dataclass

from app.foundation.audit import Actor, Way
from app.service.console.settings import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Their name and role, and the session that shows it."""

    name: str
    role: Role
    way: Way
    """``console``: by a token; ``oidc``: through the issuer."""
    credential: str
    """What the session was opened with."""
    session_digest: str
    form_token: str
    address: str
    request_id: str

    def may(self, role: Role) -> bool:
        """Whether they may do what this role may."""
        return self.role.may(role)

    @property
    def actor(self) -> Actor:
        """They as the audit log knows them."""
        return Actor(
            name=self.name, role=self.role.value, way=self.way, address=self.address, request_id=self.request_id
        )

    @property
    def asked_by(self) -> str:
        """They in words, as a run keeps them."""
        return f"{self.name} ({self.way})"
