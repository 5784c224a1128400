from typing import Any

import pytest

from tests.worlds.clock import NOON

from .conftest import BackendWorld, Caller

LEVELS: list[dict[str, str]] = [{}, {"folderId": "f"}, {"documentId": "d"}]


def add(tenant: Caller, *users: str | dict[str, Any], **place: Any) -> Any:
    given = [user if isinstance(user, dict) else {"userId": user} for user in users]
    return tenant("add_users", organizationId="acme", users=given, **place)


def at(tenant: Caller, **data: Any) -> list[str]:
    return [user["userId"] for user in tenant("get_users", organizationId="acme", **data)]


@pytest.fixture
def acme(tenant: Caller) -> Caller:
    tenant("add_organizations", organizations=[{"organizationId": "acme"}])
    tenant("add_folder", organizationId="acme", folders=[{"folderId": "f"}, {"folderId": "g"}])
    tenant("add_documents", organizationId="acme", documents=[{"documentId": "d"}, {"documentId": "e"}])
    return tenant


@pytest.mark.parametrize("place", LEVELS)
def test_entries_are_independent(acme: Caller, place: dict[str, str]) -> None:
    results = add(acme, {"userId": "ada", "name": "ada Lovelace", "email": "ada@acme.example", "plan": [1]}, **place)

    assert results == {"ada": {"success": True, "id": "ada", "message": "User added."}}
    assert acme("get_users", organizationId="acme", **place) == [
        {
            "userId": "ada",
            "name": "ada Lovelace",
            "email": "ada@acme.example",
            "initial": "A",
            "accessRole": "editor",
            "plan": [1],
        }
    ]
    for other in LEVELS:
        assert at(acme, **other) == (["ada"] if other == place else [])


@pytest.mark.parametrize("place", LEVELS)
def test_a_user_is_added_once_per_level(acme: Caller, place: dict[str, str]) -> None:
    add(acme, {"userId": "ada", "name": "Ada"}, **place)

    results = add(acme, {"userId": "ada", "name": "Eve"}, "bob", "bob", **place)

    assert results["ada"] == {"success": False, "id": "ada", "message": "User already exists."}
    assert results["bob"]["success"] is True
    assert acme("get_users", organizationId="acme", userIds=["ada"], **place)[0]["name"] == "Ada"


def test_add_users_creates_organization_and_document(tenant: Caller) -> None:
    add(tenant, "ada")
    assert tenant("get_organizations_v1") == [{"id": "acme", "organizationName": "acme", "disabled": False}]

    tenant("add_users", organizationId="other", documentId="d", users=[{"userId": "ada"}])
    assert [wire["id"] for wire in tenant("get_organizations_v1")] == ["acme", "other"]
    assert [wire["id"] for wire in tenant("get_documents", organizationId="other")] == ["d"]


def test_add_users_creates_a_folder_only_on_request(tenant: Caller) -> None:
    results = add(tenant, "ada", folderId="f")
    assert results == {"ada": {"success": False, "id": "ada", "message": "Folder does not exist."}}
    assert tenant("get_organizations_v1") == []

    assert add(tenant, "ada", folderId="f", createFolder=True)["ada"]["success"] is True
    assert tenant("get_folders", organizationId="acme")[0]["folderId"] == "f"


def test_an_empty_batch_changes_nothing(tenant: Caller) -> None:
    assert add(tenant) == {}
    assert tenant("get_organizations_v1") == []


@pytest.mark.parametrize(
    ("given", "initial"),
    [
        ({"name": "grace hopper"}, "G"),
        ({"name": "  éva"}, "É"),
        ({"name": "ßeta"}, "ß"),
        ({"name": "Ada", "initial": "AL"}, "AL"),
        ({"name": "  "}, None),
        ({}, None),
    ],
)
def test_initial_is_derived_from_the_name(tenant: Caller, given: dict[str, str], initial: str | None) -> None:
    add(tenant, {"userId": "u"} | given)

    assert tenant("get_users", organizationId="acme")[0].get("initial") == initial


