"""The door of the HTTP admin API: who comes in with an admin token, and what the audit log says of who does not."""

from flask import request
from sqlalchemy import Engine

from app.audit import Actor, Audit
from app.contract.errors import Unauthenticated
from app.edge.request_id import current_request_id
from app.edge.tokens import TokenSet, bearer_token, require_bearer, shown_fingerprint
from app.refusals import Refusals


class Door:
    """Lets requests with an admin token in."""

    def __init__(self, tokens: TokenSet, audit: Audit, engine: Engine) -> None:
        self.tokens = tokens
        self.audit = audit
        self._refusals = Refusals(audit, engine)

    def require(self) -> None:
        """Raises what ``require_bearer`` does. A wrong token is written down; one that is slowed down, or that is not
        shown at all, leaves no row: nobody fills the log by guessing."""
        try:
            require_bearer(request, self.tokens)
        except Unauthenticated:
            if bearer_token(request) is not None:
                self._refusals.wrong_token(actor(""), request.path)
            raise

    def refused(self, why: str, *, subject: str = "") -> None:
        """Writes down that somebody was refused who had been let in."""
        self._refusals.note(actor(), subject or request.path, why)


def asking() -> str:
    """Whose request it is, in words: tokens have no names."""
    return f"admin token {shown_fingerprint(request)}"


def actor(role: str = "admin") -> Actor:
    """They as the audit log knows them; without a role: whoever showed a wrong token, of whom it says nothing."""
    return Actor(
        name=asking() if role else "",
        role=role,
        way="api",
        address=request.remote_addr or "",
        request_id=current_request_id() or "",
    )
