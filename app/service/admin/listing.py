"""The endpoints that list access: what a user may open, and who may open a resource.

Each page is exact for the revision that it names. All pages of a list have the moment of the first one. If the access
model changes between two pages, the next page is that of the new revision, after the last entry of the page before.
"""

from collections.abc import Collection
from datetime import datetime

from flask import Blueprint, Response
from sqlalchemy import Engine

from app.access.decision.decide import DecisionPolicy
from app.access.listing.page import AccessPage
from app.access.listing.resources import RESOURCE_TYPES, ResourceList
from app.access.listing.users import UserList
from app.access.records import User
from app.foundation.clock import Clock, epoch_ms, from_epoch_ms
from app.foundation.database.engine import reading
from app.foundation.ids import may_be_stored
from app.http.json import json_response
from app.service.admin.auth import AdminAuth
from app.service.admin.body import read_body
from app.service.admin.listing_wire import (
    PAGE_ROWS,
    ListRequest,
    ListResourcesRequest,
    ListUsersRequest,
    PageWire,
    ResourcesPageWire,
    UsersPageWire,
    openness_to_wire,
    resource_to_wire,
    user_to_wire,
)
from app.service.admin.page_token import invalid_page_token, page_token, read_page_token
from app.service.provider.answer import require_revision
from app.service.provider.blueprint import requested_revision
from app.service.provider.settings import LIST_RESOURCES_PATH, LIST_USERS_PATH


def listing_blueprint(engine: Engine, auth: AdminAuth, clock: Clock, policy: DecisionPolicy) -> Blueprint:
    """The two endpoints. Both require an admin token."""
    blueprint = Blueprint("listing", __name__)

    @blueprint.before_request
    def _authorize() -> None:
        auth.require()

    def read(entries: ResourceList | UserList, cursor: _Cursor, min_revision: int) -> AccessPage:
        with reading(engine) as connection:
            page = entries.page(connection, policy, after=cursor.key, limit=cursor.page_size)
        require_revision(page.revision, min_revision)
        return page

    @blueprint.post(LIST_RESOURCES_PATH)
    def resources() -> Response:
        min_revision = requested_revision()
        query = read_body(ListResourcesRequest)
        cursor = _Cursor(query, clock, RESOURCE_TYPES)
        entries = ResourceList(
            organization_id=query.organization_id,
            user_id=query.user_id,
            types=query.types or RESOURCE_TYPES,
            role=query.access_role,
            at=cursor.at,
        )
        page = read(entries, cursor, min_revision)
        rows = [resource_to_wire(entry) for entry in page.entries]
        answer: ResourcesPageWire = {"resources": rows, **cursor.page_to_wire(page)}
        return json_response(answer)

    @blueprint.post(LIST_USERS_PATH)
    def users() -> Response:
        min_revision = requested_revision()
        query = read_body(ListUsersRequest)
        cursor = _Cursor(query, clock, [User.kind])
        entries = UserList(
            organization_id=query.resource.organization_id or query.resource.id,
            type=query.resource.type,
            resource_id=query.resource.id,
            role=query.access_role,
            at=cursor.at,
        )
        page = read(entries, cursor, min_revision)
        rows = [user_to_wire(entry) for entry in page.entries]
        answer: UsersPageWire = {"users": rows, **cursor.page_to_wire(page), **openness_to_wire(page.openness)}
        return json_response(answer)

    return blueprint


class _Cursor:
    """The position of a page in its list. The token also has the revision and the moment of the first page."""

    def __init__(self, request: ListRequest, clock: Clock, kinds: Collection[str]) -> None:
        """``kinds``: those of the entries. Raises ``InvalidArgument`` for a token of another list."""
        self.page_size = request.page_size or PAGE_ROWS
        self.key: list[str] = []
        """The kind and id of the last entry of the page before. Empty for the first page."""
        self.at = request.at or clock()
        """The moment of the list."""
        self._query = request.query
        self._kinds = kinds
        self._first_revision: int | None = None
        if request.page_token:
            self._first_revision, self.at, self.key = self._read_token(request.page_token)

    def page_to_wire(self, page: AccessPage) -> PageWire:
        """The fields that all pages have."""
        first = page.revision if self._first_revision is None else self._first_revision
        wire: PageWire = {"revision": page.revision, "revisionChanged": first != page.revision, "at": epoch_ms(self.at)}
        if page.denied is not None:
            wire["denied"] = {"rule": page.denied.rule.value, "reason": page.denied.reason}
        if page.has_more:
            last = page.entries[-1]
            wire["nextPageToken"] = page_token(self._query, [first, epoch_ms(self.at), last.kind, last.item_id])
        return wire

    def _read_token(self, token: str) -> tuple[int, datetime, list[str]]:
        match read_page_token(token, self._query):
            case [int(revision), int(at), str(kind), str(item_id)] if kind in self._kinds and may_be_stored(item_id):
                try:
                    # A moment in the request is repeated for each page, and may be before 1970.
                    return revision, from_epoch_ms(at), [kind, item_id]
                except (ValueError, OverflowError) as error:
                    raise invalid_page_token() from error
            case _:
                raise invalid_page_token()
