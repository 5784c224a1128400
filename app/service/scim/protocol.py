"""The SCIM protocol as directories use it: the resource types, the accepted deviations, and changes of members as sets.

The library (scim2-server) implements the protocol. It would load, validate and write all members of a group to change
one of them, so changes of members are separated from its requests.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import Field, field_validator
from scim2_models import (
    AuthenticationScheme,
    Bulk,
    CaseExact,
    ChangePassword,
    ComplexAttribute,
    ETag,
    Filter,
    Group,
    InvalidValueException,
    Mutability,
    Patch,
    PatchOp,
    PatchOperation,
    Reference,
    Resource,
    ResourceType,
    ScimPolicy,
    ScimProvider,
    ServiceProviderConfig,
    Sort,
    User,
)
from scim2_models import EnterpriseUser as StandardEnterpriseUser
from scim2_server.conditions import Conditions
from scim2_server.handler import ScimHandler
from scim2_server.requests import ScimRequest
from scim2_server.responses import ScimResponse
from scim2_server.service import ScimService

from app.directory.connectors.scim.objects import GROUP
from app.service.scim.members import Member, members_from, members_of
from app.service.scim.storage import StoredResources

MAX_RESULTS = 500
"""The maximum of resources in a page."""

TOLERANT = ScimPolicy(
    unknown=ScimPolicy.Unknown.ignore,
    remove_value_as_filter=ScimPolicy.RemoveValue.apply,
    unmatched_path_filter=ScimPolicy.UnmatchedPathFilter.create,
)
"""Accepts what Microsoft Entra ID and Okta send."""

_GROUP_PREFIX = f"{Group.__schema__}:".lower()
_ONE_MEMBER = re.compile(r'members\[\s*value\s+eq\s+"([^"\\]*)"\s*\]', re.IGNORECASE)


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
    types = [ResourceType.from_resource(User[EnterpriseUser]), ResourceType.from_resource(Group)]
    return ScimService(ScimProvider([User, EnterpriseUser, Group], types, config, policy))


class MemberChange(NamedTuple):
    """A change of a group's members by an operation of a PATCH."""

    replaces: bool = False
    """Whether all other members are removed first."""
    add: Mapping[str, Member] = {}
    remove: Sequence[str] = ()


class SetwiseHandler(ScimHandler):
    """The handler of one request."""

    storage: StoredResources
    _returns_members = False

    def patch(self, request: ScimRequest) -> ScimResponse:
        # Without these parameters the response has no body.
        self._returns_members = bool({"attributes", "excludedAttributes"} & set(request.query))
        return super().patch(request)

    def replace_resource(
        self,
        resource_type: ResourceType,
        current: Resource[Any],
        replacement: Resource[Any],
        conditions: Conditions,
    ) -> Resource[Any]:
        members = None
        if resource_type.name == GROUP:
            members = members_of(replacement)
            replacement.members = None  # type: ignore[attr-defined] # of groups
        version = current.meta.version if current.meta else None
        replaced = self.service.apply_replacement(current, replacement, conditions)
        self.storage.update_parts(resource_type, replaced or current, members, expected_version=version)
        return self.storage.whole(resource_type, str(current.id))

    def patch_resource(
        self, resource_type: ResourceType, resource_id: str, patch_op: "PatchOp[Any]", conditions: Conditions
    ) -> Resource[Any]:
        storage = self.storage
        others: Sequence[PatchOperation[Any]] = patch_op.operations or ()
        changes: Sequence[MemberChange] | None = ()
        if resource_type.name == GROUP:
            changes, others = _split(others)
        if changes is None:
            current = storage.whole(resource_type, resource_id)
            patched = self.service.apply_patch(current, patch_op, conditions)
            if patched is not None:
                storage.update(resource_type, patched)
        else:
            current = storage.head(resource_type, resource_id)
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
                else:
                    storage.change_members(resource_id, add=change.add, remove=change.remove)
        return (storage.whole if self._returns_members else storage.head)(resource_type, resource_id)


def _split(
    operations: "Sequence[PatchOperation[Any]]",
) -> "tuple[Sequence[MemberChange] | None, Sequence[PatchOperation[Any]]]":
    """The changes of members, and the other operations. None: the library must apply them."""
    changes: list[MemberChange] = []
    others: list[PatchOperation[Any]] = []
    for operation in operations:
        path = str(operation.path or "").strip()
        path = path[len(_GROUP_PREFIX) :] if path.lower().startswith(_GROUP_PREFIX) else path
        if path.lower() == "members":
            changes.append(_change(operation.op, operation.value))
        elif not path and isinstance(operation.value, dict):
            rest = {}
            for name, value in operation.value.items():
                if name.lower().removeprefix(_GROUP_PREFIX) == "members":
                    changes.append(_change(operation.op, value))
                else:
                    rest[name] = value
            if rest:
                others.append(operation.model_copy(update={"value": rest}))
        elif path.lower().startswith("members"):
            found = _ONE_MEMBER.fullmatch(path)
            if found is None or operation.op != PatchOperation.Op.remove or operation.value is not None:
                return None, operations
            changes.append(MemberChange(remove=[found[1]]))
        else:
            others.append(operation)
    return changes, others


def _change(op: PatchOperation.Op, value: Any) -> MemberChange:
    if op == PatchOperation.Op.remove and value is None:
        return MemberChange(replaces=True)
    entries = value if isinstance(value, list) else [] if value in (None, "") else [value]
    if not all(isinstance(entry, dict) for entry in entries):
        raise InvalidValueException(detail="members: must be a list of objects with value")
    members = members_from(entries)
    if op == PatchOperation.Op.remove:
        return MemberChange(remove=list(members))
    return MemberChange(replaces=op == PatchOperation.Op.replace_, add=members)
