"""The settings of the admin and metrics endpoints."""

from pydantic import Field, SecretStr

from app.foundation.configuration.schema import SettingsSection


class AdminSettings(SettingsSection):
    """The section ``admin``."""

    tokens: tuple[SecretStr, ...] = ()
    """Bearer tokens. Each of them is valid, so that tokens can be rotated. Empty: no access."""


class MetricsSettings(SettingsSection):
    """The section ``metrics``."""

    require_token: bool = False
    """Whether ``/metrics`` requires an admin token, also at ``worker_port``."""
    directory: str = ""
    """The folder in which the processes of one machine share their counters. Empty: a temporary one."""
    worker_port: int = Field(default=0, ge=0, le=65535)
    """The port at which a separate worker serves its metrics, at ``server.host``. 0: none."""
