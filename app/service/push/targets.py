"""The sources that accept pushes: their tokens, and the records that may be pushed to them."""

from collections.abc import Mapping
from dataclasses import dataclass

from flask import Request

from app.contract.errors import NotFound, PermissionDenied, Unauthenticated
from app.directory.pushes import Allowed
from app.directory.settings import DirectorySettings, PushSourceSettings, ScimSourceSettings, tokens_of
from app.directory.source_settings import ChangesSettings, GuardSettings
from app.http.throttle import FailedCredentials
from app.http.tokens import TokenSet, bearer_token


@dataclass(frozen=True, slots=True)
class PushTarget:
    name: str
    tokens: TokenSet
    allowed: Allowed
    guard: GuardSettings
    only_pushed: bool
    """Whether it has no other way to be read."""
    is_scim: bool
    """Whether a directory pushes to it with SCIM, and nobody else does."""


@dataclass(frozen=True, slots=True)
class Targets:
    """All sources that accept pushes, and the names of all sources in the order of the configuration."""

    by_name: Mapping[str, PushTarget]
    configured: tuple[str, ...]
    failures: FailedCredentials

    def require(self, request: Request, name: str, *, is_scim: bool = False) -> PushTarget:
        """The source with this name, for a request with one of its tokens. ``is_scim``: it must be one of SCIM.

        Raises ``Unauthenticated``, ``TooManyRequests``, ``PermissionDenied`` for the token of another source, and
        ``NotFound``. Without a valid token the response does not depend on the name.
        """
        token = bearer_token(request.environ)
        if token is None:
            raise Unauthenticated("an Authorization header with a bearer token is required")
        # All tokens are compared, so that the time does not depend on the token.
        accepted = [target for target in self.by_name.values() if target.tokens.accepts(token)]
        if not accepted:
            self.failures.record_or_raise(request.remote_addr or "")
            raise Unauthenticated("the bearer token is not accepted")
        target = self.by_name.get(name)
        if target is None or target.is_scim != is_scim:
            raise NotFound("no source with this name accepts pushes")
        if target not in accepted:
            raise PermissionDenied("the bearer token belongs to another source")
        return target


def targets_from_settings(settings: DirectorySettings, failures: FailedCredentials) -> Targets:
    targets = {}
    for source in settings.sources:
        if tokens := tokens_of(source):
            changes = source.changes or ChangesSettings()
            targets[source.source_name] = PushTarget(
                name=source.source_name,
                tokens=TokenSet(tokens),
                allowed=Allowed(frozenset(changes.kinds), frozenset(changes.organizations)),
                guard=source.guard or settings.guard,
                only_pushed=isinstance(source, PushSourceSettings),
                is_scim=isinstance(source, ScimSourceSettings),
            )
    return Targets(targets, tuple(source.source_name for source in settings.sources), failures)
