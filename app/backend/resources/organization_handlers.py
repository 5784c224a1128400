"""Organizations: read (all at once or by page), add, update, delete with everything in them, disable."""

from collections.abc import Iterable
from operator import attrgetter

from sqlalchemy import Connection, Row, Select, select, update

from app.backend.http.call import Call, Reply
from app.backend.http.results import TOO_HEAVY, Results, by_id, done, failed, grows_too_heavy, per_id
from app.backend.resources.containers import NO_ORGANIZATION
from app.backend.resources.tables import DOCUMENT, FOLDER, GROUP_MEMBER, ORGANIZATION, USER_ENTRY, USER_GROUP
from app.backend.scope import delete_within
from app.backend.storage import json_sets
from app.backend.storage.paging import fetch_all
from app.backend.storage.rows import insert_rows, update_rows
from app.contract.organizations import (
    AddOrganizationsRequest,
    DeleteOrganizationsRequest,
    DisableOrganizationsRequest,
    GetOrganizationsRequest,
    GetOrganizationsV1Request,
    OrganizationInput,
    UpdateOrganizationsRequest,
)

_COLUMNS = (ORGANIZATION.c.organization_id, ORGANIZATION.c.disabled, ORGANIZATION.c.payload)
_CONTENTS = (GROUP_MEMBER, USER_GROUP, USER_ENTRY, DOCUMENT, FOLDER)


def get_organizations_v1(call: Call[GetOrganizationsV1Request], connection: Connection) -> Reply:
    found = connection.execute(_asked(call, connection).order_by(ORGANIZATION.c.organization_id))
    rows = fetch_all(found, "ask by page, or by organizationIds")
    return Reply("Organization(s) retrieved successfully.", [_to_wire(row) for row in rows])


def get_organizations(call: Call[GetOrganizationsRequest], connection: Connection) -> Reply:
    query = _asked(call, connection)
    page, token = call.page(connection, query, (ORGANIZATION.c.organization_id,))
    return Reply("Organization(s) retrieved successfully.", [_to_wire(row) for row in page], token)


def add_organizations(call: Call[AddOrganizationsRequest], connection: Connection) -> Reply:
    items = by_id(call.request.organizations, attrgetter("organization_id"))
    there = _existing(call.principal.api_key_id, connection, items)
    new = {item_id: item for item_id, item in items.items() if item_id not in there}
    rows = [
        {
            "api_key_id": call.principal.api_key_id,
            "organization_id": item_id,
            "disabled": bool(item.disabled),
            "payload": json_sets.dump(_payload(item)),
            "created_at": call.now,
            "updated_at": call.now,
        }
        for item_id, item in new.items()
    ]
    insert_rows(connection, ORGANIZATION, rows)
    results = per_id(items, new, "Organization added.", "Organization already exists.")
    return Reply("Organizations processed.", results)


def update_organizations(call: Call[UpdateOrganizationsRequest], connection: Connection) -> Reply:
    items = call.request.organizations
    rows = _load(call.principal.api_key_id, connection, {item.organization_id for item in items})
    payloads = {row.organization_id: json_sets.load_object(row.payload) for row in rows}
    disabled = {row.organization_id: row.disabled for row in rows}
    results: Results = {}
    for item in items:
        item_id = item.organization_id
        if item_id not in payloads:
            results[item_id] = failed(item_id, NO_ORGANIZATION)
            continue
        changed = payloads[item_id] | _payload(item)
        if grows_too_heavy(payloads[item_id], changed):
            results[item_id] = failed(item_id, TOO_HEAVY)
            continue
        payloads[item_id] = changed
        if item.disabled is not None:
            disabled[item_id] = item.disabled
        results[item_id] = done(item_id, "Organization updated.")
    changed_rows = [
        {
            "api_key_id": call.principal.api_key_id,
            "organization_id": item_id,
            "disabled": disabled[item_id],
            "payload": json_sets.dump(payload),
            "updated_at": call.now,
        }
        for item_id, payload in payloads.items()
    ]
    update_rows(connection, ORGANIZATION, ("disabled", "payload", "updated_at"), changed_rows)
    return Reply("Organizations processed.", results)


def delete_organizations(call: Call[DeleteOrganizationsRequest], connection: Connection) -> Reply:
    wanted = dict.fromkeys(call.request.organization_ids)
    there = _existing(call.principal.api_key_id, connection, wanted)
    call.backend.cascade.delete_of_organizations(connection, call.principal.api_key_id, there)
    for table in (*_CONTENTS, ORGANIZATION):
        delete_within(connection, table, call.principal.api_key_id, there)
    return Reply("Organizations processed.", per_id(wanted, there, "Organization deleted.", NO_ORGANIZATION))


def disable_organizations(call: Call[DisableOrganizationsRequest], connection: Connection) -> Reply:
    wanted = dict.fromkeys(call.request.organization_ids)
    there = _existing(call.principal.api_key_id, connection, wanted)
    connection.execute(
        update(ORGANIZATION)
        .where(
            ORGANIZATION.c.api_key_id == call.principal.api_key_id,
            ORGANIZATION.c.organization_id.in_(json_sets.texts(connection, there)),
        )
        .values(disabled=call.request.disabled, updated_at=call.now)
    )
    message = "Organization disabled." if call.request.disabled else "Organization enabled."
    return Reply("Organizations processed.", per_id(wanted, there, message, NO_ORGANIZATION))


def _asked(
    call: Call[GetOrganizationsV1Request] | Call[GetOrganizationsRequest], connection: Connection
) -> Select[str, bool, str]:
    query = select(*_COLUMNS).where(ORGANIZATION.c.api_key_id == call.principal.api_key_id)
    if call.request.organization_ids is not None:
        wanted = json_sets.texts(connection, call.request.organization_ids)
        query = query.where(ORGANIZATION.c.organization_id.in_(wanted))
    return query


def _existing(api_key_id: str, connection: Connection, organization_ids: Iterable[str]) -> set[str]:
    return {row.organization_id for row in _load(api_key_id, connection, organization_ids)}


def _load(api_key_id: str, connection: Connection, organization_ids: Iterable[str]) -> list[Row[str, bool, str]]:
    query = select(*_COLUMNS).where(
        ORGANIZATION.c.api_key_id == api_key_id,
        ORGANIZATION.c.organization_id.in_(json_sets.texts(connection, organization_ids)),
    )
    return list(connection.execute(query))


def _payload(item: OrganizationInput) -> dict[str, object]:
    """What is kept as it came: the name, if given, and the fields that the contract does not know."""
    payload = item.unknown_fields()
    if item.organization_name is not None:
        payload["organizationName"] = item.organization_name
    return payload


def _to_wire(row: Row[str, bool, str]) -> dict[str, object]:
    return {
        "organizationName": row.organization_id,
        **json_sets.load_object(row.payload),
        "id": row.organization_id,
        "disabled": row.disabled,
    }
