"""``usher provider register``: registers this service in the backend as its permission provider."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from app.commands.frame import CommandError, Invocation, UsherGroup, json_option, pass_invocation
from app.commands.operator import audited_action, reason_option
from app.commands.screen import on_terminal, print_note, print_result, show_json
from app.foundation.text import printable

if TYPE_CHECKING:
    from app.client.registration import Registration
    from app.service.provider.settings import ProviderSettings

_TOKENS = {
    "accepted": "with an accepted token",
    "unknown": "with a token that is not among provider.auth_tokens",
    "none": "without a token",
}


@click.group(cls=UsherGroup)
def provider() -> None:
    """Register this service with the backend as its permission provider."""


@provider.command("register")
@click.option(
    "--url",
    required=True,
    metavar="URL",
    help="The address of the service for the backend: https, ending in provider.path.",
)
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File with the token to register, one of provider.auth_tokens. Default: the first of them.",
)
@click.option("--any-path", is_flag=True, help="Allow a path other than provider.path, if a proxy rewrites it.")
@click.option("--plain-http", is_flag=True, help="Allow http. Use it only in a network that is safe without TLS.")
@reason_option
@json_option
@pass_invocation
def register_(
    invocation: Invocation,
    url: str,
    token_file: Path | None,
    *,
    any_path: bool,
    plain_http: bool,
    reason: str | None,
    as_json: bool,
) -> None:
    """Register this service in the backend.

    Sets the URL and the token in the backend at backend.base_url, and enables its permission provider. Prints the
    previous and the new registration, without the token.
    """
    from app.client.registration import check_url, register
    from app.commands.bootstrap.application import application
    from app.commands.bootstrap.outgoing import backend_client
    from app.commands.bootstrap.requirements import require_backend
    from app.foundation.audit import DONE, AuditAction
    from app.http.tokens import TokenSet

    settings = invocation.settings()
    require_backend(settings)
    check_url(url, settings.provider.path, any_path=any_path, plain_http=plain_http)
    token = _token(settings.provider, token_file)
    with (
        application(settings) as parts,
        audited_action(parts.engine, AuditAction.REGISTER, url, reason) as action,
        backend_client(settings) as client,
    ):
        registered = register(client, url, token, TokenSet(settings.provider.auth_tokens).accepts)
        action.outcome = DONE if registered.changed else "no change: already registered"
    if as_json:
        before = None if registered.before is None else registered.before.to_wire()
        show_json({"before": before, "after": registered.after.to_wire(), "changed": registered.changed})
        return
    print_result(f"before: {_in_words(registered.before)}")
    print_result(f"now: {_in_words(registered.after)}")
    if on_terminal():
        print_note("usher doctor calls the service as the backend does, and reports whether it answers.")


def _token(settings: ProviderSettings, file: Path | None) -> str:
    """The token to register. Raises ``CommandError`` if the service would refuse it."""
    from app.commands.bootstrap.requirements import MissingSettingError
    from app.foundation.files import read_small_file
    from app.http.tokens import TokenSet

    if file is None:
        if settings.auth_tokens:
            return settings.auth_tokens[0].get_secret_value()
        if settings.allow_anonymous:
            return ""
        raise MissingSettingError("provider.auth_tokens is empty: add a token, which the backend will send")
    try:
        token = read_small_file(file).decode("utf-8").strip()
    except UnicodeDecodeError:
        raise CommandError(f"--token-file {file}: is not a text file") from None
    except OSError as error:
        raise CommandError(f"--token-file {file}: {error.strerror}") from None
    if not token or len(token.splitlines()) != 1:
        raise CommandError(f"--token-file {file}: must contain one token, on one line")
    if not settings.allow_anonymous and not TokenSet(settings.auth_tokens).accepts(token):
        raise CommandError(
            f"--token-file {file}: the token is not among provider.auth_tokens, so the service would refuse the"
            " backend: accept it there first"
        )
    return token


def _in_words(registration: Registration | None) -> str:
    if registration is None:
        return "unknown: the backend cannot return it"
    if not registration.url:
        return "the backend calls no permission provider"
    calls = "calls" if registration.in_use else "has its permission provider disabled. It would call"
    return printable(f"the backend {calls} {registration.url}, {_TOKENS[registration.token]}")
