"""The SCIM protocol of this service: resource types, tolerated deviations of directories, and supported features."""

from typing import Annotated

from pydantic import Field, field_validator
from scim2_models import (
    AnyExtension,
    AuthenticationScheme,
    Bulk,
    CaseExact,
    ChangePassword,
    ComplexAttribute,
    Email,
    ETag,
    Filter,
    Group,
    Mutability,
    Patch,
    Photo,
    Reference,
    ResourceType,
    ScimPolicy,
    ScimProvider,
    ServiceProviderConfig,
    Sort,
    User,
    X509Certificate,
)
from scim2_models import EnterpriseUser as StandardEnterpriseUser
from scim2_server.service import ScimService

MAX_RESULTS = 500
"""The maximum of resources in a page."""

TOLERANT = ScimPolicy(
    unknown=ScimPolicy.Unknown.ignore,
    remove_value_as_filter=ScimPolicy.RemoveValue.apply,
    unmatched_path_filter=ScimPolicy.UnmatchedPathFilter.create,
)
"""Accepts what Microsoft Entra ID and Okta send."""


class Manager(ComplexAttribute):
    """The manager of a user. Directories send its id alone."""

    value: Annotated[str | None, CaseExact.true] = None
    ref: Annotated[
        Reference["User"] | None,  # type: ignore[type-arg] # the name is published as the type of the reference
        Field(serialization_alias="$ref", validation_alias="$ref"),
    ] = None
    display_name: Annotated[str | None, Mutability.read_only] = None


class EnterpriseUser(StandardEnterpriseUser):
    """The enterprise extension of users."""

    manager: Manager | None = None  # type: ignore[assignment] # the standard one has required attributes

    @field_validator("manager", mode="before")
    @classmethod
    def _as_object(cls, value: object) -> object:
        """Directories also send the id as text, and an empty one to remove the manager."""
        if isinstance(value, str):
            value = {"value": value}
        return None if isinstance(value, dict) and value.get("value") == "" else value


class _Email(Email):
    value: str | None = None


class _Photo(Photo):
    value: str | None = None  # type: ignore[assignment] # the standard one is a URL


class _Certificate(X509Certificate):
    value: str | None = None  # type: ignore[assignment] # the standard one decodes it


class PushedUser(User[AnyExtension]):
    """A user whose addresses are any text. Otherwise one that no rule uses could prevent that access ends."""

    emails: list[_Email] | None = None  # type: ignore[assignment] # a list of the standard ones
    photos: list[_Photo] | None = None  # type: ignore[assignment] # as above
    x509_certificates: list[_Certificate] | None = None  # type: ignore[assignment] # as above
    profile_url: str | None = None  # type: ignore[assignment] # the standard one is a URL


def new_service(policy: ScimPolicy = TOLERANT) -> ScimService:
    """The protocol with its supported features."""
    token = AuthenticationScheme(
        type=AuthenticationScheme.Type.oauthbearertoken,
        name="Bearer token",
        description="One of the source's tokens in the header Authorization",
    )
    config = ServiceProviderConfig(
        patch=Patch(supported=True),
        bulk=Bulk(supported=False, max_operations=0, max_payload_size=0),
        filter=Filter(supported=True, max_results=MAX_RESULTS),
        change_password=ChangePassword(supported=False),
        sort=Sort(supported=True),
        etag=ETag(supported=True),
        authentication_schemes=[token],
    )
    types = [ResourceType.from_resource(PushedUser[EnterpriseUser]), ResourceType.from_resource(Group)]
    return ScimService(ScimProvider([PushedUser, EnterpriseUser, Group], types, config, policy))
