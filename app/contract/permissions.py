"""Permissions: direct grants, users' permissions, and the permission provider's configuration."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from app.contract import limits
from app.contract.base import (
    AccessRole,
    EpochSeconds,
    Id,
    Ids,
    InOrganization,
    JsonObject,
    Request,
    Text,
    UrlOrEmpty,
    WireModel,
    at_least_one_of,
    some_schema,
)

GrantResourceType = Literal["organization", "folder", "document"]


def _folders_and_documents_have_an_organization(schema: JsonObject) -> None:
    schema["anyOf"] = [
        {"properties": {"type": {"const": "organization"}}},
        {"required": ["organizationId"], "properties": {"organizationId": {"type": "string"}}},
    ]


class ResourceReference(Request):
    """A resource that permissions are about. An organization needs no ``organizationId``: it is its own."""

    model_config = ConfigDict(json_schema_extra=_folders_and_documents_have_an_organization)

    type: GrantResourceType
    id: Id
    organization_id: Id | None = None

    @model_validator(mode="after")
    def _has_an_organization(self) -> Self:
        if self.organization_id is None and self.type != "organization":
            raise ValueError(f"organizationId is required when type is {self.type}")
        if self.type == "organization" and self.organization_id not in {None, self.id}:
            raise ValueError("organizationId must equal id when type is organization")
        return self


class ResourceGrant(ResourceReference):
    """A grant on a resource. ``expiresAt`` is epoch seconds; without it the grant is permanent."""

    access_role: AccessRole | None = None
    expires_at: EpochSeconds | None = None


class GrantedUser(Request):
    """The user whom permissions are given to."""

    user_id: Id


class ResourceGrants(Request):
    resources: Annotated[list[ResourceGrant], Field(max_length=limits.BATCH_ITEMS)]


class ResourceReferences(Request):
    resources: Annotated[list[ResourceReference], Field(max_length=limits.BATCH_ITEMS)]


class AddPermissionsRequest(Request):
    user: GrantedUser
    permissions: ResourceGrants


class RemovePermissionsRequest(Request):
    user_id: Id
    permissions: ResourceReferences


class GetPermissionsRequest(InOrganization):
    """What each user may do on the organization and on the folders and documents named: at most 3,000 questions
    in total."""

    user_ids: Ids
    folder_ids: Ids | None = None
    document_ids: Ids | None = None

    @model_validator(mode="after")
    def _asks_no_more_than_can_be_answered(self) -> Self:
        resources = 1 + len(set(self.folder_ids or ())) + len(set(self.document_ids or ()))
        questions = len(set(self.user_ids)) * resources
        if questions > limits.PERMISSION_QUESTIONS:
            raise ValueError(
                f"must ask at most {limits.PERMISSION_QUESTIONS} questions, not {questions}: each user is asked about"
                " the organization and every folder and document"
            )
        return self


class Permission(WireModel):
    """What a user may do on one resource. ``expiresAt`` is epoch seconds; ``error`` and ``errorCode`` come instead
    of a role."""

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
    """``permissions`` are the results of a permission-provider answer, signed unchanged."""

    permissions: Annotated[list[JsonObject], Field(max_length=limits.BATCH_ITEMS)]


class Signature(WireModel):
    signature: str


class PermissionProviderSettings(Request):
    """Where to ask, and the bearer token that goes with the question. An empty URL takes it away."""

    permission_provider_url: UrlOrEmpty | None = None
    auth_token: Text | None = Field(default=None, repr=False)


class UpdatePermissionProviderConfigRequest(Request):
    """Merged into what is stored; at least one of the two fields."""

    model_config = ConfigDict(json_schema_extra=some_schema("usePermissionProvider", "permissionProviderConfig"))

    use_permission_provider: bool | None = None
    permission_provider_config: PermissionProviderSettings | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        at_least_one_of(self, "use_permission_provider", "permission_provider_config")
        return self


class PermissionProviderSettingsState(WireModel):
    permission_provider_url: str | None = None
    auth_token: str | None = Field(default=None, repr=False)


class PermissionProviderConfig(WireModel):
    """The state that is stored."""

    use_permission_provider: bool = False
    permission_provider_config: PermissionProviderSettingsState | None = None
