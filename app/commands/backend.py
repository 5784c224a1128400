"""``usher backend``: serves and maintains the self-hosted backend, and creates workspaces."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from app.commands.daemon import ends_with_parent, log_start, server_options
from app.commands.frame import CommandError, Invocation, UsherGroup, json_option, pass_invocation
from app.commands.operator import audited_action
from app.commands.progress import progress
from app.commands.screen import on_terminal, print_note, print_result, show_json
from app.foundation.clock import epoch_ms, utc_now
from app.foundation.text import counted, were

DEFAULT_PORT = 8090
"""The default of ``usher backend serve --port``."""

BACKEND_EXTRA = ("jwt", "numpy", "pycrdt", "standardwebhooks")
"""Modules that the extra ``backend`` installs."""


@click.group(cls=UsherGroup)
@click.pass_context
def backend(context: click.Context) -> None:
    """The self-hosted collaboration backend."""
    # bootstrap calls the API only, which needs none of them.
    if context.invoked_subcommand == "bootstrap":
        return
    missing = [name for name in BACKEND_EXTRA if find_spec(name) is None]
    if missing:
        raise CommandError(f"the self-hosted backend needs {', '.join(missing)}: pip install 'usher[backend]'")


@backend.command("serve")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="The port to listen on."
)
@ends_with_parent
@pass_invocation
def serve_backend(invocation: Invocation, port: int) -> None:
    """Serve the self-hosted backend with gunicorn."""
    from app.backend import serve
    from app.commands.bootstrap.databases import open_backend_store

    settings = invocation.settings(server=True)
    open_backend_store(settings).dispose()
    log_start(invocation, "backend", settings.self_hosted_backend.database_url)
    try:
        serve.serve_backend(settings.self_hosted_backend, server_options(settings, port, name="usher-backend"))
    except serve.STARTUP_ERRORS as error:
        raise CommandError(str(error)) from error


@backend.command()
@pass_invocation
def upgrade(invocation: Invocation) -> None:
    """Upgrade the backend's database."""
    from app.commands.bootstrap.databases import upgrade_backend_store

    changed = upgrade_backend_store(invocation.settings())
    print_result("the backend's database is up to date now" if changed else "the backend's database was up to date")


@backend.command()
@click.option("--email", required=True, metavar="E", help="The owner's e-mail address.")
@json_option
@pass_invocation
def bootstrap(invocation: Invocation, email: str, as_json: bool) -> None:
    """Create a workspace, and print its credentials.

    In the backend at backend.base_url. The credentials are printed only once.
    """
    from app.commands.bootstrap.application import application
    from app.commands.bootstrap.outgoing import new_workspace
    from app.foundation.audit import DONE, AuditAction

    configuration = invocation.configuration()
    settings = configuration.settings
    subject = f"for {email} at {settings.backend.base_url}"
    with application(settings) as parts, audited_action(parts.engine, AuditAction.WORKSPACE, subject) as action:
        workspace = new_workspace(settings, email)
        action.outcome = DONE
    wire = {
        "workspaceId": workspace.workspace_id,
        "workspaceAuthToken": workspace.workspace_auth_token.get_secret_value(),
        "apiKey": workspace.api_key,
        "authToken": workspace.auth_token.get_secret_value(),
    }
    if as_json:
        show_json(wire)
        return
    print_result(f"# workspace {wire['workspaceId']}, its own auth token: {wire['workspaceAuthToken']}")
    origins = [origin for key, origin in configuration.origins.items() if key.startswith("backend.")]
    if any(not origin.startswith("environment") for origin in origins):
        print_result("# for the section backend of the settings:")
    else:
        print_result("backend:")
        print_result(f"  base_url: {settings.backend.base_url}")
    print_result(f"  api_key: {wire['apiKey']}")
    print_result(f"  auth_token: {wire['authToken']}")
    if on_terminal():
        print_note("These credentials are shown only once. Copy them to the settings file, or to the environment as")
        print_note("USHER_BACKEND__API_KEY and USHER_BACKEND__AUTH_TOKEN.")


@backend.command()
@pass_invocation
def reembed(invocation: Invocation) -> None:
    """Embed all judgments again after a change of the embedder.

    The server may run meanwhile. An interrupted command continues where it stopped.
    """
    from app.backend.embedders import embedder, open_embedder
    from app.backend.judgments import store
    from app.commands.bootstrap.databases import open_backend_store
    from app.foundation.database.engine import disposing

    settings = invocation.settings()
    name = settings.self_hosted_backend.embedder
    try:
        with disposing(open_backend_store(settings, must_exist=True)) as engine, progress() as display:
            display.phase("embedding", None)
            number = store.reembed_judgments(engine, open_embedder(name), display.advance)
    except embedder.EmbedderUnavailableError as error:
        raise CommandError(str(error)) from error
    print_result(f"{counted(number, 'judgment')} embedded with {name}; all others already were")


@backend.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--api-key", required=True, metavar="KEY", help="The API key that the data belongs to.")
@click.option("--create-missing", is_flag=True, help="Create organizations and documents that do not exist.")
@pass_invocation
def import_file(invocation: Invocation, file: Path, api_key: str, *, create_missing: bool) -> None:
    """Import comments, reactions, recordings, notifications, activities and judgments.

    FILE contains one JSON object per line, and may be gzipped. Objects with an existing id are replaced.
    """
    from app.backend.collaboration import importing
    from app.backend.embedders import embedder, open_embedder
    from app.backend.schema import METADATA
    from app.backend.storage import sqlite_statistics
    from app.commands.bootstrap.databases import open_backend_store
    from app.foundation.database.engine import disposing

    settings = invocation.settings()
    try:
        with disposing(open_backend_store(settings, must_exist=True)) as engine, progress() as display:
            sqlite_statistics.ensure_statistics(engine, METADATA)
            display.phase("importing", None)
            run = importing.Import(
                engine=engine,
                embedder=open_embedder(settings.self_hosted_backend.embedder),
                api_key_id=api_key,
                now=epoch_ms(utc_now()),
                create_missing=create_missing,
                on_problem=display.note,
                on_progress=display.advance,
            )
            refused = run.run(file)
    except (importing.ImportFailedError, embedder.EmbedderUnavailableError) as error:
        raise CommandError(str(error)) from error
    for kind, number in sorted(run.counts.items()):
        print_result(f"{kind}\t{number}")
    if refused:
        raise CommandError(f"{counted(refused, 'line')} of {file} {were(refused)} not imported")
