"""The settings of the endpoints for operators."""

from pydantic import BaseModel, ConfigDict, Field, SecretStr


class AdminSettings(BaseModel):
    """The section ``admin``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: list[SecretStr] = []
    """Any of these is accepted as a bearer token, so that a token can be rotated; empty: nobody gets in."""


class MetricsSettings(BaseModel):
    """The section ``metrics``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    require_token: bool = False
    """Whether ``/metrics`` asks for an admin token, too; also at ``worker_port``."""
    directory: str = ""
    """Where the processes of one machine put their counters together; empty: a temporary folder of the service's."""
    worker_port: int = Field(default=0, ge=0, le=65535)
    """The port at which a worker of its own shows its counters, at ``server.host``; 0: none."""
