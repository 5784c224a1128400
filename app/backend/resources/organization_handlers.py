"""Handlers of organizations: read, add, update, delete, disable."""

from collections.abc import Collection

from sqlalchemy import Connection, Row, Select, select, update

from app.backend.http.call import Call, Reply
from app.backend.http.results import Results, by_id, merge_payload, merged_by_id, per_id
from app.backend.resources.containers import NO_ORGANIZATION
from app.backend.resources.tables import ORGANIZATION
from app.backend.scope import Scope, delete_of_organizations
from app.backend.storage import json_columns
from app.backend.storage.paging import fetch_all
from app.backend.storage.rows import among, insert_rows, update_rows, where_given
from app.contract.organizations import (
    AddOrganizationsRequest,
    DeleteOrganizationsRequest,
    DisableOrganizationsRequest,
    GetOrganizationsRequest,
    GetOrganizationsV1Request,
    OrganizationInput,
    UpdateOrganizationsRequest,
)


def get_organizations_v1(call: Call[GetOrganizationsV1Request], connection: Connection) -> Reply:
    query = _query(connection, call.principal.api_key_id, call.request.organization_ids)
    rows = fetch_all(
        connection.execute(query.order_by(ORGANIZATION.c.organization_id)), "ask by page, or by organizationIds"
    )
    return Reply("Organization(s) retrieved successfully.", [_to_wire(row) for row in rows])


def get_organizations(call: Call[GetOrganizationsRequest], connection: Connection) -> Reply:
    query = _query(connection, call.principal.api_key_id, call.request.organization_ids)
    page, token = call.page(connection, query, (ORGANIZATION.c.organization_id,))
    return Reply("Organization(s) retrieved successfully.", [_to_wire(row) for row in page], token)


def add_organizations(call: Call[AddOrganizationsRequest], connection: Connection) -> Reply:
    api_key_id = call.principal.api_key_id
    items = by_id(call.request.organizations, "organization_id")
    existing = _existing(connection, api_key_id, items)
    new = {item_id: item for item_id, item in items.items() if item_id not in existing}
    rows = [
        Scope(api_key_id, item_id).payload_row(_payload(item), call.now, disabled=bool(item.disabled))
        for item_id, item in new.items()
    ]
    insert_rows(connection, ORGANIZATION, rows)
    results = per_id(items, new, "Organization added.", "Organization already exists.")
    return Reply("Organizations processed.", results)


def update_organizations(call: Call[UpdateOrganizationsRequest], connection: Connection) -> Reply:
    items = merged_by_id(call.request.organizations, "organization_id")
    api_key_id = call.principal.api_key_id
    stored = connection.execute(_query(connection, api_key_id, items)).all()
    payloads = {row.organization_id: json_columns.load_object(row.payload) for row in stored}
    disabled = {row.organization_id: row.disabled for row in stored}
    results: Results = {}
    for item_id, item in items.items():
        result = results[item_id] = merge_payload(
            item_id, payloads.get(item_id), _payload(item), missing=NO_ORGANIZATION, updated="Organization updated."
        )
        if result["success"] and item.disabled is not None:
            disabled[item_id] = item.disabled
    rows = [
        Scope(api_key_id, item_id).payload_row(payload, call.now, disabled=disabled[item_id])
        for item_id, payload in payloads.items()
    ]
    update_rows(connection, ORGANIZATION, ("disabled", "payload", "updated_at"), rows)
    return Reply("Organizations processed.", results)


def delete_organizations(call: Call[DeleteOrganizationsRequest], connection: Connection) -> Reply:
    api_key_id = call.principal.api_key_id
    item_ids = dict.fromkeys(call.request.organization_ids)
    existing = _existing(connection, api_key_id, item_ids)
    for delete_dependent in call.backend.on_organizations_deleted:
        delete_dependent(connection, api_key_id, existing)
    delete_of_organizations(connection, api_key_id, existing)
    return Reply("Organizations processed.", per_id(item_ids, existing, "Organization deleted.", NO_ORGANIZATION))


def disable_organizations(call: Call[DisableOrganizationsRequest], connection: Connection) -> Reply:
    item_ids = dict.fromkeys(call.request.organization_ids)
    existing = _existing(connection, call.principal.api_key_id, item_ids)
    connection.execute(
        update(ORGANIZATION)
        .where(
            ORGANIZATION.c.api_key_id == call.principal.api_key_id,
            among(connection, ORGANIZATION.c.organization_id, existing),
        )
        .values(disabled=call.request.disabled, updated_at=call.now)
    )
    message = "Organization disabled." if call.request.disabled else "Organization enabled."
    return Reply("Organizations processed.", per_id(item_ids, existing, message, NO_ORGANIZATION))


def _query(connection: Connection, api_key_id: str, organization_ids: Collection[str] | None) -> Select[str, bool, str]:
    """The organizations of the API key, all or those with these ids."""
    table = ORGANIZATION.c
    query = select(table.organization_id, table.disabled, table.payload).where(table.api_key_id == api_key_id)
    return where_given(connection, query, (table.organization_id, organization_ids))


def _existing(connection: Connection, api_key_id: str, organization_ids: Collection[str]) -> set[str]:
    return set(connection.scalars(_query(connection, api_key_id, organization_ids)))


def _payload(item: OrganizationInput) -> dict[str, object]:
    return item.unknown_fields() | json_columns.without_none(organizationName=item.organization_name)


def _to_wire(row: Row[str, bool, str]) -> dict[str, object]:
    return {
        "organizationName": row.organization_id,
        **json_columns.load_object(row.payload),
        "id": row.organization_id,
        "disabled": row.disabled,
    }
