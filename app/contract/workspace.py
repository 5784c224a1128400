"""Workspaces: their owner, API keys, domains and email configuration."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from app.contract import limits
from app.contract.base import Email, Name, Request, Text, Url, WireModel

ApiKeyType = Literal["testing", "production"]
OwnerEmail = Annotated[Email, Field(json_schema_extra={"format": "email"})]


class Owner(WireModel):
    """The user who created the workspace."""

    email: str | None = None
    id: str | None = None
    name: str | None = None
    avatar: str | None = None


class ApiKey(WireModel):
    id: str
    api_key_name: str | None = None
    type: str | None = None


class Workspace(WireModel):
    """A workspace. ``apiKeyList`` is keyed by API key id."""

    id: str
    name: str | None = None
    owner: Owner | None = None
    auth_token: str | None = Field(default=None, repr=False)
    api_key_list: dict[str, ApiKey] = Field(default_factory=dict)


class CreateWorkspaceRequest(Request):
    """Defaults: ``name`` is the owner's email, ``workspaceName`` is ``<name> workspace``."""

    owner_email: OwnerEmail
    name: Name | None = None
    workspace_name: Name | None = None
    avatar: Annotated[Url, Field(max_length=limits.AVATAR_LENGTH)] | None = None


class CreateApiKeyRequest(Request):
    owner_email: OwnerEmail
    type: ApiKeyType
    create_auth_token: bool | None = None
    api_key_name: Name | None = None


class CreatedApiKey(WireModel):
    api_key: str


Domain = Annotated[Text, Field(min_length=1, max_length=limits.URL_LENGTH)]
"""The backend removes protocol and ``www.``. ``*.`` matches every subdomain."""


class AddDomainsRequest(Request):
    domains: Annotated[list[Domain], Field(max_length=limits.DOMAINS_PER_CALL)]


class AddedDomains(WireModel):
    domains_added: list[str]


class EmailServiceConfig(Request):
    """The configuration of notification emails. ``triggers`` turns event types on and off."""

    type: Text | None = None
    api_key: Text | None = Field(default=None, repr=False)
    from_email: Email | None = None
    from_company: JsonValue = None
    triggers: dict[str, bool] | None = None


class UpdateEmailConfigRequest(Request):
    """Merged into the stored configuration."""

    use_email_service: bool | None = None
    email_service_config: EmailServiceConfig | None = None


class EmailConfig(WireModel):
    """The stored configuration."""

    use_email_service: bool = False
    email_service_config: dict[str, JsonValue] | None = None
