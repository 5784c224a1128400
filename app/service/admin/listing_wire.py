"""The requests and responses of the endpoints that list access."""

from datetime import datetime
from hashlib import blake2b
from typing import Annotated, Any, Literal, NotRequired

import orjson
from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from app.access.decision.decide import Rule
from app.access.listing.page import AccessEntry, Openness
from app.access.listing.resources import RESOURCE_TYPES
from app.access.records import AccessRole, AccessType, ResourceKind
from app.contract.base import AsWhole, Id, PageToken
from app.foundation.clock import FIRST_MS, epoch_ms, parse_time
from app.service.admin.body import NOT_EMPTY, StrictRequest

PAGE_ROWS = 100
MAX_PAGE_ROWS = 1000

TIME_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "string", "format": "date-time"}, {"type": "integer", "minimum": FIRST_MS}]
}
"""A time as ISO 8601 text with a zone, or epoch milliseconds."""

_Role = Annotated[Literal["viewer", "editor"] | None, Field(description="Only access with exactly this role.")]
_At = Annotated[
    datetime | None,
    BeforeValidator(lambda value: None if value is None else parse_time(value)),
    WithJsonSchema({**TIME_SCHEMA, "description": "The moment of all decisions. Left out: now."}),
]
_PageSize = Annotated[int, Field(ge=1, le=MAX_PAGE_ROWS, description=f"Default: {PAGE_ROWS}."), AsWhole]
_PageToken = Annotated[PageToken | None, Field(description="`nextPageToken` of the page before; left out: the first.")]


class ListRequest(StrictRequest):
    """The fields that the requests for both lists have."""

    role: _Role = None
    at: _At = None
    page_size: _PageSize | None = None
    page_token: _PageToken = None

    @property
    def access_role(self) -> AccessRole | None:
        """The role that the entries must have. None: any role."""
        return None if self.role is None else AccessRole(self.role)

    @property
    def query(self) -> str:
        """Identifies the list: everything but the page."""
        fields = self.model_dump(by_alias=True, exclude={"page_size", "page_token"}, mode="json")
        return blake2b(orjson.dumps(fields, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


class ListResourcesRequest(ListRequest):
    """The body of ``POST /permissions/list-resources``."""

    user_id: Id
    organization_id: Id
    types: Annotated[
        Annotated[list[ResourceKind], Field(max_length=len(RESOURCE_TYPES))] | None,
        NOT_EMPTY,
        Field(description="Left out: all types.", json_schema_extra={"minItems": 1}),
    ] = None


class ListedResource(StrictRequest):
    """A resource. For an organization, ``organizationId`` may be absent: it equals ``id``."""

    type: ResourceKind
    id: Id
    organization_id: Id | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_organization(cls, value: object) -> object:
        # Otherwise the check of an absent one would not run.
        return {"organizationId": None, **value} if isinstance(value, dict) else value

    @field_validator("organization_id")
    @classmethod
    def _check_organization(cls, organization_id: str | None, info: ValidationInfo) -> str | None:
        if info.data.get("type") == "organization":
            if organization_id not in {None, info.data.get("id")}:
                raise ValueError("must equal resource.id when type is organization")
        elif organization_id is None and "type" in info.data:
            raise PydanticCustomError("missing", "field required")
        return organization_id


class ListUsersRequest(ListRequest):
    """The body of ``POST /permissions/list-users``."""

    resource: ListedResource


class _AccessWire(TypedDict):
    name: str
    accessRole: Annotated[str, Field(json_schema_extra={"enum": [*AccessRole]})]
    rule: Annotated[str, Field(description="The rule that allows it.", json_schema_extra={"enum": [*Rule]})]
    expiresAt: NotRequired[
        Annotated[int, Field(description="Epoch milliseconds. Not shortened by `provider.decision_ttl`.")]
    ]


class ResourceAccessWire(_AccessWire):
    """A resource that the user may open."""

    type: Annotated[str, Field(json_schema_extra={"enum": [*RESOURCE_TYPES]})]
    id: str


class UserAccessWire(_AccessWire):
    """A user who may open the resource."""

    userId: str


class DenialWire(TypedDict):
    """Why the list is empty, whatever the grants."""

    rule: Annotated[str, Field(json_schema_extra={"enum": [*Rule]})]
    reason: str


class PageWire(TypedDict):
    """The fields that the pages of both lists have."""

    revision: Annotated[int, Field(description="The revision of the access model that this page was made from.")]
    revisionChanged: Annotated[bool, Field(description="Whether the first page was made from another revision.")]
    at: Annotated[int, Field(description="The moment of all decisions of the list, in epoch milliseconds.")]
    nextPageToken: NotRequired[Annotated[str, Field(description="Absent: this is the last page.")]]
    denied: NotRequired[DenialWire]


class ResourcesPageWire(PageWire):
    """A page of what a user may open: by type (organization, folder, document), then by the bytes of the id."""

    resources: list[ResourceAccessWire]


class OpenToWire(TypedDict):
    """Who has access without a grant, by the access type in force."""

    accessType: Annotated[
        Annotated[str, Field(json_schema_extra={"enum": [*AccessType]})] | None,
        Field(description="null: an organization itself, which is open to its members."),
    ]
    to: Literal["nobody", "members", "everyone"]
    records: Annotated[
        int, Field(description="How many members or users are in the directory, also disabled and expired ones.")
    ]


class _OpennessWire(TypedDict):
    openTo: NotRequired[OpenToWire]


class UsersPageWire(PageWire, _OpennessWire):
    """A page of the users who may open a resource, by the bytes of the id. Members without a grant are included."""

    users: list[UserAccessWire]


def resource_to_wire(entry: AccessEntry) -> ResourceAccessWire:
    """An entry of the list of a user's resources."""
    return {"type": entry.kind, "id": entry.item_id, **_access_to_wire(entry)}


def user_to_wire(entry: AccessEntry) -> UserAccessWire:
    """An entry of the list of a resource's users."""
    return {"userId": entry.item_id, **_access_to_wire(entry)}


def _access_to_wire(entry: AccessEntry) -> _AccessWire:
    access: _AccessWire = {"name": entry.name, "accessRole": entry.access_role.value, "rule": entry.rule.value}
    if entry.expires_at is not None:
        access["expiresAt"] = epoch_ms(entry.expires_at)
    return access


def openness_to_wire(openness: Openness | None) -> _OpennessWire:
    """Who has access without a grant, as a field of the page. None: the page has no such field."""
    if openness is None:
        return {}
    return {"openTo": {"accessType": openness.access_type, "to": openness.to, "records": openness.records}}
