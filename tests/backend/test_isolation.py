"""Isolation of tenants: every operation is called with the ids of another API key or workspace."""

from typing import Any

import pytest
from sqlalchemy import select

from app.backend.schema import METADATA
from app.contract.operation import AnyOperation, AuthLevel
from app.contract.operations import OPERATIONS
from tests.choice import sampled

from .conftest import BackendWorld, Caller
from .sampling import SAMPLES, Actor

MINE, OTHERS = "mark-of-one", "mark-of-another"


def rows_of(world: BackendWorld, actor: Actor) -> dict[str, list[str]]:
    """All rows of the actor, by table."""
    own = {"api_key_id": actor.names["apiKey"], "workspace_id": actor.owner.ids["workspace"]}
    found: dict[str, list[str]] = {}
    with world.engine.connect() as connection:
        for table in METADATA.sorted_tables:
            for name, value in own.items():
                if name in table.columns:
                    rows = connection.execute(select(table).where(table.c[name] == value))
                    found[f"{table.name} {name}"] = sorted(map(str, rows))
    return found


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
@pytest.mark.parametrize("has_data", sampled([True, False], sample=1), ids=["with data", "with nothing"])
def test_operation_with_ids_of_another_tenant(
    shared_world: BackendWorld, operation: AnyOperation, has_data: bool
) -> None:
    one, other = Actor(shared_world, MINE), Actor(shared_world, OTHERS)
    one.prepare(operation)
    if has_data:
        other.prepare(operation)
    # Their own credentials, but all ids are those of the one.
    data = one.data(operation)
    if operation.auth is AuthLevel.BODY:
        data["authToken"] = other.names["authToken"]
    before = rows_of(shared_world, one)
    assert any(before.values())

    response = other.caller(operation).call(operation.name, **data)

    assert response.status_code < 500
    assert MINE.encode() not in response.data
    assert rows_of(shared_world, one) == before
    if SAMPLES[operation.name].get("shows"):
        # The one would see it: the mark is there to be found.
        assert MINE.encode() in one.caller(operation).call(operation.name, **data).data


def test_every_table_has_a_tenant_column() -> None:
    nobodys = {"owner", "workspace_attempt", "key_check"}

    assert {
        table.name for table in METADATA.sorted_tables if not {"api_key_id", "workspace_id"} & set(table.columns.keys())
    } == nobodys


def test_keys_of_one_workspace_are_isolated(world: BackendWorld) -> None:
    owner = world.workspace("ada@acme.example")
    tenants = []
    for _ in range(2):
        key = owner("create_api_key", ownerEmail="ada@acme.example", type="testing", createAuthToken=True)["apiKey"]
        token = owner("get_auth_tokens", apiKey=key)["authTokens"][0]["token"]
        tenants.append(Caller(world.app, {"x-service-api-key": key, "x-service-auth-token": token}))
    tenants[0]("add_users", organizationId="acme", users=[{"userId": "ada"}])

    assert tenants[1]("get_users", organizationId="acme") == []


def test_page_token_of_another_key_is_refused(world: BackendWorld) -> None:
    one, other = Actor(world, MINE), Actor(world, OTHERS)
    for actor in (one, other):
        actor.tenant("add_organizations", organizations=[{"organizationId": f"o{number}"} for number in range(3)])
    first: Any = one.tenant.call("get_organizations", pageSize=1).json
    token = first["result"]["nextPageToken"]

    assert other.tenant.refused("get_organizations", pageSize=1, pageToken=token)[1] == "INVALID_ARGUMENT"
