"""Builds what connects to other systems: sources of the directory, clients of the backend, notification channels."""

import os
import tempfile
from functools import partial
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from app.commands.bootstrap.databases import database_location, existing_store, sqlite_file
from app.commands.bootstrap.requirements import require_backend
from app.directory.configured import sources_from_settings
from app.directory.source import Source
from app.foundation.clock import Clock
from app.settings import Settings

if TYPE_CHECKING:
    from app.client.client import BackendClient
    from app.client.workspace import NewWorkspace
    from app.monitoring.notify.message import Channel


def configured_sources(settings: Settings, *, stop: Event | None = None, spool: bool = True) -> list[Source]:
    """The configured sources, in order. ``stop`` ends their reads. ``spool``: keep state between reads on disk."""
    folder = spool_folder(settings) if spool else None
    return sources_from_settings(settings.directory, stop=stop, spool=folder, store=partial(existing_store, settings))


def spool_folder(settings: Settings) -> Path:
    """The folder where sources keep state between reads. If it is lost, they are read completely."""
    if settings.directory.spool is not None:
        return settings.directory.spool
    if file := sqlite_file(settings.database_url):
        return Path(f"{file}-spool")
    # Several installations of one user may have sources of the same name.
    digest = sha256(database_location(settings.database_url).encode()).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"usher-spool-{os.getuid()}-{digest}"


def backend_client(settings: Settings, *, timeout: float | None = None, **parts: Any) -> "BackendClient":
    """A client of the configured backend, with further ``parts`` as of ``BackendClient``. With a ``timeout``, in
    seconds, it tries each call once. Raises ``SetUpError`` without credentials."""
    from app.client.client import BackendClient
    from app.client.retry import RetryPolicy

    require_backend(settings)
    if timeout is None:
        return BackendClient(settings.backend, **parts)
    policy = RetryPolicy(repeats=0, max_waiting=0)
    return BackendClient(settings.backend.model_copy(update={"timeout": timeout}), policy=policy, **parts)


def new_workspace(settings: Settings, email: str) -> "NewWorkspace":
    """Creates a workspace in the configured backend, owned by this address. Raises what ``make_workspace`` raises."""
    from app.client.client import BackendClient
    from app.client.workspace import make_workspace

    return make_workspace(lambda credentials: BackendClient(settings.backend, workspace=credentials), email)


def notification_channels(settings: Settings, *, clock: Clock) -> "list[Channel]":
    """The configured notification channels, not yet connected."""
    from app.monitoring.notify.channels import channels_from_settings

    return channels_from_settings(settings.notifications, clock=clock)
