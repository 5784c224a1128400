"""Authenticates admin requests and audits refusals."""

from flask import request

from app.contract.errors import Unauthenticated
from app.foundation.audit import Actor, Audit
from app.http.tokens import TokenSet, bearer_token, require_bearer, token_fingerprint
from app.service.refusals import Refusals, request_actor


class AdminAuth:
    def __init__(self, tokens: TokenSet, audit: Audit, refusals: Refusals) -> None:
        self.tokens = tokens
        self.audit = audit
        self._refusals = refusals

    def require(self) -> None:
        """As ``require_bearer``. Audits a wrong token, but neither a missing one nor a throttled caller."""
        try:
            require_bearer(request, self.tokens)
        except Unauthenticated:
            if bearer_token(request.environ) is not None:
                self._refusals.record_wrong_token(request_actor("", "api"), str(request.url_rule))
            raise

    def record_refusal(self, reason: str, *, subject: str = "") -> None:
        """Writes an audit row for a refused request with a valid token."""
        self._refusals.record(actor(), subject or request.path, reason, key=f"refused {caller_name()}")


def caller_name() -> str:
    """The name of the caller. Tokens have no names, so it contains the token's fingerprint."""
    return f"admin token {token_fingerprint(request)}"


def actor() -> Actor:
    """The caller with a valid token, for the audit log."""
    return request_actor(caller_name(), "api", "admin")
