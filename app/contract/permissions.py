"""Requests and results of the permission operations: grants, Get Permissions, Generate Signature, and the provider's
configuration."""

from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from app.contract import limits
from app.contract.base import (
    AccessRole,
    Batch,
    EpochSeconds,
    Id,
    Ids,
    InOrganization,
    JsonObject,
    Request,
    SomeField,
    Text,
    UrlOrEmpty,
    WireModel,
)

GrantResourceType = Literal["organization", "folder", "document"]

_HAS_ORGANIZATION: JsonObject = {
    "anyOf": [
        {"properties": {"type": {"const": "organization"}}},
        {"required": ["organizationId"], "properties": {"organizationId": {"type": "string"}}},
    ]
}
"""The rule of ``_check_organization``, for the schema."""


class ResourceReference(Request):
    """An organization, or a folder or document with its ``organizationId``."""

    model_config = ConfigDict(json_schema_extra=_HAS_ORGANIZATION)

    type: GrantResourceType
    id: Id
    organization_id: Id | None = None

    @model_validator(mode="after")
    def _check_organization(self) -> Self:
        if self.organization_id is None and self.type != "organization":
            raise ValueError(f"organizationId is required when type is {self.type}")
        if self.type == "organization" and self.organization_id not in {None, self.id}:
            raise ValueError("organizationId must equal id when type is organization")
        return self


class ResourceGrant(ResourceReference):
    """A grant on a resource. Without ``expiresAt`` (epoch seconds) it does not end. The default role is ``editor``."""

    access_role: AccessRole | None = None
    expires_at: EpochSeconds | None = None


class GrantedUser(Request):
    user_id: Id


class ResourceGrants(Request):
    resources: Batch[ResourceGrant]


class ResourceReferences(Request):
    resources: Batch[ResourceReference]


class AddPermissionsRequest(Request):
    user: GrantedUser
    permissions: ResourceGrants


class RemovePermissionsRequest(Request):
    user_id: Id
    permissions: ResourceReferences


class GetPermissionsRequest(InOrganization):
    """Asks about each user's access to the organization and to each of the folders and documents."""

    user_ids: Ids
    folder_ids: Ids | None = None
    document_ids: Ids | None = None

    @model_validator(mode="after")
    def _check_number_of_questions(self) -> Self:
        resources = 1 + len(set(self.folder_ids or ())) + len(set(self.document_ids or ()))
        questions = len(set(self.user_ids)) * resources
        if questions > limits.PERMISSION_QUESTIONS:
            raise ValueError(
                f"must ask at most {limits.PERMISSION_QUESTIONS} questions, not {questions}: each user is asked about"
                " the organization and every folder and document"
            )
        return self


class Permission(WireModel):
    """A user's access to one resource: a role, or ``error`` and ``errorCode``. ``expiresAt`` is epoch seconds."""

    access_role: str | None = None
    access_type: str | None = None
    expires_at: int | float | None = None
    error: str | None = None
    error_code: str | None = None


class UserPermissions(WireModel):
    """One user's permissions, by resource id."""

    organization: dict[str, Permission] = Field(default_factory=dict)
    folders: dict[str, Permission] = Field(default_factory=dict)
    documents: dict[str, Permission] = Field(default_factory=dict)


class GenerateSignatureRequest(Request):
    """``permissions`` are the results of a permission-provider response, signed unchanged."""

    permissions: Batch[JsonObject]


class Signature(WireModel):
    signature: str


class PermissionProviderSettings(Request):
    """The provider's URL and bearer token. An empty URL removes a stored one."""

    permission_provider_url: UrlOrEmpty | None = None
    auth_token: Text | None = Field(default=None, repr=False)


class UpdatePermissionProviderConfigRequest(SomeField):
    """Merged into the stored configuration."""

    use_permission_provider: bool | None = None
    permission_provider_config: PermissionProviderSettings | None = None


class PermissionProviderSettingsState(WireModel):
    permission_provider_url: str | None = None
    auth_token: str | None = Field(default=None, repr=False)


class PermissionProviderConfig(WireModel):
    """The stored configuration."""

    use_permission_provider: bool = False
    permission_provider_config: PermissionProviderSettingsState | None = None
