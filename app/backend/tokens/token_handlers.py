"""Handlers of client tokens and signatures."""

from collections.abc import Sequence

from sqlalchemy import Connection, select

from app.backend.http.auth import WrongBodyCredentialsError, authenticate
from app.backend.http.call import Call, Reply
from app.backend.ids import new_id
from app.backend.permissions.permission_handlers import grant
from app.backend.resources.tables import ORGANIZATION
from app.backend.scope import Scope, within
from app.backend.storage import json_columns
from app.backend.tokens.jwt import signature, signed_token
from app.backend.tokens.signing_keys import signing_key
from app.contract.errors import InvalidArgument, PermissionDenied
from app.contract.operation import AuthLevel
from app.contract.permissions import GenerateSignatureRequest, ResourceGrant
from app.contract.tokens import GenerateTokenRequest, GenerateTokenV2Request
from app.foundation.database.engine import reading


def generate_token(call: Call[GenerateTokenRequest]) -> Reply:
    """Returns a token. The credentials are in the body, so wrong ones are an invalid argument."""
    request = call.request
    organization_id = None if request.user_properties is None else request.user_properties.organization_id
    with reading(call.backend.engine) as connection:
        try:
            authenticate(connection, call.backend.vault, AuthLevel.K, (request.api_key, request.auth_token))
        except PermissionDenied as error:
            raise WrongBodyCredentialsError("data.authToken: the auth token is not found") from error
        _refuse_disabled(connection, request.api_key, organization_id)
    token = _token(call, request.api_key, organization_id)
    return Reply("Token generated successfully.", {"token": token})


def generate_token_v2(call: Call[GenerateTokenV2Request]) -> Reply:
    """Grants the permissions, all or none, and returns a token."""
    request, api_key_id = call.request, call.principal.api_key_id
    resources = [] if request.permissions is None else request.permissions.resources
    organization_id = None if request.user_properties is None else request.user_properties.organization_id
    organization_id = organization_id or _common_organization(resources)
    with reading(call.backend.engine) as connection:
        _refuse_disabled(connection, api_key_id, organization_id)
    token = _token(call, api_key_id, organization_id)
    if resources:
        with call.exclusive_write() as connection:
            grant(connection, api_key_id, request.user_id, resources, call.now)
    return Reply("Token generated successfully.", {"token": token})


def generate_signature(call: Call[GenerateSignatureRequest]) -> Reply:
    """Returns a signature of the permissions."""
    key = signing_key(call, call.principal.api_key_id)
    signed = signature(key, call.request.permissions, call.now)
    return Reply("Signature generated successfully.", {"signature": signed})


def _token(
    call: Call[GenerateTokenRequest] | Call[GenerateTokenV2Request], api_key_id: str, organization_id: str | None
) -> str:
    user_id, properties = call.request.user_id, call.request.user_properties
    claims = {
        "iss": call.backend.settings.public_url,
        "aud": api_key_id,
        "sub": user_id,
        "jti": new_id(call.backend.entropy),
        "userId": user_id,
        "isAdmin": bool(properties and properties.is_admin),
    }
    optional = json_columns.without_none(organizationId=organization_id, email=properties.email if properties else None)
    return signed_token(signing_key(call, api_key_id), claims | optional, call.now)


def _common_organization(resources: Sequence[ResourceGrant]) -> str | None:
    """The organization of the resources, if they share one."""
    organizations = {resource.organization_id or resource.id for resource in resources}
    return organizations.pop() if len(organizations) == 1 else None


def _refuse_disabled(connection: Connection, api_key_id: str, organization_id: str | None) -> None:
    """Raises if the organization is disabled. It need not exist, because a client creates it when it identifies."""
    if organization_id is not None:
        scope = Scope(api_key_id, organization_id)
        if connection.scalar(select(ORGANIZATION.c.disabled).where(within(ORGANIZATION, scope))):
            raise InvalidArgument("data.userProperties.organizationId: the organization is disabled")
