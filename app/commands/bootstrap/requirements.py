"""Checks that the settings contain what a command needs."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from pydantic import SecretStr

from app.directory.settings import ScimSourceSettings, tokens_of
from app.foundation.text import are
from app.settings import Settings

SHORTEST_TOKEN = 16
"""Minimum length of a token that authenticates callers. The rate limiter does not protect shorter ones."""

NO_SOURCES = "directory.sources is empty"
NAME_A_SOURCE = (
    "name the directory file, for example directory: {sources: [{type: file, path: /srv/directory/export.jsonl}]}"
)


class SetUpError(Exception):
    """The settings do not allow what the command does. The text is one line with the key and the fix."""


class MissingSettingError(SetUpError):
    """A required setting is empty, perhaps because no settings file was read."""


def require_backend(settings: Settings) -> None:
    """Raises ``SetUpError`` if the credentials of the backend are missing."""
    if missing := [f"backend.{name}" for name in _missing_credentials(settings)]:
        raise MissingSettingError(
            f"{' and '.join(missing)} {are(len(missing))} empty: set the backend's credentials"
            " (usher backend bootstrap makes some for the self-hosted backend)"
        )


def has_credentials(settings: Settings) -> bool:
    """Whether the settings contain the credentials of the backend."""
    return not _missing_credentials(settings)


def _missing_credentials(settings: Settings) -> list[str]:
    backend = {"api_key": settings.backend.api_key, "auth_token": settings.backend.auth_token}
    return [name for name, secret in backend.items() if not secret.get_secret_value()]


def require_sources(settings: Settings) -> None:
    """Raises ``SetUpError`` if no directory source is configured."""
    if not settings.directory.sources:
        raise MissingSettingError(f"{NO_SOURCES}: {NAME_A_SOURCE}")


def require_safe_tokens(settings: Settings) -> None:
    """Raises ``SetUpError`` if permission calls lack a token, or if a token of callers can be guessed."""
    if not settings.provider.auth_tokens and not settings.provider.allow_anonymous:
        raise MissingSettingError(
            "provider.auth_tokens is empty: set at least one token, or provider.allow_anonymous: true to let anyone ask"
        )
    if short := short_tokens(settings):
        raise SetUpError(
            f"{' and '.join(short)} {are(len(short))} shorter than {SHORTEST_TOKEN} characters and"
            " could be guessed: make one with openssl rand -hex 24"
        )


def require_libraries(settings: Settings) -> None:
    """Raises ``SetUpError`` if the service needs a library of an extra that is not installed."""
    has_scim = any(isinstance(source, ScimSourceSettings) for source in settings.directory.sources)
    for is_used, user, extra, library in (
        (settings.console.enabled and settings.console.oidc.issuer, "console.oidc", "console", "authlib"),
        (has_scim, "a source of type scim", "scim", "scim2_server"),
    ):
        if is_used and find_spec(library) is None:
            raise SetUpError(
                f"{user} needs the library that the extra \"{extra}\" brings: pip install 'usher[{extra}]'"
            )


def short_tokens(settings: Settings) -> list[str]:
    """The settings keys of tokens that are short enough to be guessed."""
    return [key for key, token in _tokens(settings) if len(token) < SHORTEST_TOKEN]


def _tokens(settings: Settings) -> Iterator[tuple[str, str]]:
    """The settings key of each token, and the token."""
    lists: dict[str, Sequence[SecretStr]] = {
        "provider.auth_tokens": settings.provider.auth_tokens,
        "admin.tokens": settings.admin.tokens,
    }
    for number, source in enumerate(settings.directory.sources):
        if tokens := tokens_of(source):
            key = "tokens" if isinstance(source, ScimSourceSettings) else "changes.tokens"
            lists[f"directory.sources[{number}].{key}"] = tokens
    for key, accepted in lists.items():
        for number, token in enumerate(accepted):
            yield f"{key}[{number}]", token.get_secret_value()
    for number, operator in enumerate(settings.console.tokens):
        yield f"console.tokens[{number}].token", operator.token.get_secret_value()
