"""The names of the headers with credentials.

Vendors of this API use different prefixes (``x-service-`` in the reference), so the prefix is a setting.
"""

from dataclasses import dataclass

DEFAULT_PREFIX = "x-service-"


@dataclass(frozen=True, slots=True)
class HeaderNames:
    """The four credential headers with one prefix, in lower case."""

    prefix: str = DEFAULT_PREFIX

    @property
    def api_key(self) -> str:
        return f"{self.prefix}api-key"

    @property
    def auth_token(self) -> str:
        return f"{self.prefix}auth-token"

    @property
    def workspace_id(self) -> str:
        return f"{self.prefix}workspace-id"

    @property
    def workspace_auth_token(self) -> str:
        return f"{self.prefix}workspace-auth-token"
