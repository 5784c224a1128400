"""The requirements that settings have to meet before anything is made from them."""

from importlib.util import find_spec

from app.settings import Settings

SHORTEST_TOKEN = 16
"""Characters of a token that lets callers in: whoever guesses is not slowed down enough for fewer."""

NO_SOURCES = (
    "directory.sources is empty: name the directory file, for example"
    " directory: {sources: [{type: file, path: /srv/directory/export.jsonl}]}"
)
"""What is said where a directory is needed and none is configured."""


class SetUpError(Exception):
    """What was asked for cannot be done with these settings; the text is one line that names the key and the fix."""


class MissingSettingError(SetUpError):
    """A setting that is needed is empty: perhaps the file that has it was not read."""


def require_backend(settings: Settings) -> None:
    """Raises ``SetUpError`` when the credentials for the backend are missing."""
    missing = [f"backend.{name}" for name in _missing_credentials(settings)]
    if missing:
        raise MissingSettingError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} empty: set the backend's credentials"
            " (usher backend bootstrap makes some for the self-hosted backend)"
        )


def has_credentials(settings: Settings) -> bool:
    """Whether the backend can be called at all."""
    return not _missing_credentials(settings)


def _missing_credentials(settings: Settings) -> list[str]:
    backend = {"api_key": settings.backend.api_key, "auth_token": settings.backend.auth_token}
    return [name for name, secret in backend.items() if not secret.get_secret_value()]


def require_sources(settings: Settings) -> None:
    """Raises ``SetUpError`` when no directory source is configured."""
    if not settings.directory.sources:
        raise MissingSettingError(NO_SOURCES)


def require_provider_tokens(settings: Settings) -> None:
    """Raises ``SetUpError`` when anyone could ask for anybody's permissions, or guess how, without that being meant."""
    if not settings.provider.auth_tokens and not settings.provider.allow_anonymous:
        raise MissingSettingError(
            "provider.auth_tokens is empty: set at least one token, or provider.allow_anonymous: true to let anyone ask"
        )
    short = short_tokens(settings)
    if short:
        raise SetUpError(
            f"{' and '.join(short)} {'is' if len(short) == 1 else 'are'} shorter than {SHORTEST_TOKEN} characters and"
            " could be guessed: make one with openssl rand -hex 24"
        )


def require_issuer_library(settings: Settings) -> None:
    """Raises ``SetUpError`` when people are to sign in through an issuer, and what that takes is not installed."""
    if settings.console.enabled and settings.console.oidc.issuer and find_spec("authlib") is None:
        raise SetUpError(
            "console.oidc needs the library that the extra \"console\" brings: pip install 'usher[console]'"
        )


def short_tokens(settings: Settings) -> list[str]:
    """Which tokens that let callers in could be guessed."""
    given = {"provider.auth_tokens": settings.provider.auth_tokens, "admin.tokens": settings.admin.tokens}
    for index, source in enumerate(settings.directory.sources):
        if source.changes is not None:
            given[f"directory.sources[{index}].changes.tokens"] = source.changes.tokens
    found = [
        f"{key}[{index}]"
        for key, tokens in given.items()
        for index, token in enumerate(tokens)
        if len(token.get_secret_value()) < SHORTEST_TOKEN
    ]
    return found + [
        f"console.tokens[{index}].token"
        for index, one in enumerate(settings.console.tokens)
        if len(one.token.get_secret_value()) < SHORTEST_TOKEN
    ]
