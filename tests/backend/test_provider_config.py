import pytest
from sqlalchemy import select

from app.backend.security.tables import PROVIDER_CONFIG

from .conftest import BackendWorld, Caller, WorldMaker

UNSET = {"usePermissionProvider": False, "permissionProviderConfig": {"permissionProviderUrl": "", "authToken": ""}}


def test_update_is_merged(tenant: Caller) -> None:
    assert tenant("get_permission_provider_config") == UNSET

    state = tenant("update_permission_provider_config", usePermissionProvider=True)
    assert state == UNSET | {"usePermissionProvider": True}
    state = tenant(
        "update_permission_provider_config",
        permissionProviderConfig={"permissionProviderUrl": "https://provider.example/check", "authToken": "t0ken"},
    )
    assert state == {
        "usePermissionProvider": True,
        "permissionProviderConfig": {
            "permissionProviderUrl": "https://provider.example/check",
            "authToken": "t0ken",
        },
    }
    state = tenant(
        "update_permission_provider_config",
        usePermissionProvider=False,
        permissionProviderConfig={"permissionProviderUrl": ""},
    )
    assert state["permissionProviderConfig"] == {"permissionProviderUrl": "", "authToken": "t0ken"}
    assert tenant("get_permission_provider_config") == state


def test_empty_update_is_refused(tenant: Caller) -> None:
    assert tenant.refused("update_permission_provider_config")[:2] == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://provider.example",
        "provider.example",
        "http://",
        "http://user:secret@provider.example/",
        "http://localhost:8080/",
        "http://a.localhost/",
        "http://127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://10.1.2.3/",
        "http://169.254.169.254/latest",
        "http://0.0.0.0/",
        "http://[fd00::1]/",
    ],
)
def test_forbidden_urls_are_refused(standing: BackendWorld, url: str) -> None:
    tenant = standing.tenant()
    code, status, message = tenant.refused(
        "update_permission_provider_config", permissionProviderConfig={"permissionProviderUrl": url}
    )

    assert (code, status) == (400, "INVALID_ARGUMENT")
    assert message.startswith("data.permissionProviderConfig.permissionProviderUrl: ")
    assert tenant("get_permission_provider_config") == UNSET


def test_private_urls_can_be_allowed(make_world: WorldMaker) -> None:
    tenant = make_world(allow_private_urls=True).tenant()
    url = {"permissionProviderUrl": "http://127.0.0.1:8080/permissions/check"}

    assert tenant("update_permission_provider_config", permissionProviderConfig=url)["permissionProviderConfig"][
        "permissionProviderUrl"
    ].startswith("http://127.0.0.1")


@pytest.mark.parametrize("token", ["with space", "line\r\nbreak", "ключ"])
def test_tokens_that_are_invalid_in_a_header_are_refused(tenant: Caller, token: str) -> None:
    refused = tenant.refused("update_permission_provider_config", permissionProviderConfig={"authToken": token})

    assert refused[:2] == (400, "INVALID_ARGUMENT")
    assert token not in refused[2]


def test_token_is_stored_encrypted(world: BackendWorld) -> None:
    world.tenant()("update_permission_provider_config", permissionProviderConfig={"authToken": "very-secret-token"})

    with world.engine.connect() as connection:
        (row,) = connection.execute(select(PROVIDER_CONFIG)).all()
    assert "very-secret-token" not in str(tuple(row))
