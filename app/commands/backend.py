"""``usher backend``: the self-hosted backend, and a workspace in it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from app.commands.frame import CommandError, Invocation, UsherGroup, pass_invocation
from app.commands.operator import act_elsewhere
from app.commands.screen import note, on_terminal, progress, say, show_json
from app.commands.serve import ends_with_parent
from app.foundation.clock import epoch_ms, utc_now
from app.foundation.processes import stop_signals
from app.foundation.text import counted

BACKEND_EXTRA = ("jwt", "numpy", "pycrdt", "standardwebhooks")
"""What the extra ``backend`` brings."""


@click.group(cls=UsherGroup)
@click.pass_context
def backend(context: click.Context) -> None:
    """The self-hosted collaboration backend."""
    # A workspace is made through the backend's API: that needs none of it.
    if context.invoked_subcommand == "bootstrap":
        return
    missing = [name for name in BACKEND_EXTRA if find_spec(name) is None]
    if missing:
        raise CommandError(f"the self-hosted backend needs {', '.join(missing)}: pip install 'usher[backend]'")


@backend.command("serve")
@click.option("--port", type=click.IntRange(0, 65535), default=8090, show_default=True, help="Where to listen.")
@ends_with_parent
@pass_invocation
def serve_backend(invocation: Invocation, port: int) -> None:
    """Serve the self-hosted backend, under gunicorn."""
    from app.backend import serve
    from app.commands.bootstrap.databases import open_backend_store
    from app.commands.serve import log_start, server_options

    settings = invocation.settings(server=True)
    open_backend_store(settings).dispose()
    log_start(invocation, "backend", settings.self_hosted_backend.database_url)
    try:
        serve.serve_backend(settings.self_hosted_backend, server_options(settings, port, name="usher-backend"))
    except serve.STARTUP_ERRORS as error:
        raise CommandError(str(error)) from error


@backend.command()
@click.option("--threads", type=click.IntRange(1, 64), default=8, show_default=True, help="Receivers called at a time.")
@ends_with_parent
@pass_invocation
def deliver(invocation: Invocation, threads: int) -> None:
    """Send webhooks, besides those that `usher backend serve` sends.

    Any number of these may run, on any number of nodes.
    """
    from app.backend import serve
    from app.commands.bootstrap.databases import open_backend_store

    settings = invocation.settings(server=True)
    open_backend_store(settings).dispose()
    try:
        with stop_signals() as stop:
            serve.deliver_webhooks(settings.self_hosted_backend, threads, stop)
    except serve.STARTUP_ERRORS as error:
        raise CommandError(str(error)) from error


@backend.command()
@pass_invocation
def upgrade(invocation: Invocation) -> None:
    """Bring the backend's database up to date."""
    from app.commands.bootstrap.databases import upgrade_backend_store

    changed = upgrade_backend_store(invocation.settings())
    say("the backend's database is up to date now" if changed else "the backend's database was up to date")


@backend.command()
@click.option("--email", required=True, metavar="E", help="The owner's address.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_invocation
def bootstrap(invocation: Invocation, email: str, as_json: bool) -> None:
    """Make a workspace, and print its credentials.

    In the backend at backend.base_url. The credentials are printed this once.
    """
    from app.client.errors import ClientError
    from app.client.workspace import WorkspaceError
    from app.commands.bootstrap.outside import new_workspace
    from app.foundation.audit import DONE

    found = invocation.configuration()
    settings = found.settings
    with act_elsewhere(settings, "workspace made", f"for {email} at {settings.backend.base_url}") as act:
        try:
            made = new_workspace(settings, email)
        except (WorkspaceError, ClientError) as error:
            act.outcome = str(error)
            raise
        act.outcome = DONE
    workspace_token, token = made.workspace_auth_token.get_secret_value(), made.auth_token.get_secret_value()
    if as_json:
        show_json(
            {
                "workspaceId": made.workspace_id,
                "workspaceAuthToken": workspace_token,
                "apiKey": made.api_key,
                "authToken": token,
            }
        )
        return
    say(f"# workspace {made.workspace_id}, its own auth token: {workspace_token}")
    if any(
        key.startswith("backend.") and not origin.startswith("environment") for key, origin in found.origins.items()
    ):
        say("# for the section backend of the settings:")
    else:
        say("backend:")
        say(f"  base_url: {settings.backend.base_url}")
    say(f"  api_key: {made.api_key}")
    say(f"  auth_token: {token}")
    if on_terminal():
        note("These credentials are shown only this once. They belong in the settings file, or in the environment as")
        note("USHER_BACKEND__API_KEY and USHER_BACKEND__AUTH_TOKEN.")


@backend.command()
@pass_invocation
def reembed(invocation: Invocation) -> None:
    """Embed all judgments anew after a change of the embedder.

    Beside a server that serves. May be stopped at any time, and goes on where it was.
    """
    from app.backend.embedders import embedder, opening
    from app.backend.judgments import store
    from app.commands.bootstrap.databases import open_backend_store

    settings = invocation.settings()
    name = settings.self_hosted_backend.embedder
    engine = open_backend_store(settings, has_to_exist=True)
    try:
        with progress() as shown:
            shown.phase("embedding", None)
            number = store.reembed_judgments(engine, opening.open_embedder(name), shown.advance)
    except embedder.EmbedderUnavailableError as error:
        raise CommandError(str(error)) from error
    finally:
        engine.dispose()
    say(f"{counted(number, 'judgment')} embedded with {name}; all others were already")


@backend.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--api-key", required=True, metavar="KEY", help="Whose data it is.")
@click.option("--create-missing", is_flag=True, help="Make organizations and documents that are not there.")
@pass_invocation
def import_file(invocation: Invocation, file: Path, api_key: str, *, create_missing: bool) -> None:
    """Bring in comments, reactions, recordings, notifications, activities and judgments.

    FILE holds a JSON object a line, and may be gzipped. What is there already under the same id is replaced.
    """
    from app.backend.collaboration import importing
    from app.backend.embedders import embedder, opening
    from app.backend.schema import METADATA
    from app.backend.storage import sqlite_statistics
    from app.commands.bootstrap.databases import open_backend_store

    settings = invocation.settings()
    engine = open_backend_store(settings, has_to_exist=True)
    sqlite_statistics.ensure_statistics(engine, METADATA)
    try:
        with progress() as shown:
            shown.phase("importing", None)
            made = importing.Import(
                engine=engine,
                embedder=opening.open_embedder(settings.self_hosted_backend.embedder),
                api_key_id=api_key,
                now=epoch_ms(utc_now()),
                create_missing=create_missing,
                on_problem=shown.note,
                on_progress=shown.advance,
            )
            refused = made.run(file)
    except (importing.ImportFailedError, embedder.EmbedderUnavailableError) as error:
        raise CommandError(str(error)) from error
    finally:
        engine.dispose()
    for kind, number in sorted(made.counts.items()):
        say(f"{kind}\t{number}")
    if refused:
        raise CommandError(f"{counted(refused, 'line')} of {file} {'was' if refused == 1 else 'were'} not imported")
