import base64
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import select, text, update

from app.backend.webhooks.tables import WEBHOOK_DELIVERY, WEBHOOK_ENDPOINT, WEBHOOK_QUEUE
from tests.backend.conftest import BackendWorld, Caller

from .conftest import Post
from .test_basic import PUBLIC_KEY

UNSET = {
    "isEnabled": False,
    "encryptData": False,
    "encodeData": False,
    "publicKey": "",
    "enableDataProtection": False,
}
URL = "https://hooks.acme.example/in"


@pytest.fixture
def enabled(tenant: Caller) -> Caller:
    tenant("update_advanced_webhook_config", isEnabled=True)
    return tenant


def test_the_config_is_merged_into_what_is_stored(tenant: Caller) -> None:
    assert tenant("get_advanced_webhook_config") == UNSET
    assert tenant("update_advanced_webhook_config", isEnabled=True) == UNSET | {"isEnabled": True}

    state = tenant("update_advanced_webhook_config", encryptData=True, publicKey=PUBLIC_KEY)

    assert state == UNSET | {"isEnabled": True, "encryptData": True, "publicKey": PUBLIC_KEY}
    assert tenant("update_advanced_webhook_config", isEnabled=False) == state | {"isEnabled": False}
    assert tenant("get_advanced_webhook_config") == state | {"isEnabled": False}


def test_the_first_config_must_enable_webhooks(tenant: Caller) -> None:
    for requested in ({"encodeData": True}, {"isEnabled": False}):
        assert tenant.refused("update_advanced_webhook_config", **requested)[:2] == (400, "FAILED_PRECONDITION")
    assert tenant.refused("update_advanced_webhook_config")[:2] == (400, "INVALID_ARGUMENT")
    assert tenant("get_advanced_webhook_config") == UNSET


@pytest.mark.parametrize("requested", [{"publicKey": "no key"}, {"encryptData": True}])
def test_encryption_needs_a_key(enabled: Caller, requested: dict[str, Any]) -> None:
    code, status, message = enabled.refused("update_advanced_webhook_config", **requested)
    assert (code, status) == (400, "INVALID_ARGUMENT")
    assert message.startswith("data.publicKey: ")


ENDPOINT_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("create_advanced_webhook_endpoint", {"url": URL}),
    ("list_advanced_webhook_endpoints", {}),
    ("update_advanced_webhook_endpoint", {"endpointId": "ep_x", "url": URL}),
    ("delete_advanced_webhook_endpoint", {"endpointId": "ep_x"}),
    ("get_advanced_webhook_endpoint_secret", {"endpointId": "ep_x"}),
]


@pytest.mark.parametrize(("operation", "data"), ENDPOINT_CALLS)
def test_endpoints_need_advanced_webhooks_enabled(standing: BackendWorld, operation: str, data: dict[str, Any]) -> None:
    tenant = standing.tenant()
    assert tenant.refused(operation, **data)[:2] == (400, "FAILED_PRECONDITION")
    tenant("update_advanced_webhook_config", isEnabled=True)
    tenant("update_advanced_webhook_config", isEnabled=False)
    assert tenant.refused(operation, **data)[:2] == (400, "FAILED_PRECONDITION")


@pytest.mark.parametrize(("operation", "data"), ENDPOINT_CALLS[2:])
def test_unknown_endpoints_and_those_of_others_are_not_found(
    standing: BackendWorld, operation: str, data: dict[str, Any]
) -> None:
    tenant, other = standing.tenant(), standing.tenant()
    for caller in (tenant, other):
        caller("update_advanced_webhook_config", isEnabled=True)
    theirs = other("create_advanced_webhook_endpoint", url=URL)
    for endpoint_id in ("ep_x", theirs["id"]):
        assert tenant.refused(operation, **data | {"endpointId": endpoint_id})[:2] == (404, "NOT_FOUND")
    assert other("list_advanced_webhook_endpoints")["endpoints"] == [theirs]


