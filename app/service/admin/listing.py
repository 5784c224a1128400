"""The endpoints that list access: what a user may open, and who may open a resource.

Each page is exact for the revision that it names. All pages of a list have the moment of the first one. If the access
model changes between two pages, the next page is that of the new revision, after the last entry of the page before.
"""

from collections.abc import Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Annotated, Any, Literal, NotRequired

import orjson
from flask import Blueprint, Response
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError
from sqlalchemy import Engine
from typing_extensions import TypedDict

from app.access.decision.decide import DecisionPolicy, Rule
from app.access.listing.page import AccessEntry, AccessPage
from app.access.listing.resources import RESOURCE_TYPES, ResourceList
from app.access.listing.users import UserList
from app.access.records import AccessRole, ResourceKind
from app.contract.base import AsWhole, Id, PageToken, Request
from app.foundation.clock import Clock, epoch_ms, from_epoch_ms, parse_time
from app.foundation.database.engine import reading
from app.foundation.ids import may_be_stored
from app.http.json import json_response
from app.service.admin.auth import AdminAuth
from app.service.admin.body import NOT_EMPTY, read_body
from app.service.admin.page_token import invalid_page_token, page_token, read_page_token
from app.service.provider.answer import require_revision
from app.service.provider.blueprint import requested_revision
from app.service.provider.settings import LIST_RESOURCES_PATH, LIST_USERS_PATH

PAGE_ROWS = 100
MAX_PAGE_ROWS = 1000

TIME_SCHEMA: dict[str, Any] = {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "integer", "minimum": 0}]}
"""A time as ISO 8601 text with a zone, or epoch milliseconds."""

_Role = Annotated[Literal["viewer", "editor"] | None, Field(description="Only access with exactly this role.")]
_At = Annotated[
    datetime | None,
    BeforeValidator(lambda value: None if value is None else parse_time(value)),
    WithJsonSchema({**TIME_SCHEMA, "description": "The moment of all decisions. Left out: now."}),
]
_PageSize = Annotated[int, Field(ge=1, le=MAX_PAGE_ROWS, description=f"Default: {PAGE_ROWS}."), AsWhole]
_PageToken = Annotated[PageToken | None, Field(description="`nextPageToken` of the page before; left out: the first.")]


