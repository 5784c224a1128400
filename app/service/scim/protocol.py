"""The SCIM protocol as directories use it: the resource types, and the handler of requests.

The library (scim2-server) implements the protocol. It would load, validate and write all members of a group to change
one of them, so the handler separates the changes of members (``member_changes.py``) from its requests.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import orjson
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
    InvalidValueException,
    Mutability,
    Patch,
    PatchOp,
    PatchOperation,
    Photo,
    Reference,
    Resource,
    ResourceType,
    ScimPolicy,
    ScimProvider,
    ServiceProviderConfig,
    Sort,
    User,
    X509Certificate,
)
from scim2_models import EnterpriseUser as StandardEnterpriseUser
from scim2_server.conditions import Conditions
from scim2_server.handler import ScimHandler
from scim2_server.requests import ScimRequest
from scim2_server.responses import ScimResponse
from scim2_server.service import ScimService

from app.directory.connectors.scim.objects import GROUP
from app.service.scim.member_changes import MemberChange, split_member_changes
from app.service.scim.members import members_of
from app.service.scim.storage import StoredResources

MAX_RESULTS = 500
"""The maximum of resources in a page."""

TOLERANT = ScimPolicy(
    unknown=ScimPolicy.Unknown.ignore,
    remove_value_as_filter=ScimPolicy.RemoveValue.apply,
    unmatched_path_filter=ScimPolicy.UnmatchedPathFilter.create,
)
"""Accepts what Microsoft Entra ID and Okta send."""

MAX_OPERATIONS = 1_000
"""The maximum of operations in a PATCH."""

MAX_EXPRESSION = 8_000
"""The maximum length of a path or filter, in characters."""

_UNSTORABLE = re.compile(r"\\u(?:0000|d[89a-f][0-9a-f]{2})", re.IGNORECASE)
"""Escapes in filters of characters that databases do not store."""


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
    """The protocol, with what is supported."""
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


class SetwiseHandler(ScimHandler):
    """The library's handler, with limits, and with a PATCH that changes the members of a group in the database instead
    of loading all of them."""

    storage: StoredResources
    _returns_members = False

    def patch(self, request: ScimRequest) -> ScimResponse:
        # Without these parameters the response has no body.
        self._returns_members = bool({"attributes", "excludedAttributes"} & set(request.query))
        _check_operations(request.body)
        return super().patch(request)

    def search_with_body(self, request: ScimRequest) -> ScimResponse:
        check_expressions(_fields(orjson.loads(request.body), "filter"))
        return super().search_with_body(request)

    def replace_resource(
        self, resource_type: ResourceType, current: Resource[Any], replacement: Resource[Any], conditions: Conditions
    ) -> Resource[Any]:
        members = None
        if resource_type.name == GROUP:
            members = members_of(replacement)
            replacement.members = None  # type: ignore[attr-defined] # of groups
        elif replacement.active is None:  # type: ignore[attr-defined] # of users
            # Users are active again only if the directory states it.
            replacement.active = current.active  # type: ignore[attr-defined] # as above
        version = current.meta.version if current.meta else None
        replaced = self.service.apply_replacement(current, replacement, conditions)
        self.storage.update_parts(resource_type, replaced or current, members, expected_version=version)
        return self.storage.load(resource_type, str(current.id), with_members=True)

    def patch_resource(
        self, resource_type: ResourceType, resource_id: str, patch_op: "PatchOp[Any]", conditions: Conditions
    ) -> Resource[Any]:
        storage = self.storage
        others: Sequence[PatchOperation[Any]] = patch_op.operations or ()
        changes: Sequence[MemberChange] = ()
        if resource_type.name == GROUP:
            changes, others = split_member_changes(others)
        current = storage.load(resource_type, resource_id, with_members=False)
        if others:
            remaining = patch_op.model_copy(update={"operations": others})
            patched = self.service.apply_patch(current, remaining, conditions)
            if patched is not None:
                storage.update_parts(resource_type, patched, None)
        else:
            self.service.check_preconditions(current, "PATCH", conditions)
        for change in changes:
            if change.replaces:
                storage.replace_members(resource_id, change.add)
                continue
            if change.remove:
                storage.remove_members(resource_id, change.remove)
            storage.change_members(resource_id, add=change.add)
        return storage.load(resource_type, resource_id, with_members=self._returns_members)


def _check_operations(body: bytes) -> None:
    """Raises ``InvalidValueException`` for a PATCH that would take long."""
    for operations in _fields(orjson.loads(body), "operations"):
        if not isinstance(operations, list):
            continue
        if len(operations) > MAX_OPERATIONS:
            raise InvalidValueException(detail=f"a PATCH must have at most {MAX_OPERATIONS:,} operations")
        for operation in operations:
            check_expressions(_fields(operation, "path"))
            for value in _fields(operation, "value"):
                check_expressions(value if isinstance(value, dict) else ())


def _fields(body: object, name: str) -> Sequence[object]:
    """The values of an attribute, whatever the case of its name."""
    return [value for key, value in body.items() if key.lower() == name] if isinstance(body, dict) else []


def check_expressions(expressions: Iterable[object]) -> None:
    """Checks paths and filters. Raises ``InvalidValueException``."""
    for text in expressions:
        if isinstance(text, str) and len(text) > MAX_EXPRESSION:
            raise InvalidValueException(detail=f"a path or filter must have at most {MAX_EXPRESSION:,} characters")
        if isinstance(text, str) and _UNSTORABLE.search(text):
            raise InvalidValueException(detail="a path or filter contains an escape of NUL or half a surrogate pair")
