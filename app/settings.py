"""All settings, composed of the settings of each package. ``config/usher.yaml`` lists them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from app.access.index.settings import IndexSettings
from app.backend.settings import SelfHostedBackendSettings
from app.client.settings import BackendSettings
from app.directory.settings import DirectorySettings
from app.foundation.configuration.loading import Configuration, load
from app.foundation.configuration.schema import SettingsSection
from app.foundation.database.url import DatabaseUrl, parse_url
from app.foundation.logs import LogSettings
from app.monitoring.notify.settings import NotificationSettings
from app.service.admin.settings import AdminSettings, MetricsSettings
from app.service.console.settings import ConsoleSettings
from app.service.provider.settings import ProviderSettings
from app.sync.runs.settings import SyncSettings


class ServerSettings(SettingsSection):
    """The section ``server``. The self-hosted backend uses it, too, except for the port and the proxies."""

    host: str = "127.0.0.1"
    """The address to listen on. 0.0.0.0 for all."""
    port: int = Field(default=8080, ge=0, le=65535)
    workers: int = Field(default=2, ge=1, le=256)
    """Processes that answer requests."""
    threads: int = Field(default=4, ge=1, le=256)
    """Requests that one process handles in parallel."""
    timeout: int = Field(default=30, ge=1, le=3600)
    """Seconds after which a process that makes no progress is replaced."""
    read_timeout: float = Field(default=15.0, gt=0, le=600)
    """Seconds that a client may pause while it sends a body, or take to receive a response."""
    graceful_timeout: int = Field(default=20, ge=0, le=3600)
    """Seconds for running requests to finish after a stop signal."""
    trusted_proxies: int = Field(default=0, ge=0, le=10)
    """Number of reverse proxies that add to ``X-Forwarded-For``. 0: the header is ignored."""


class WorkerSettings(SettingsSection):
    """The section ``worker``."""

    poll: float = Field(default=1.0, gt=0, le=60)
    """Seconds between two checks of the queue."""
    stop_timeout: float = Field(default=30.0, ge=0, le=3600)
    """Seconds for a run to stop after a stop signal."""
    nice: int = Field(default=10, ge=0, le=19)
    """Niceness of the worker, so that other processes have priority. 0: none."""
    keep_runs: int = Field(default=30, ge=1, le=3650)
    """Days after which ended runs and their plans are deleted."""


class Settings(BaseSettings):
    """All settings. Use ``load_settings`` to read them: the constructor reads neither environment nor files."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, nested_model_default_partial_update=False)

    database_url: DatabaseUrl = "sqlite:///var/usher.db"
    """Usher's own database: sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME."""
    server: ServerSettings = ServerSettings()
    provider: ProviderSettings = ProviderSettings()
    index: IndexSettings = IndexSettings()
    backend: BackendSettings = BackendSettings()
    directory: DirectorySettings = DirectorySettings()
    sync: SyncSettings = SyncSettings()
    worker: WorkerSettings = WorkerSettings()
    notifications: NotificationSettings = NotificationSettings()
    admin: AdminSettings = AdminSettings()
    console: ConsoleSettings = ConsoleSettings()
    metrics: MetricsSettings = MetricsSettings()
    log: LogSettings = LogSettings()
    self_hosted_backend: SelfHostedBackendSettings = SelfHostedBackendSettings()

    @model_validator(mode="after")
    def _require_separate_databases(self) -> Self:
        own, backends = (parse_url(url) for url in (self.database_url, self.self_hosted_backend.database_url))
        if own.get_backend_name() == backends.get_backend_name() == "sqlite":
            is_shared = Path(str(own.database)).resolve() == Path(str(backends.database)).resolve()
        else:
            is_shared = own == backends
        if is_shared:
            raise ValueError(
                "database_url and self_hosted_backend.database_url are the same; give each a database of its own"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic-settings' signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - as above
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - as above
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - as above
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # `load` reads environment and files, and records the origin of each value.
        return (init_settings,)


def load_settings(
    file: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    command_line: Mapping[str, Any] | None = None,
) -> Configuration[Settings]:
    """Reads the settings and the origin of each. No other code reads the environment. Raises ``ConfigurationError``."""
    return load(
        Settings, environment=os.environ if environment is None else environment, file=file, command_line=command_line
    )
