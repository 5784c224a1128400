import pytest

from app.contract.operation import AuthLevel
from app.contract.operations import OPERATIONS

from .conftest import BackendWorld, Caller, WorldMaker, error_of

BUILT = [
    operation.name
    for operation in OPERATIONS
    if operation.auth in {AuthLevel.K, AuthLevel.W}
    and operation.path.startswith(("/v1/organizations", "/v1/users", "/v2/users", "/v2/organizations"))
    and "migrate" not in operation.path
    and "data/get" not in operation.path
]


@pytest.mark.parametrize("operation", [*BUILT, "get_workspace", "create_api_key", "get_permissions", "add_permissions"])
def test_missing_credentials_are_unauthenticated(standing: BackendWorld, operation: str) -> None:
    code, status, message = standing.anonymous.refused(operation)

    assert (code, status) == (401, "UNAUTHENTICATED")
    assert "x-service-" in message


@pytest.mark.parametrize("missing", ["x-service-api-key", "x-service-auth-token"])
def test_error_names_the_missing_header(tenant: Caller, missing: str) -> None:
    del tenant.headers[missing]

    code, _, message = tenant.refused("get_organizations")

    assert code == 401
    assert missing in message


@pytest.mark.parametrize("wrong", ["", "nothing", "ключ", "x" * 5000, "a,b", "'; DROP TABLE api_key; --"])
@pytest.mark.parametrize("header", ["x-service-api-key", "x-service-auth-token"])
def test_wrong_credentials_are_denied(tenant: Caller, header: str, wrong: str) -> None:
    tenant.headers[header] = wrong.encode().decode("latin-1")

    response = tenant.call("get_permission_provider_config")

    assert response.status_code == (403 if wrong else 401)
    assert error_of(response)[0] == ("PERMISSION_DENIED" if wrong else "UNAUTHENTICATED")


def test_token_of_another_key_is_denied(world: BackendWorld) -> None:
    one, other = world.tenant(), world.tenant()
    one.headers["x-service-auth-token"] = other.headers["x-service-auth-token"]

    assert one.refused("get_organizations")[:2] == (403, "PERMISSION_DENIED")


def test_workspace_credentials_are_denied_for_api_key_operations(world: BackendWorld) -> None:
    owner = world.workspace()
    headers = {
        "x-service-api-key": owner.ids["workspace"],
        "x-service-auth-token": owner.headers["x-service-workspace-auth-token"],
    }

    assert Caller(world.app, headers).refused("get_organizations")[0] == 403
    owner.headers["x-service-workspace-auth-token"] = "wrong"
    assert owner.refused("get_workspace")[:2] == (403, "PERMISSION_DENIED")


def test_every_configured_header_prefix_is_accepted(make_world: WorldMaker) -> None:
    world = make_world(header_prefixes=["x-service-", "X-Acme-"])
    tenant = world.tenant()
    tenant.headers = {name.replace("x-service-", "x-acme-"): value for name, value in tenant.headers.items()}

    assert tenant("get_organizations") == []

    tenant.headers = {name.replace("x-acme-", "x-other-"): value for name, value in tenant.headers.items()}
    assert tenant.refused("get_organizations")[0] == 401


def test_credentials_are_checked_before_the_body_is_read(world: BackendWorld) -> None:
    assert world.anonymous.send("/v1/users/add", b"{").status_code == 401
