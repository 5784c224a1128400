from collections.abc import Callable
from typing import Any

import orjson
import pytest

from .conftest import Answerer, BackendWorld, Caller, ScriptedProvider, WorldMaker

ORG = {"organizationId": "acme"}
DOC = ORG | {"documentId": "d"}
ADA = {"userId": "ada", "name": "Ada"}


def fill(tenant: Caller) -> Caller:
    tenant("add_documents", **ORG, documents=[{"documentId": "d"}, {"documentId": "e"}], createOrganization=True)
    tenant("add_users", **DOC, users=[ADA, {"userId": "bob"}])
    tenant("add_users", **ORG, users=[{"userId": "cyd"}])
    return tenant


@pytest.fixture
def acme(world: BackendWorld) -> Caller:
    """A tenant with two documents. Ada and bob have an entry on the first, cyd in the organization."""
    return fill(world.tenant())


def add(tenant: Caller, notification_id: str, document: str = "d", **fields: Any) -> Any:
    requested = {"organizationId": "acme", "documentId": document, "actionUser": ADA, "notificationId": notification_id}
    return tenant("add_notifications", **(requested | fields))[notification_id]


def ids(tenant: Caller, **filters: Any) -> list[str]:
    return [item["id"] for item in tenant("get_notifications", **ORG, **filters)]


def test_a_notification_is_returned_as_it_was_added(acme: Caller, world: BackendWorld) -> None:
    fields: dict[str, Any] = {
        "displayHeadlineMessageTemplate": "{actionUser} did it",
        "displayHeadlineMessageTemplateData": {"actionUser": ADA, "recipientUser": "bob", "place": "here"},
        "displayBodyMessage": "look",
        "notificationSourceData": {"url": "x"},
        "locationId": "l",
        "more": {"kept": True},
    }
    assert add(acme, "n", **fields) == {
        "success": True, "id": "n", "message": "Notification added.", "notifiedUsers": 1,
    }  # fmt: skip

    (notification,) = acme("get_notifications", **ORG)

    assert notification == fields | {
        "id": "n",
        "documentId": "d",
        "actionUser": ADA,
        "timestamp": int(world.clock.now.timestamp() * 1000),
        "readByUserIds": [],
        "persistReadForUserIds": [],
    }


def test_a_notification_addresses_named_users_and_those_of_the_document(acme: Caller) -> None:
    add(acme, "all")
    add(acme, "named too", notifyUsers=[{"userId": "zoe"}])
    add(acme, "named alone", notifyUsers=[{"userId": "zoe"}, {"userId": "zoe"}], notifyAll=False)

    assert ids(acme, userId="bob", order="asc") == ["all", "named too"]
    assert ids(acme, userId="zoe", order="asc") == ["named alone", "named too"]
    assert ids(acme, userId="ada") == []
    assert ids(acme, userId="cyd") == []


def test_ids_are_unique(acme: Caller) -> None:
    add(acme, "n")

    refused = acme.refused("add_notifications", **DOC, actionUser=ADA, notificationId="n")
    assert refused == (409, "ALREADY_EXISTS", "data.notificationId: Notification already exists.")
    assert acme.refused("add_notifications", **ORG, documentId="x", actionUser=ADA)[:2] == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("scope", "reached"),
    [
        ({}, {"n", "other location", "other document"}),
        ({"documentId": "d"}, {"n", "other location"}),
        ({"documentId": "d", "locationId": "l"}, {"n"}),
        ({"documentId": "d", "locationId": "l", "userId": "bob"}, {"n"}),
        ({"documentId": "d", "locationId": "l", "userId": "zoe"}, set()),
        ({"userId": "zoe"}, {"other document"}),
        ({"locationId": "l"}, {"n", "other document"}),
    ],
)
def test_update_is_limited_to_its_scope(acme: Caller, scope: dict[str, str], reached: set[str]) -> None:
    add(acme, "n", locationId="l")
    add(acme, "other location", locationId="m")
    add(acme, "other document", document="e", locationId="l", notifyUsers=[{"userId": "zoe"}])
    ids = ["n", "other location", "other document", "who"]

    items = [{"id": item, "displayBodyMessage": "new"} for item in ids]
    results = acme("update_notifications", **ORG, **scope, notifications=items)

    assert results == {
        item: {"success": True, "message": "Notification updated."}
        if item in reached
        else {"success": False, "message": "Failed to update notification."}
        for item in ids
    }
    shown = {item["id"] for item in acme("get_notifications", **ORG) if item.get("displayBodyMessage") == "new"}
    assert shown == reached


def test_update_merges_fields(acme: Caller) -> None:
    add(acme, "n", displayBodyMessage="old", notificationSourceData={"a": 1}, more=1)

    acme(
        "update_notifications",
        **ORG,
        notifications={"id": "n", "displayBodyMessage": "new", "actionUser": {"userId": "eve"}, "other": 2},
    )

    (shown,) = acme("get_notifications", **ORG)
    assert (shown["displayBodyMessage"], shown["notificationSourceData"]) == ("new", {"a": 1})
    assert (shown["actionUser"], shown["more"], shown["other"]) == ({"userId": "eve"}, 1, 2)