class _ListRequest(Request):
    model_config = ConfigDict(extra="forbid")

    role: _Role = None
    at: _At = None
    page_size: _PageSize | None = None
    page_token: _PageToken = None

    @property
    def access_role(self) -> AccessRole | None:
        return None if self.role is None else AccessRole(self.role)

    @property
    def query(self) -> str:
        """Identifies the list: everything but the page."""
        fields = self.model_dump(by_alias=True, exclude={"page_size", "page_token"}, mode="json")
        return blake2b(orjson.dumps(fields, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


class ListResourcesRequest(_ListRequest):
    """The body of ``POST /permissions/list-resources``."""

    user_id: Id
    organization_id: Id
    types: Annotated[
        Annotated[list[ResourceKind], Field(max_length=len(RESOURCE_TYPES))] | None,
        NOT_EMPTY,
        Field(description="Left out: all types.", json_schema_extra={"minItems": 1}),
    ] = None


class ListedResource(Request):
    """A resource. For an organization, ``organizationId`` may be absent: it equals ``id``."""

    model_config = ConfigDict(extra="forbid")

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


class ListUsersRequest(_ListRequest):
    """The body of ``POST /permissions/list-users``."""

    resource: ListedResource


class _AccessWire(TypedDict):
    name: str
    accessRole: Literal["viewer", "editor"]
    rule: Annotated[str, Field(description="The rule that allows it.", json_schema_extra={"enum": [*Rule]})]
    expiresAt: NotRequired[
        Annotated[int, Field(description="Epoch milliseconds. Not shortened by `provider.decision_ttl`.")]
    ]


class ResourceAccessWire(_AccessWire):
    """A resource that the user may open."""

    type: ResourceKind
    id: str


class UserAccessWire(_AccessWire):
    """A user who may open the resource."""

    userId: str


class DenialWire(TypedDict):
    """Why the list is empty, whatever the grants."""

    rule: Annotated[str, Field(json_schema_extra={"enum": [*Rule]})]
    reason: str


class _PageWire(TypedDict):
    revision: Annotated[int, Field(description="The revision of the access model that this page was made from.")]
    revisionChanged: Annotated[bool, Field(description="Whether the first page was made from another revision.")]
    at: Annotated[int, Field(description="The moment of all decisions of the list, in epoch milliseconds.")]
    nextPageToken: NotRequired[Annotated[str, Field(description="Absent: this is the last page.")]]
    denied: NotRequired[DenialWire]


class ResourcesPageWire(_PageWire):
    """A page of what a user may open: by type (organization, folder, document), then by the bytes of the id."""

    resources: list[ResourceAccessWire]


class OpenToWire(TypedDict):
    """Who has access without a grant, by the access type in force."""

    accessType: Annotated[
        Literal["public", "organizationPrivate", "restricted"] | None,
        Field(description="null: an organization itself, which is open to its members."),
    ]
    to: Literal["nobody", "members", "everyone"]
    records: Annotated[
        int, Field(description="How many members or users are in the directory, also disabled and expired ones.")
    ]


class UsersPageWire(_PageWire):
    """A page of the users who may open a resource, by the bytes of the id. Members without a grant are included."""

    users: list[UserAccessWire]
    openTo: NotRequired[OpenToWire]


def listing_blueprint(engine: Engine, auth: AdminAuth, clock: Clock, policy: DecisionPolicy) -> Blueprint:
    """The two endpoints. Both require an admin token."""
    blueprint = Blueprint("listing", __name__)

    @blueprint.before_request
    def _authorize() -> None:
        auth.require()

    def read(listed: ResourceList | UserList, cursor: _Cursor, size: int | None, min_revision: int) -> AccessPage:
        with reading(engine) as connection:
            page = listed.page(connection, policy, after=cursor.key, limit=size or PAGE_ROWS)
        require_revision(page.revision, min_revision)
        return page

    @blueprint.post(LIST_RESOURCES_PATH)
    def resources() -> Response:
        min_revision = requested_revision()
        wanted = read_body(ListResourcesRequest)
        cursor = _Cursor(wanted, clock, parts=2)
        if cursor.key and cursor.key[0] not in RESOURCE_TYPES:
            raise invalid_page_token()
        listed = ResourceList(
            organization_id=wanted.organization_id,
            user_id=wanted.user_id,
            types=wanted.types or RESOURCE_TYPES,
            role=wanted.access_role,
            at=cursor.at,
        )
        page = read(listed, cursor, wanted.page_size, min_revision)
        body = cursor.wire(page)
        rows = [{"type": entry.kind, "id": entry.item_id, **_access(entry)} for entry in page.entries]
        return json_response({"resources": rows, **body})

    @blueprint.post(LIST_USERS_PATH)
    def users() -> Response:
        min_revision = requested_revision()
        wanted = read_body(ListUsersRequest)
        cursor = _Cursor(wanted, clock, parts=1)
        listed = UserList(
            organization_id=wanted.resource.organization_id or wanted.resource.id,
            type=wanted.resource.type,
            resource_id=wanted.resource.id,
            role=wanted.access_role,
            at=cursor.at,
        )
        page = read(listed, cursor, wanted.page_size, min_revision)
        body = cursor.wire(page)
        if page.openness is not None:
            body["openTo"] = page.openness.to_wire()
        rows = [{"userId": entry.item_id, **_access(entry)} for entry in page.entries]
        return json_response({"users": rows, **body})

    return blueprint


class _Cursor:
    """The position of a page in its list. The token also has the revision and the moment of the first page."""

    def __init__(self, wanted: _ListRequest, clock: Clock, *, parts: int) -> None:
        """``parts``: the length of a key: kind and id, or only the id.

        Raises ``InvalidArgument`` for a token of another list.
        """
        self._query = wanted.query
        self._parts = parts
        self.key: list[str] = []
        """The key of the last entry of the page before; empty: this is the first page."""
        self.at = wanted.at or clock()
        """The moment of the list."""
        self._revision: int | None = None
        if wanted.page_token:
            self._revision, self.at, self.key = _read_token(wanted.page_token, self._query, parts)

    def wire(self, page: AccessPage) -> dict[str, object]:
        """The fields that all pages have."""
        first = page.revision if self._revision is None else self._revision
        wire: dict[str, object] = {
            "revision": page.revision,
            "revisionChanged": first != page.revision,
            "at": epoch_ms(self.at),
        }
        if page.denied is not None:
            wire["denied"] = {"rule": page.denied.rule.value, "reason": page.denied.reason}
        if page.has_more:
            last = page.entries[-1]
            key = [last.kind, last.item_id][-self._parts :]
            wire["nextPageToken"] = page_token(self._query, [first, epoch_ms(self.at), *key])
        return wire


def _read_token(token: str, query: str, parts: int) -> tuple[int, datetime, list[str]]:
    match read_page_token(token, query):
        case [int(revision), int(at), *values] if len(values) == parts:
            key = [value for value in values if isinstance(value, str) and may_be_stored(value)]
        case _:
            raise invalid_page_token()
    if len(key) != parts:
        raise invalid_page_token()
    try:
        # A moment in the request is repeated for each page, and may be before 1970.
        return revision, from_epoch_ms(at), key
    except (ValueError, OverflowError) as error:
        raise invalid_page_token() from error


def _access(entry: AccessEntry) -> Mapping[str, object]:
    access: dict[str, object] = {
        "name": entry.name,
        "accessRole": entry.access_role.value,
        "rule": entry.rule.value,
    }
    if entry.expires_at is not None:
        access["expiresAt"] = epoch_ms(entry.expires_at)
    return access
