"""The world outside as settings name it: the directory's sources, the backend, and who is told of what."""

import os
import tempfile
from hashlib import sha256
from pathlib import Path
from random import Random
from threading import Event
from typing import TYPE_CHECKING

from app.commands.bootstrap.databases import database_location
from app.commands.bootstrap.requirements import require_backend
from app.directory.configured import sources_from_settings
from app.directory.source import Source
from app.foundation.clock import Clock
from app.foundation.database.engine import parse_url
from app.settings import Settings

if TYPE_CHECKING:
    from requests.adapters import BaseAdapter

    from app.client.client import BackendClient, Observer
    from app.client.workspace import NewWorkspace
    from app.monitoring.notify.message import Channel


def configured_sources(settings: Settings, *, stop: Event | None = None, spool: bool = True) -> list[Source]:
    """The directory's sources, in the order of the configuration; ``stop`` ends their reads.

    ``spool``: they keep what they need between reads, which suits whoever reads for good and not whoever only looks.
    """
    folder = spool_folder(settings) if spool else None
    return sources_from_settings(settings.directory, stop=stop, spool=folder)


def spool_folder(settings: Settings) -> Path:
    """Where sources keep what they need between reads. It may be lost: they are then read as a whole."""
    if settings.directory.spool is not None:
        return settings.directory.spool
    url = parse_url(settings.database_url)
    if url.get_backend_name() == "sqlite" and url.database and url.database != ":memory:":
        return Path(f"{url.database}-spool")
    # Installations that share a machine and a user may have sources of the same name.
    which = sha256(database_location(settings.database_url).encode()).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"usher-spool-{os.getuid()}-{which}"


def backend_client(
    settings: Settings,
    *,
    clock: Clock | None = None,
    random: Random | None = None,
    stop: Event | None = None,
    observer: "Observer | None" = None,
) -> "BackendClient":
    """A client of the configured backend; ``stop`` ends its waits. Raises ``SetUpError`` without credentials."""
    from app.client.client import BackendClient

    require_backend(settings)
    return BackendClient(settings.backend, clock=clock, random=random, stop=stop, observer=observer)


def impatient_client(
    settings: Settings, *, timeout: float, clock: Clock | None = None, transport: "BaseAdapter | None" = None
) -> "BackendClient":
    """A client that tries each call once, for ``timeout`` seconds. ``transport`` replaces the network."""
    from app.client.client import BackendClient
    from app.client.retry import RetryPolicy

    return BackendClient(
        settings.backend.model_copy(update={"timeout": timeout}),
        transport=transport,
        clock=clock,
        policy=RetryPolicy(repeats=0, max_waiting=0),
    )


def new_workspace(settings: Settings, email: str) -> "NewWorkspace":
    """A workspace for the owner of this address, made in the configured backend.

    Raises what ``make_workspace`` does.
    """
    from app.client.client import BackendClient
    from app.client.workspace import make_workspace

    return make_workspace(lambda credentials: BackendClient(settings.backend, workspace=credentials), email)


def notification_channels(settings: Settings, *, clock: Clock) -> "list[Channel]":
    """Along which people are told; nothing is connected yet."""
    from app.monitoring.notify.channels import channels_from_settings

    return channels_from_settings(settings.notifications, clock=clock)