def test_readers_are_added_and_never_removed(acme: Caller) -> None:
    add(acme, "n", notifyUsers=[{"userId": "zoe"}])

    def read_by(*users: str, **fields: Any) -> dict[str, Any]:
        acme("update_notifications", **ORG, notifications=[{"id": "n", "readByUserIds": list(users), **fields}])
        shown: dict[str, Any] = acme("get_notifications", **ORG)[0]
        return shown

    assert read_by("bob")["readByUserIds"] == ["bob"]
    assert read_by("bob", "new")["readByUserIds"] == ["bob", "new"]
    shown = read_by("zoe", "bob", persistReadForUsers=True)
    assert (shown["readByUserIds"], shown["persistReadForUserIds"]) == (["bob", "new", "zoe"], ["bob", "zoe"])
    assert read_by()["readByUserIds"] == ["bob", "new", "zoe"]
    # A reader is a user of the notification.
    assert ids(acme, userId="new") == ["n"]
    assert acme("get_notifications", **ORG, userId="zoe")[0]["readByUserIds"] == ["zoe"]


def test_updates_with_the_same_id_are_applied_in_order(acme: Caller) -> None:
    add(acme, "n")
    items = [{"id": "n", "displayBodyMessage": "1", "readByUserIds": ["bob"]}, {"id": "n", "displayBodyMessage": "2"}]

    acme("update_notifications", **ORG, notifications=items)

    (shown,) = acme("get_notifications", **ORG)
    assert (shown["displayBodyMessage"], shown["readByUserIds"]) == ("2", ["bob"])


def test_a_later_read_mark_without_persists_does_not_change_it(acme: Caller) -> None:
    add(acme, "n")
    first = {"id": "n", "readByUserIds": ["bob", "zoe"], "persistReadForUsers": True}

    acme("update_notifications", **ORG, notifications=[first, {"id": "n", "readByUserIds": ["bob"]}])

    assert acme("get_notifications", **ORG)[0]["persistReadForUserIds"] == ["bob", "zoe"]


def test_persists_can_be_unset(acme: Caller) -> None:
    add(acme, "n")

    def staying(*items: dict[str, Any]) -> list[str]:
        acme("update_notifications", **ORG, notifications=[{"id": "n"} | item for item in items])
        shown: dict[str, Any] = acme("get_notifications", **ORG)[0]
        assert shown["readByUserIds"] == ["bob", "zoe"]
        users: list[str] = shown["persistReadForUserIds"]
        return users

    both: dict[str, Any] = {"readByUserIds": ["bob", "zoe"]}
    assert staying(both | {"persistReadForUsers": True}) == ["bob", "zoe"]
    assert staying({"readByUserIds": ["bob"], "persistReadForUsers": False}) == ["zoe"]
    # Without the field it does not change.
    assert staying(both) == ["zoe"]
    assert staying(both | {"persistReadForUsers": None}) == ["zoe"]
    # The last value in a request wins, as with every other field.
    assert staying(both | {"persistReadForUsers": True}, both | {"persistReadForUsers": False}) == []
    assert staying(both | {"persistReadForUsers": False}, both | {"persistReadForUsers": True}) == ["bob", "zoe"]


@pytest.mark.parametrize("filters", [{}, {"userId": "bob"}, {"documentId": "d"}, {"userId": "bob", "documentId": "d"}])
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_contain_every_notification_once(
    acme: Caller, world: BackendWorld, filters: dict[str, str], order: str
) -> None:
    expected = []
    for number in range(11):
        world.clock.move_on(milliseconds=number % 2)
        add(acme, f"n{number:02}")
        expected.append((world.clock.now, f"n{number:02}"))

    found: list[str] = []
    token: dict[str, str] = {}
    while True:
        result = acme.call("get_notifications", **ORG, **filters, **token, pageSize=3, order=order).get_json()["result"]
        found += [item["id"] for item in result["data"]]
        if "nextPageToken" not in result:
            break
        token = {"pageToken": result["nextPageToken"]}

    assert found == [item for _, item in sorted(expected, reverse=order == "desc")]


def test_notifications_are_filtered_by_id(acme: Caller) -> None:
    for item in ("a", "b", "c"):
        add(acme, item, locationId=item)

    assert ids(acme, notificationIds=["c", "a", "x"], order="asc") == ["a", "c"]
    assert ids(acme, notificationIds=["c", "a"], userId="bob", locationId="a") == ["a"]
    assert ids(acme, notificationIds=[]) == []


def test_permissions_are_verified_by_own_data(acme: Caller) -> None:
    shown = add(acme, "n", notifyUsers=[{"userId": "cyd"}, {"userId": "stranger"}], verifyUserPermissions=True)

    assert shown["notifiedUsers"] == 2
    assert [ids(acme, userId=user) for user in ("bob", "cyd", "stranger")] == [["n"], ["n"], []]


def test_permissions_are_verified_by_the_provider(
    make_world: WorldMaker, make_provider: Callable[[Answerer], ScriptedProvider]
) -> None:
    def answer(body: dict[str, Any], _: dict[str, str]) -> tuple[int, bytes]:
        results = [
            {
                "userId": item["userId"],
                "resourceId": item["resource"]["id"],
                "type": "document",
                "organizationId": "acme",
                "hasAccess": item["userId"] == "stranger",
            }
            for item in body["data"]["requests"]
        ]
        return 200, orjson.dumps({"data": results, "success": True, "statusCode": 200})

    provider = make_provider(answer)
    acme = fill(make_world(allow_private_urls=True).tenant())
    acme(
        "update_permission_provider_config",
        usePermissionProvider=True,
        permissionProviderConfig={"permissionProviderUrl": provider.url},
    )

    shown = add(acme, "n", notifyUsers=[{"userId": "stranger"}], verifyUserPermissions=True)

    assert shown["notifiedUsers"] == 1
    assert [ids(acme, userId=user) for user in ("bob", "stranger")] == [[], ["n"]]
    assert [item["userId"] for item in provider.asked[0]] == ["stranger", "bob"]
    provider.close()
    assert add(acme, "m", verifyUserPermissions=True)["notifiedUsers"] == 0