@pytest.mark.parametrize("place", LEVELS)
def test_update_users_on_one_level(acme: Caller, place: dict[str, str]) -> None:
    for level in LEVELS:
        add(acme, {"userId": "ada", "name": "Ada", "email": "a@acme.example", "x": 1}, **level)

    results = acme(
        "update_users",
        organizationId="acme",
        users=[{"userId": "ada", "name": "Eve", "accessRole": "viewer"}, {"userId": "who", "name": "W"}],
        **place,
    )

    assert results == {
        "ada": {"success": True, "id": "ada", "message": "User updated."},
        "who": {"success": False, "id": "who", "message": "User does not exist."},
    }
    for level in LEVELS:
        (user,) = acme("get_users", organizationId="acme", **level)
        changed = level == place
        assert (user["name"], user["accessRole"]) == (("Eve", "viewer") if changed else ("Ada", "editor"))
        # An initial that came from the name goes with it; what was not given stays.
        assert user["initial"] == ("E" if changed else "A")
        assert (user["email"], user["x"]) == ("a@acme.example", 1)


def test_initial_of_the_request_is_kept(tenant: Caller) -> None:
    add(tenant, {"userId": "ada", "name": "Ada", "initial": "X"})
    tenant("update_users", organizationId="acme", users=[{"userId": "ada", "name": "Eve"}])

    assert tenant("get_users", organizationId="acme")[0]["initial"] == "X"


def test_update_users_does_not_create_the_organization(tenant: Caller) -> None:
    results = tenant("update_users", organizationId="acme", users=[{"userId": "ada"}])

    assert results["ada"]["message"] == "User does not exist."
    assert tenant("get_organizations_v1") == []


def test_delete_users_from_a_folder_or_document(acme: Caller) -> None:
    for level in LEVELS:
        add(acme, "ada", **level)

    for level in ({"documentId": "d"}, {"folderId": "f"}):
        results = acme("delete_users", organizationId="acme", userIds=["ada", "who"], **level)
        assert results == {
            "ada": {"success": True, "message": "User removed."},
            "who": {"success": False, "message": "User does not exist."},
        }
        assert at(acme, **level) == []
    assert at(acme) == ["ada"]


def test_delete_users_from_the_organization_and_its_contents(acme: Caller) -> None:
    for level in LEVELS:
        add(acme, "ada", "bob", **level)
    acme("add_users_to_groups", organizationId="acme", organizationUserGroupId="g", userIds=["ada", "bob"])
    add(acme, "cleo", documentId="d")
    acme("add_users", organizationId="other", users=[{"userId": "ada"}])

    results = acme("delete_users", organizationId="acme", userIds=["ada", "cleo", "who"])

    assert {user: result["success"] for user, result in results.items()} == {"ada": True, "cleo": True, "who": False}
    for level in LEVELS:
        assert at(acme, **level) == ["bob"]
    assert at(acme, organizationUserGroupIds=["g"]) == ["bob"]
    assert [user["userId"] for user in acme("get_users", organizationId="other")] == ["ada"]


def test_document_and_folder_exclude_each_other(acme: Caller) -> None:
    for operation, data in (("get_users", {}), ("delete_users", {"userIds": ["a"]}), ("add_users", {"users": []})):
        assert acme.refused(operation, organizationId="acme", documentId="d", folderId="f", **data)[0] == 400


def test_users_are_filtered_by_id_and_group(acme: Caller) -> None:
    add(acme, "ada", "bob", "cleo")
    add(acme, "ada", "bob", documentId="d")
    acme("add_users_to_groups", organizationId="acme", organizationUserGroupId="g", userIds=["bob", "dan"])
    acme("add_users_to_groups", organizationId="acme", organizationUserGroupId="h", userIds=["cleo", "bob"])
    add(acme, {"userId": "dan", "name": "Dan"}, folderId="f")

    assert at(acme, userIds=["ada", "who"]) == ["ada"]
    assert at(acme, userIds=[]) == []
    assert at(acme, documentId="d", organizationUserGroupIds=["g"]) == ["bob"]
    assert at(acme, organizationUserGroupIds=["h", "g"]) == ["bob", "cleo", "dan"]
    assert at(acme, organizationUserGroupIds=["g"], userIds=["bob", "ada"]) == ["bob"]
    # A user with an entry only on a folder is a member of the group, without a role.
    assert acme("get_users", organizationId="acme", organizationUserGroupIds=["g"])[1] == {
        "userId": "dan",
        "name": "Dan",
        "initial": "D",
    }
    for field in ("userIds", "organizationUserGroupIds"):
        many = [f"x{number}" for number in range(31)]
        assert acme.refused("get_users", organizationId="acme", **{field: many})[0] == 400


