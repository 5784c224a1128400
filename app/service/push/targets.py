"""The sources to which something may be pushed, and who may push what to which."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from flask import Request

from app.contract.errors import NotFound, PermissionDenied, Unauthenticated
from app.directory.pushes import Allowed
from app.directory.settings import DirectorySettings, GuardSettings, PushSourceSettings
from app.http.throttle import FailedCredentials
from app.http.tokens import TokenSet, bearer_token


@dataclass(frozen=True, slots=True)
class PushTarget:
    """A source to which something may be pushed."""

    name: str
    tokens: TokenSet
    allowed: Allowed
    guard: GuardSettings
    only_pushed: bool
    """Whether it is not read besides."""


@dataclass(frozen=True, slots=True)
class Targets:
    """All of them, and the names of all sources in the order of the configuration."""

    by_name: Mapping[str, PushTarget]
    configured: tuple[str, ...]
    failures: FailedCredentials

    def __iter__(self) -> Iterator[PushTarget]:
        return iter(self.by_name.values())

    def require(self, request: Request, name: str) -> PushTarget:
        """The source of that name, for a request that shows one of its tokens.

        Raises ``Unauthenticated``, ``TooManyRequests``, ``PermissionDenied`` for the token of another source, and
        ``NotFound``: which sources there are is told to nobody without a token.
        """
        token = bearer_token(request)
        if token is None:
            raise Unauthenticated("an Authorization header with a bearer token is required")
        # All of them are compared, so that the time taken tells nothing.
        accepted = [target for target in self if target.tokens.accepts(token)]
        if not accepted:
            self.failures.check(request.remote_addr or "")
            raise Unauthenticated("the bearer token is not accepted")
        target = self.by_name.get(name)
        if target is None:
            raise NotFound("there is no source of this name to which anything may be pushed")
        if target not in accepted:
            raise PermissionDenied("the bearer token belongs to another source")
        return target


def targets_from_settings(settings: DirectorySettings, failures: FailedCredentials) -> Targets:
    """The sources with tokens in ``changes``."""
    found = {}
    for source in settings.sources:
        changes = source.changes
        if changes is not None and changes.tokens:
            found[source.source_name] = PushTarget(
                name=source.source_name,
                tokens=TokenSet(token.get_secret_value() for token in changes.tokens),
                allowed=Allowed(frozenset(changes.kinds), frozenset(changes.organizations)),
                guard=source.guard or settings.guard,
                only_pushed=isinstance(source, PushSourceSettings),
            )
    return Targets(found, tuple(source.source_name for source in settings.sources), failures)
