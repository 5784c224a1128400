"""Disabled organizations and documents deny users, but not the API key."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from .conftest import Answerer, BackendWorld, Caller, ScriptedProvider, WorldMaker

ORG = {"organizationId": "acme"}
DENIED = "permission_denied"


def let_everyone_in(body: dict[str, Any], _: dict[str, str]) -> tuple[int, bytes]:
    questions = body["data"]["requests"]
    data = [
        {
            "userId": question["userId"],
            "resourceId": question["resource"]["id"],
            "type": question["resource"]["type"],
            "organizationId": question["resource"]["organizationId"],
            "hasAccess": True,
        }
        for question in questions
    ]
    return 200, orjson.dumps({"data": data, "success": True, "statusCode": 200})


def filled(world: BackendWorld) -> Caller:
    tenant = world.tenant()
    tenant("add_users", **ORG, users=[{"userId": "ada"}])
    tenant("add_documents", **ORG, documents=[{"documentId": "shut"}, {"documentId": "open"}])
    return tenant


def documents_of(tenant: Caller) -> dict[str, Any]:
    answer = tenant("get_permissions", **ORG, userIds=["ada"], documentIds=["shut", "open"])["ada"]
    return {
        name: one.get("errorCode") or one["accessRole"]
        for section in ("organization", "documents")
        for name, one in answer[section].items()
    }


def set_disabled(tenant: Caller, disabled: object) -> None:
    tenant("update_documents", **ORG, documents=[{"documentId": "shut", "disabled": disabled}])


def test_disabled_document(world: BackendWorld) -> None:
    tenant = filled(world)

    set_disabled(tenant, True)
    assert documents_of(tenant) == {"acme": "editor", "shut": DENIED, "open": "editor"}
    set_disabled(tenant, False)
    assert documents_of(tenant) == {"acme": "editor", "shut": "editor", "open": "editor"}


@pytest.mark.parametrize("disabled", ["true", 1, {"disabled": True}, None])
def test_only_true_disables(world: BackendWorld, disabled: object) -> None:
    tenant = filled(world)
    set_disabled(tenant, disabled)

    assert documents_of(tenant)["shut"] == "editor"


def test_provider_is_not_called_about_disabled_items(
    make_world: WorldMaker, make_provider: Callable[[Answerer], ScriptedProvider]
) -> None:
    world, provider = make_world(allow_private_urls=True), make_provider(let_everyone_in)
    tenant = filled(world)
    config = {"permissionProviderUrl": provider.url}
    tenant("update_permission_provider_config", usePermissionProvider=True, permissionProviderConfig=config)
    set_disabled(tenant, True)

    assert documents_of(tenant) == {"acme": "editor", "shut": DENIED, "open": "editor"}
    assert [question["resource"]["id"] for question in provider.asked[0]] == ["acme", "open"]
    tenant("disable_organizations", organizationIds=["acme"], disabled=True)
    assert documents_of(tenant) == {"acme": DENIED, "shut": DENIED, "open": DENIED}
    assert len(provider.asked) == 1


@pytest.mark.parametrize("what", ["document", "organization"])
def test_api_key_can_write_but_authors_are_denied(world: BackendWorld, what: str) -> None:
    tenant = filled(world)
    if what == "document":
        set_disabled(tenant, True)
    else:
        tenant("disable_organizations", organizationIds=["acme"], disabled=True)
    thread = {"annotationId": "t", "commentData": [{"commentText": "x", "from": {"userId": "ada"}}]}
    request = ORG | {"documentId": "shut", "commentAnnotations": [thread]}

    assert tenant("add_comment_annotations", **request, verifyUserPermissions=True)["t"]["success"] is False
    assert tenant("add_comment_annotations", **request)["t"]["success"] is True
    assert tenant("add_users", **ORG, documentId="shut", users=[{"userId": "bob"}])["bob"]["success"] is True
    assert len(tenant("get_documents", **ORG)) == 2
