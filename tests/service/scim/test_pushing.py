"""What a directory pushes with SCIM takes effect in the same call."""

from tests.service.scim.conftest import Directory


def test_a_member_has_access_at_once(directory: Directory) -> None:
    ada = directory.user("ada")
    directory.group("acme", ada)
    assert directory.may(ada, "acme")


def test_members_may_come_before_their_users(directory: Directory) -> None:
    group = directory.group("acme", "ext-7", "bob")
    ada = directory.user("ada", externalId="ext-7")
    bob = directory.user("bob")
    assert directory.may(ada, "acme")
    assert directory.may(bob, "acme")
    members = directory.call("GET", f"/Groups/{group}").get_json()["members"]
    assert sorted(one["value"] for one in members) == sorted([ada, bob])


def test_deactivation_ends_access_and_reactivation_restores_it(directory: Directory) -> None:
    ada = directory.user("ada")
    directory.group("acme", ada)
    directory.patch(f"/Users/{ada}", {"op": "Replace", "path": "active", "value": "False"})
    assert not directory.may(ada, "acme")
    directory.patch(f"/Users/{ada}", {"op": "Replace", "path": "active", "value": True})
    assert directory.may(ada, "acme")


def test_a_deleted_user_has_no_access(directory: Directory) -> None:
    ada = directory.user("ada")
    group = directory.group("acme", ada)
    assert directory.call("DELETE", f"/Users/{ada}").status_code == 204
    assert not directory.may(ada, "acme")
    assert "members" not in directory.call("GET", f"/Groups/{group}").get_json()


def test_members_of_nested_groups_are_members(directory: Directory) -> None:
    ada = directory.user("ada")
    inner = directory.group("inner", ada)
    outer = directory.group("outer", inner)
    assert directory.may(ada, "outer")
    directory.patch(f"/Groups/{inner}", {"op": "add", "path": "members", "value": [{"value": outer}]})
    directory.patch(f"/Groups/{inner}", {"op": "remove", "path": f'members[value eq "{ada}"]'})
    assert not directory.may(ada, "outer")
    assert not directory.may(ada, "inner")


def test_a_read_finds_what_was_pushed(directory: Directory) -> None:
    ada = directory.user("ada")
    bob = directory.user("bob", active=False)
    inner = directory.group("inner", ada, bob)
    directory.group("outer", inner)
    report = directory.read()
    assert not report.changed
    assert [source.verdict for source in report.sources] == ["complete"]
    assert directory.read().sources[0].answered == "changes"
