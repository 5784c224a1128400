from .conftest import Caller

GROUP = {"organizationId": "acme", "organizationUserGroupId": "g"}


def members(tenant: Caller, group: str = "g") -> list[str]:
    users = tenant("get_users", organizationId="acme", organizationUserGroupIds=[group])
    return [user["userId"] for user in users]


def test_groups_are_added(tenant: Caller) -> None:
    groups = [{"groupId": "g", "groupName": "G"}, {"groupId": "h"}]

    results = tenant("add_groups", organizationId="acme", organizationUserGroups=groups)
    assert results["g"] == {"success": False, "id": "g", "message": "Organization does not exist."}

    results = tenant("add_groups", organizationId="acme", organizationUserGroups=groups, createOrganization=True)
    assert results["g"] == {"success": True, "id": "g", "message": "Group added."}

    results = tenant("add_groups", organizationId="acme", organizationUserGroups=[{"groupId": "g"}])
    assert results["g"] == {"success": False, "id": "g", "message": "Group already exists."}


def test_add_users_creates_the_group(tenant: Caller) -> None:
    assert tenant("add_users_to_groups", **GROUP, userIds=["ada"]) == {
        "ada": {"success": False, "organizationUserGroupId": "g", "message": "Organization does not exist."}
    }
    tenant("add_users", organizationId="acme", users=[{"userId": "ada"}, {"userId": "bob"}])

    results = tenant("add_users_to_groups", **GROUP, userIds=["ada", "bob", "bob"])

    assert results["ada"] == {
        "success": True,
        "organizationUserGroupId": "g",
        "message": "User added to the group.",
    }
    assert members(tenant) == ["ada", "bob"]
    # Asking for what is so already is no failure.
    assert tenant("add_users_to_groups", **GROUP, userIds=["ada"])["ada"]["success"] is True
    added = tenant("add_groups", organizationId="acme", organizationUserGroups=[{"groupId": "g"}])
    assert added["g"]["success"] is False


def test_delete_users_from_a_group(tenant: Caller) -> None:
    tenant("add_users", organizationId="acme", users=[{"userId": "ada"}, {"userId": "bob"}])
    for group in ("g", "h"):
        tenant("add_users_to_groups", organizationId="acme", organizationUserGroupId=group, userIds=["ada", "bob"])

    results = tenant("delete_users_from_groups", **GROUP, userIds=["ada", "who"])

    assert results == {
        "ada": {"success": True, "organizationUserGroupId": "g", "message": "User removed from the group."},
        "who": {"success": False, "organizationUserGroupId": "g", "message": "User does not exist in the group."},
    }
    assert members(tenant) == ["bob"]
    assert members(tenant, "h") == ["ada", "bob"]


def test_delete_all_users_from_a_group(tenant: Caller) -> None:
    tenant("add_users", organizationId="acme", users=[{"userId": "ada"}, {"userId": "bob"}])
    tenant("add_users_to_groups", **GROUP, userIds=["ada", "bob"])

    results = tenant("delete_users_from_groups", **GROUP, deleteAll=True)

    assert {user: result["success"] for user, result in results.items()} == {"ada": True, "bob": True}
    assert members(tenant) == []
    assert tenant("delete_users_from_groups", **GROUP, deleteAll=True) == {}
    assert tenant.refused("delete_users_from_groups", **GROUP)[:2] == (400, "INVALID_ARGUMENT")
