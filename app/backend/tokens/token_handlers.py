"""Tokens for clients, signatures, and the keys with which others check them."""

from collections.abc import Sequence

from sqlalchemy import Connection, select

from app.backend.http.auth import WrongBodyCredentialsError, authenticate
from app.backend.http.call import Backend, Call, Reply
from app.backend.http.dispatch import exclusive_write
from app.backend.ids import new_id
from app.backend.permissions.permission_handlers import give
from app.backend.resources.tables import ORGANIZATION
from app.backend.scope import Scope, within
from app.backend.tokens.jwt import TokenSubject, signature, signed_token
from app.backend.tokens.signing_keys import SigningKey, current_key, key_made_if_needed, published_keys
from app.clock import epoch_ms
from app.contract.errors import InvalidArgument, PermissionDenied
from app.contract.operation import AuthLevel
from app.contract.permissions import GenerateSignatureRequest, ResourceGrant
from app.contract.storable import is_storable
from app.contract.tokens import GenerateTokenRequest, GenerateTokenV2Request
from app.database.engine import reading

_ORGANIZATION_FIELD = "data.userProperties.organizationId"


def generate_token(call: Call[GenerateTokenRequest]) -> Reply:
    """Credentials are in the body here, so wrong ones are a wrong argument."""
    request = call.request
    subject = _subject(request)
    with reading(call.backend.engine) as connection:
        try:
            authenticate(connection, call.backend.vault, AuthLevel.K, (request.api_key, request.auth_token))
        except PermissionDenied as error:
            raise WrongBodyCredentialsError("data.authToken: the auth token is not found") from error
        _refuse_disabled(connection, request.api_key, subject.organization_id)
        key = current_key(connection, call.backend, request.api_key)
    key = key or key_made_if_needed(call, request.api_key)
    return Reply("Token generated successfully.", {"token": _token(call, request.api_key, key, subject)})


def generate_token_v2(call: Call[GenerateTokenV2Request]) -> Reply:
    """Gives the permissions, all or none, and a token. A token without permissions changes nothing."""
    request = call.request
    api_key_id = call.principal.api_key_id
    resources = [] if request.permissions is None else request.permissions.resources
    subject = _subject(request, _only_organization(resources))
    with reading(call.backend.engine) as connection:
        _refuse_disabled(connection, api_key_id, subject.organization_id)
        key = current_key(connection, call.backend, api_key_id)
    key = key or key_made_if_needed(call, api_key_id)
    token = _token(call, api_key_id, key, subject)
    if resources:
        with exclusive_write(call) as connection:
            give(connection, api_key_id, request.user_id, resources, call.now)
    return Reply("Token generated successfully.", {"token": token})


def generate_signature(call: Call[GenerateSignatureRequest]) -> Reply:
    api_key_id = call.principal.api_key_id
    with reading(call.backend.engine) as connection:
        key = current_key(connection, call.backend, api_key_id)
    key = key or key_made_if_needed(call, api_key_id)
    signed = signature(key, call.request.permissions, call.now)
    return Reply("Signature generated successfully.", {"signature": signed})


def key_set(backend: Backend, api_key_id: str) -> dict[str, object]:
    """The public keys of an API key, as a JWK set."""
    if not is_storable(api_key_id):
        return {"keys": []}
    with reading(backend.engine) as connection:
        return published_keys(connection, api_key_id, epoch_ms(backend.clock()))


def _subject(
    request: GenerateTokenRequest | GenerateTokenV2Request, only_organization: str | None = None
) -> TokenSubject:
    given = request.user_properties
    if given is None:
        return TokenSubject(user_id=request.user_id, organization_id=only_organization)
    return TokenSubject(
        user_id=request.user_id,
        organization_id=given.organization_id or only_organization,
        is_admin=bool(given.is_admin),
        email=given.email,
    )


def _token(
    call: Call[GenerateTokenRequest] | Call[GenerateTokenV2Request],
    api_key_id: str,
    key: SigningKey,
    subject: TokenSubject,
) -> str:
    return signed_token(
        key,
        subject,
        issuer=call.backend.settings.public_url,
        api_key_id=api_key_id,
        token_id=new_id(call.backend.entropy),
        now=call.now,
    )


def _only_organization(resources: Sequence[ResourceGrant]) -> str | None:
    """The organization that all of the resources are in, if it is one."""
    organizations = {resource.organization_id or resource.id for resource in resources}
    return organizations.pop() if len(organizations) == 1 else None


def _refuse_disabled(connection: Connection, api_key_id: str, organization_id: str | None) -> None:
    """A disabled organization lets nobody in. One that is not there yet is no hindrance: clients make it when they
    identify.
    """
    if organization_id is None:
        return
    scope = Scope(api_key_id, organization_id)
    if connection.scalar(select(ORGANIZATION.c.disabled).where(within(ORGANIZATION, scope))):
        raise InvalidArgument(f"{_ORGANIZATION_FIELD}: the organization is disabled")