def test_an_endpoint_is_created_read_updated_and_deleted(enabled: Caller) -> None:
    bare = enabled("create_advanced_webhook_endpoint", url=URL)
    assert bare == {
        "id": bare["id"],
        "url": URL,
        "description": None,
        "filterTypes": None,
        "channels": None,
        "disabled": False,
        "rateLimit": None,
        "uid": None,
        "metadata": None,
        "createdAt": "2026-11-20T12:00:00.000Z",
        "updatedAt": "2026-11-20T12:00:00.000Z",
    }
    assert datetime.fromisoformat(bare["createdAt"]).utcoffset() is not None
    fields = {
        "description": "d",
        "filterTypes": ["comment.add"],
        "channels": ["organization:acme"],
        "disabled": True,
        "rateLimit": 5,
        "uid": "mine",
        "metadata": {"team": "core"},
    }
    changed = enabled("update_advanced_webhook_endpoint", endpointId=bare["id"], **fields)
    assert changed == bare | fields
    assert enabled("update_advanced_webhook_endpoint", endpointId=bare["id"], rateLimit=None) == changed
    assert enabled("list_advanced_webhook_endpoints")["endpoints"] == [changed]

    assert enabled("delete_advanced_webhook_endpoint", endpointId=bare["id"]) == {
        "endpointId": bare["id"],
        "deleted": True,
    }
    assert enabled("list_advanced_webhook_endpoints") == {
        "endpoints": [],
        "iterator": None,
        "prevIterator": None,
        "done": True,
    }


def test_the_backend_creates_the_secret_and_stores_it_encrypted(world: BackendWorld) -> None:
    tenant = world.tenant()
    tenant("update_advanced_webhook_config", isEnabled=True)
    ids = [tenant("create_advanced_webhook_endpoint", url=URL, secret="whsec_bWluZQ==")["id"] for _ in range(2)]
    found = [tenant("get_advanced_webhook_endpoint_secret", endpointId=item) for item in ids]

    assert [item["endpointId"] for item in found] == ids
    secrets = [item["secret"] for item in found]
    assert len(set(secrets)) == 2
    for secret in secrets:
        assert secret.startswith("whsec_")
        assert len(base64.b64decode(secret.removeprefix("whsec_"))) == 32
    with world.engine.connect() as connection:
        stored = str(connection.execute(select(WEBHOOK_ENDPOINT)).all())
    assert not any(secret.removeprefix("whsec_") in stored for secret in secrets)


@pytest.mark.parametrize("url", ["http://localhost/", "http://127.1/", "http://10.1.2.3/", "https://u:p@acme.example/"])
def test_urls_that_must_not_be_called_are_refused(standing: BackendWorld, url: str) -> None:
    tenant = standing.tenant()
    tenant("update_advanced_webhook_config", isEnabled=True)
    endpoint = tenant("create_advanced_webhook_endpoint", url=URL)
    for operation, data in (
        ("create_advanced_webhook_endpoint", {}),
        ("update_advanced_webhook_endpoint", {"endpointId": endpoint["id"]}),
    ):
        code, status, message = tenant.refused(operation, url=url, **data)
        assert (code, status) == (400, "INVALID_ARGUMENT")
        assert message.startswith("data.url: ")
    assert tenant("list_advanced_webhook_endpoints")["endpoints"] == [endpoint]


def test_a_uid_is_unique(enabled: Caller) -> None:
    first = enabled("create_advanced_webhook_endpoint", url=URL, uid="one")
    second = enabled("create_advanced_webhook_endpoint", url=URL, uid="two")
    assert enabled.refused("create_advanced_webhook_endpoint", url=URL, uid="one")[:2] == (409, "ALREADY_EXISTS")
    update = ("update_advanced_webhook_endpoint", second["id"])
    assert enabled.refused(update[0], endpointId=update[1], uid="one")[:2] == (409, "ALREADY_EXISTS")
    assert enabled(update[0], endpointId=update[1], uid="two") == second
    assert enabled("list_advanced_webhook_endpoints")["endpoints"] == sorted(
        (first, second), key=lambda item: item["id"]
    )


def test_endpoints_are_listed_by_page_in_both_directions(world: BackendWorld) -> None:
    tenant = world.tenant()
    tenant("update_advanced_webhook_config", isEnabled=True)
    made = []
    for _ in range(7):
        made.append(tenant("create_advanced_webhook_endpoint", url=URL)["id"])
        world.clock.move_on(seconds=1)

    def page(iterator: str | None) -> Any:
        return tenant("list_advanced_webhook_endpoints", limit=3, iterator=iterator)

    pages = [page(None)]
    while not pages[-1]["done"]:
        pages.append(page(pages[-1]["iterator"]))
    assert [[item["id"] for item in found["endpoints"]] for found in pages] == [made[:3], made[3:6], made[6:]]
    back = page(pages[2]["prevIterator"])
    assert [item["id"] for item in back["endpoints"]] == made[3:6]
    assert not back["done"]
    back = page(back["prevIterator"])
    assert [item["id"] for item in back["endpoints"]] == made[:3]
    assert back["done"]
    # An iterator works after a deletion between the pages.
    tenant("delete_advanced_webhook_endpoint", endpointId=made[2])
    assert [item["id"] for item in page(pages[0]["iterator"])["endpoints"]] == made[3:6]


