"""Handlers of client tokens and signatures.

A client token is a JWT. A signature over permission results is a JWS (RFC 7515) with a detached, unencoded payload
(RFC 7797), because the verifier already has the results. The ``typ`` header prevents using one as the other.
"""

import json
from collections.abc import Mapping, Sequence

import jwt
from jwt.api_jws import PyJWS
from sqlalchemy import Connection, select

from app.backend.http.auth import WrongBodyCredentialsError, authenticate
from app.backend.http.call import Call, Reply
from app.backend.ids import new_id
from app.backend.permissions.permission_handlers import grant
from app.backend.resources.tables import ORGANIZATION
from app.backend.scope import Scope, within
from app.backend.storage import json_columns
from app.backend.tokens.signing_keys import ALGORITHM, SigningKey, signing_key
from app.contract import limits
from app.contract.errors import InvalidArgument, PermissionDenied
from app.contract.operation import AuthLevel
from app.contract.permissions import GenerateSignatureRequest, ResourceGrant
from app.contract.tokens import GenerateTokenRequest, GenerateTokenV2Request
from app.foundation.database.engine import reading

SIGNATURE_TYPE = "permissions+jws"
_MAX_EXACT = 2.0**53


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


def signed_token(key: SigningKey, claims: Mapping[str, object], now: int) -> str:
    """A JWT with these claims, valid for 48 hours from ``now`` (epoch milliseconds)."""
    issued = now // 1000
    times = {"iat": issued, "exp": issued + limits.TOKEN_LIFETIME_SECONDS}
    return jwt.encode({**claims, **times}, key.private, algorithm=ALGORITHM, headers={"kid": key.key_id})


def signature(key: SigningKey, permissions: Sequence[object], now: int) -> str:
    """``<header>..<signature>`` over ``canonical_json(permissions)``, with the time in the header (``iat``)."""
    headers = {"kid": key.key_id, "typ": SIGNATURE_TYPE, "iat": now // 1000}
    return PyJWS().encode(
        canonical_json(permissions), key.private, algorithm=ALGORITHM, headers=headers, is_payload_detached=True
    )


def canonical_json(value: object) -> bytes:
    """JSON as in RFC 8785: no white space, keys sorted by UTF-16 code units, whole numbers without a fraction."""
    return json.dumps(_canonical(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _canonical(value: object) -> object:
    if isinstance(value, dict):
        return {key: _canonical(value[key]) for key in sorted(value, key=lambda key: str(key).encode("utf-16-be"))}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_EXACT:
        return int(value)
    return value