def test_users_of_all_documents(acme: Caller) -> None:
    add(acme, "member")
    add(acme, "infolder", folderId="f")
    add(acme, "ada", "bob", documentId="d")
    add(acme, "ada", documentId="e")

    flat = acme("get_users", organizationId="acme", allDocuments=True)
    assert [(user["documentId"], user["userId"]) for user in flat] == [("d", "ada"), ("d", "bob"), ("e", "ada")]

    grouped = acme("get_users", organizationId="acme", allDocuments=True, groupByDocumentId=True)
    assert {document: [user["userId"] for user in users] for document, users in grouped.items()} == {
        "d": ["ada", "bob"],
        "e": ["ada"],
    }
    # Grouping is effective with allDocuments only.
    assert at(acme, groupByDocumentId=True) == ["member"]


@pytest.mark.parametrize("size", [1, 2, 3, 10])
@pytest.mark.parametrize(
    "filters", [{}, {"documentId": "d"}, {"allDocuments": True}, {"organizationUserGroupIds": ["g"]}]
)
def test_users_are_read_by_page(acme: Caller, filters: dict[str, Any], size: int) -> None:
    users = ["a", "b", "c d", "ž'\"/", "😀"]
    add(acme, *users)
    add(acme, *users, documentId="d")
    add(acme, *users, documentId="e")
    acme("add_users_to_groups", organizationId="acme", organizationUserGroupId="g", userIds=users)
    seen: list[tuple[str, str]] = []
    token: str | None = None
    pages = 0
    while pages == 0 or token:
        paging = {"pageSize": size} | ({"pageToken": token} if token else {})
        response = acme.call("get_users", organizationId="acme", **filters, **paging)
        assert response.json is not None
        page = response.json["result"]["data"]
        assert len(page) <= size
        seen += [(user.get("documentId", ""), user["userId"]) for user in page]
        token = response.json["result"].get("nextPageToken")
        pages += 1

    expected = (
        [(document, user) for document in ("d", "e") for user in users]
        if "allDocuments" in filters
        else [("", user) for user in users]
    )
    assert sorted(seen) == sorted(expected)
    assert pages == -(-len(expected) // size)


def test_pages_are_stable_under_changes(tenant: Caller) -> None:
    add(tenant, "a", "c", "e")
    response = tenant.call("get_users", organizationId="acme", pageSize=2)
    assert response.json is not None
    token = response.json["result"]["nextPageToken"]
    tenant("delete_users", organizationId="acme", userIds=["a", "c"])
    add(tenant, "b", "d")

    assert at(tenant, pageSize=2, pageToken=token) == ["d", "e"]


def test_both_versions_of_a_path_are_equivalent(tenant: Caller) -> None:
    body = b'{"data": {"organizationId": "acme", "users": [{"userId": "ada", "accessRole": "viewer"}]}}'
    assert tenant.send("/v2/users/add", body).status_code == 200

    answers = [
        tenant.send(path, b'{"data": {"organizationId": "acme"}}').json for path in ("/v1/users/get", "/v2/users/get")
    ]
    assert answers[0] == answers[1]
    assert answers[0] is not None
    assert answers[0]["result"]["data"][0]["accessRole"] == "viewer"


SOON = int(NOON.timestamp()) + 60


def expiring(tenant: Caller, **place: str) -> list[dict[str, Any]]:
    users: list[dict[str, Any]] = tenant("get_users", organizationId="acme", **place)
    return users


@pytest.mark.parametrize("place", LEVELS)
def test_read_users_can_be_added_unchanged(acme: Caller, world: BackendWorld, place: dict[str, str]) -> None:
    add(
        acme,
        {"userId": "ada", "name": "Ada", "email": "a@acme.example", "accessRole": "viewer", "expiresAt": SOON, "x": 1},
        {"userId": "bob"},
        **place,
    )
    before = expiring(acme, **place)
    assert [user.get("expiresAt") for user in before] == [SOON, None]

    # As it comes, elsewhere: nothing that ends becomes permanent on the way.
    other = world.tenant()
    other("add_folder", organizationId="acme", folders=[{"folderId": "f"}], createOrganization=True)
    add(other, *before, **place)
    assert expiring(other, **place) == before

    acme("update_users", organizationId="acme", users=before, **place)
    assert expiring(acme, **place) == before


@pytest.mark.parametrize("place", LEVELS)
def test_update_of_expires_at(acme: Caller, world: BackendWorld, place: dict[str, str]) -> None:
    add(acme, {"userId": "ada", "name": "Ada"}, **place)

    def update(**fields: Any) -> int | None:
        acme("update_users", organizationId="acme", users=[{"userId": "ada"} | fields], **place)
        (user,) = expiring(acme, **place)
        end: int | None = user.get("expiresAt")
        return end

    assert update(expiresAt=SOON) == SOON
    # What is not given stays as it was, and so does what is null.
    assert update(name="Ada L.") == SOON
    assert update(expiresAt=None) == SOON
    assert update(expiresAt=SOON + 60.0) == SOON + 60
    world.clock.move_on(seconds=119)
    assert at(acme, **place) == ["ada"]
    world.clock.move_on(seconds=1)
    assert at(acme, **place) == []


@pytest.mark.parametrize("wrong", ["2030-01-01T00:00:00Z", 1.5, -1, True, (SOON + 1) * 1000])
@pytest.mark.parametrize("operation", ["add_users", "update_users"])
def test_invalid_expires_at_is_refused(acme: Caller, operation: str, wrong: object) -> None:
    add(acme, "ada")
    users = [{"userId": "ada", "expiresAt": wrong}]
    code, status, message = acme.refused(operation, organizationId="acme", users=users)
    assert (code, status) == (400, "INVALID_ARGUMENT")
    assert message.startswith("data.users[0].expiresAt: ")


@pytest.mark.parametrize("place", LEVELS)
def test_access_expires(acme: Caller, world: BackendWorld, place: dict[str, str]) -> None:
    acme("update_folder_access", organizationId="acme", folderIds=["f", "g"], accessType="restricted")
    acme("update_document_access", organizationId="acme", documentIds=["d", "e"], accessType="restricted")
    acme("add_documents", organizationId="acme", documents=[{"documentId": "open", "accessType": "public"}])
    add(acme, {"userId": "ada", "accessRole": "viewer", "expiresAt": SOON}, **place)

    def may() -> dict[str, Any]:
        answer = acme(
            "get_permissions", organizationId="acme", userIds=["ada"], folderIds=["f"], documentIds=["d", "open"]
        )["ada"]
        flat = answer["organization"] | answer["folders"] | answer["documents"]
        return {name: (one["accessRole"], one.get("expiresAt")) for name, one in flat.items() if "error" not in one}

    # A user with any entry is known, and known users have access to public documents.
    reached = place.get("folderId") or place.get("documentId") or "acme"
    assert may()[reached] == ("viewer", SOON)
    assert may()["open"][0] == "viewer"
    assert [one["level"] for one in memberships(acme)] == [level_of(place)]
    document = {"organizationId": "acme", "documentId": "d", "actionUser": {"userId": "bob"}}
    acme("add_notifications", **document, notificationId="n", notifyUsers=[{"userId": "ada"}], notifyAll=False)

    world.clock.move_on(seconds=60)

    assert may() == {}
    assert memberships(acme) == []
    checked = acme("add_notifications", **document, notifyUsers=[{"userId": "ada"}], verifyUserPermissions=True)
    assert [one["notifiedUsers"] for one in checked.values()] == [0]
    assert add(acme, {"userId": "ada"}, **place)["ada"]["message"] == "User added."
    assert may()[reached] == ("editor", None)


def memberships(tenant: Caller) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tenant("get_all_user_data", organizationId="acme", userId="ada")["memberships"]
    return found


def level_of(place: dict[str, str]) -> str:
    return next(iter(place), "organizationId").removesuffix("Id")