def test_pages_do_not_depend_on_the_collation_of_the_database(world: BackendWorld) -> None:
    tenant = world.tenant()
    tenant("update_advanced_webhook_config", isEnabled=True)
    made = [tenant("create_advanced_webhook_endpoint", url=URL)["id"] for _ in range(2)]
    change = "ALTER TABLE webhook_endpoint ALTER COLUMN endpoint_id TYPE VARCHAR COLLATE"
    has_collations = world.engine.dialect.name == "postgresql"
    with world.engine.begin() as connection:
        if has_collations:
            connection.execute(text(f'{change} "en-US-x-icu"'))  # "ep_a" is before "ep_B"
        for old, new in zip(made, ["ep_a", "ep_B"], strict=True):
            column = WEBHOOK_ENDPOINT.c.endpoint_id
            connection.execute(update(WEBHOOK_ENDPOINT).where(column == old).values(endpoint_id=new))
    try:
        first = tenant("list_advanced_webhook_endpoints", limit=1)
        second = tenant("list_advanced_webhook_endpoints", limit=1, iterator=first["iterator"])
    finally:
        if has_collations:
            with world.engine.begin() as connection:
                connection.execute(text(f'{change} "default"'))
    assert [item["id"] for found in (first, second) for item in found["endpoints"]] == ["ep_B", "ep_a"]
    assert second["done"]


def test_an_empty_iterator_is_the_first_page(standing: BackendWorld) -> None:
    tenant = standing.tenant()
    tenant("update_advanced_webhook_config", isEnabled=True)
    made = tenant("create_advanced_webhook_endpoint", url="https://receiver.example/hooks")["id"]
    assert [item["id"] for item in tenant("list_advanced_webhook_endpoints", iterator="")["endpoints"]] == [made]


@pytest.mark.parametrize("iterator", ["x", "+", "+1", "+a.b", "-.e", "+1234567890123456.e", "+٣.e"])
def test_other_iterators_are_refused(standing: BackendWorld, iterator: str) -> None:
    tenant = standing.tenant()
    tenant("update_advanced_webhook_config", isEnabled=True)
    refused = tenant.refused("list_advanced_webhook_endpoints", iterator=iterator)
    assert refused[:2] == (400, "INVALID_ARGUMENT")
    assert refused[2].startswith("data.iterator: ")


def test_the_number_of_endpoints_is_limited(standing: BackendWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.backend.webhooks.endpoints.MAX_ENDPOINTS", 2)
    tenant = standing.tenant()
    tenant("update_advanced_webhook_config", isEnabled=True)
    for _ in range(2):
        tenant("create_advanced_webhook_endpoint", url=URL)
    assert tenant.refused("create_advanced_webhook_endpoint", url=URL)[:2] == (429, "RESOURCE_EXHAUSTED")


def test_deleting_an_endpoint_deletes_its_queue(post: Post, closed_port: str) -> None:
    post.enable()
    endpoint_id = post.endpoint(closed_port)
    post.begin_thread("t1")
    post.work()
    post.tenant("delete_advanced_webhook_endpoint", endpointId=endpoint_id)
    with post.world.engine.connect() as connection:
        assert connection.execute(select(WEBHOOK_QUEUE)).all() == []
        assert connection.execute(select(WEBHOOK_DELIVERY)).all() == []


def test_an_endpoint_may_be_deleted_during_a_request(post: Post, make_receiver: Callable[[], Any]) -> None:
    receiver = make_receiver()
    post.enable()
    endpoint_id = post.endpoint(receiver.url)
    receiver.on_request = lambda _: post.tenant("delete_advanced_webhook_endpoint", endpointId=endpoint_id)
    post.begin_thread("t1")
    post.work()
    assert len(receiver.got) == 1
    assert post.states() == []
