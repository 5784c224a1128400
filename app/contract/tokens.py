"""Requests and results of the token operations: JWTs for clients, and auth tokens of API keys.

Secrets are excluded from every repr.
"""

from typing import Annotated

from pydantic import Field

from app.contract.base import Email, Id, InOrganization, Request, Text, WireModel
from app.contract.permissions import ResourceGrants

Secret = Annotated[Text, Field(repr=False, min_length=1)]


class TokenUserProperties(InOrganization):
    """Claims of the JWT. ``email`` must match the one with which the client identifies the user."""

    is_admin: bool | None = None
    email: Email | None = None


class GenerateTokenRequest(Request):
    """The credentials are in the body instead of headers."""

    api_key: Id
    auth_token: Secret
    user_id: Id
    user_properties: TokenUserProperties | None = None


class GenerateTokenV2UserProperties(Request):
    """Claims of the JWT. The organization may follow from the resources instead."""

    organization_id: Id | None = None
    is_admin: bool | None = None
    email: Email | None = None


class GenerateTokenV2Request(Request):
    """Creates a token and grants its user permissions."""

    user_id: Id
    user_properties: GenerateTokenV2UserProperties | None = None
    permissions: ResourceGrants | None = None


class GeneratedToken(WireModel):
    """A JWT that is valid for ``limits.TOKEN_LIFETIME_SECONDS``."""

    token: str = Field(repr=False)


class ResetAuthTokenRequest(Request):
    api_key: Id


class GetAuthTokensRequest(Request):
    api_key: Id


class AuthToken(WireModel):
    token: str = Field(repr=False)
    name: str | None = None
    domains: list[str] | None = None


class ResetAuthTokenResult(WireModel):
    api_key: str
    new_auth_token: AuthToken


class AuthTokens(WireModel):
    api_key: str
    auth_tokens: list[AuthToken]
