"""Members are found by their names, in any order of arrival, and their removal ends access."""

from typing import Any

import pytest

from tests.service.scim.conftest import Directory, Statements

GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
USER = "urn:ietf:params:scim:schemas:core:2.0:User"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"


def _members(directory: Directory, group: str) -> list[str]:
    found = directory.call("GET", f"/Groups/{group}").get_json().get("members", ())
    return sorted(one["value"] for one in found)


def _remove(name: str) -> dict[str, Any]:
    return {"op": "remove", "path": f'members[value eq "{name}"]'}


@pytest.mark.parametrize("user_first", [True, False])
def test_external_ids_of_members_are_exact(directory: Directory, *, user_first: bool) -> None:
    carl = directory.user("carl", externalId="Id-AbC") if user_first else ""
    group = directory.group("acme", "Id-aBc")
    carl = carl or directory.user("carl", externalId="Id-AbC")
    assert not directory.may(carl, "acme")
    dora = directory.user("dora", externalId="Id-aBc")
    assert directory.may(dora, "acme")
    assert _members(directory, group) == [dora]


@pytest.mark.parametrize("user_first", [True, False])
def test_user_names_of_members_are_in_any_case(directory: Directory, *, user_first: bool) -> None:
    ada = directory.user("ÄDA") if user_first else ""
    group = directory.group("acme", "äda")
    ada = ada or directory.user("ÄDA")
    assert _members(directory, group) == [ada]
    assert directory.may(ada, "acme")


@pytest.mark.parametrize("group_first", [True, False])
def test_groups_are_members_by_their_external_ids(directory: Directory, *, group_first: bool) -> None:
    ada = directory.user("ada")
    inner = {"schemas": [GROUP], "displayName": "inner", "externalId": "g-1", "members": [{"value": ada}]}
    if group_first:
        directory.made("/Groups", inner)
    outer = directory.group("acme", "g-1")
    if not group_first:
        directory.made("/Groups", inner)
    assert directory.may(ada, "acme")
    directory.patch(f"/Groups/{outer}", _remove("g-1"))
    assert not directory.may(ada, "acme")


def test_a_group_that_gets_its_external_id_later(directory: Directory) -> None:
    ada = directory.user("ada")
    directory.group("acme", "g-1")
    inner = directory.group("inner", ada)
    directory.patch(f"/Groups/{inner}", {"op": "add", "path": "externalId", "value": "g-1"})
    assert directory.may(ada, "acme")


def test_unused_pending_names_are_removed(directory: Directory) -> None:
    group = directory.group("acme", "Late", "later")
    other = directory.group("umbrella", "later")
    directory.patch(f"/Groups/{group}", _remove("late"))
    assert _members(directory, group) == ["later"]
    for one in (group, other):
        directory.call("DELETE", f"/Groups/{one}")
    with directory.engine.connect() as connection:
        assert not connection.exec_driver_sql("SELECT * FROM scim_key WHERE attribute = 'member'").all()
    assert not directory.may(directory.user("late"), "acme")


def test_external_ids_of_users_are_unique(directory: Directory) -> None:
    ada = directory.user("ada", externalId="E-1")
    bob = directory.user("bob", externalId="e-1")
    body = {"schemas": [USER], "userName": "bob", "externalId": "E-1"}
    operation = {"op": "replace", "path": "externalId", "value": "E-1"}
    for answer in (
        directory.call("POST", "/Users", body | {"userName": "carl"}),
        directory.call("PUT", f"/Users/{bob}", body),
        directory.call("PATCH", f"/Users/{bob}", {"schemas": [PATCH], "Operations": [operation]}),
    ):
        assert (answer.status_code, answer.get_json()["scimType"]) == (409, "uniqueness")
    directory.patch(f"/Users/{ada}", operation | {"value": "E-2"})
    directory.patch(f"/Users/{bob}", operation)
    directory.made("/Groups", {"schemas": [GROUP], "displayName": "acme", "externalId": "E-2"})


def test_users_with_equal_external_ids_can_be_deactivated(directory: Directory) -> None:
    ada = directory.user("ada", externalId="E-1")
    directory.user("bob", externalId="E-2")
    with directory.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE scim_key SET value = 'E-1' WHERE attribute = 'externalId'")
    directory.group("acme", ada)
    directory.patch(f"/Users/{ada}", {"op": "replace", "path": "active", "value": False})
    assert not directory.may(ada, "acme")


@pytest.mark.parametrize("by", ["path", "value", "type", "or"])
def test_a_removal_by_a_name_means_a_current_member(directory: Directory, by: str) -> None:
    """Also if another user, who is no member, has the name, too."""
    ada = directory.user("ada", externalId="ada-1")
    directory.user("ADA-1")
    group = directory.group("acme", ada)
    operation = {
        "path": _remove("ada-1"),
        "value": {"op": "remove", "path": "members", "value": [{"value": "ada-1"}]},
        "type": {"op": "remove", "path": 'members[value eq "ada-1" and type eq "User"]'},
        "or": {"op": "remove", "path": 'members[value eq "nobody" or value eq "ada-1"]'},
    }[by]
    directory.patch(f"/Groups/{group}", operation)
    assert not directory.may(ada, "acme")
    directory.patch(f"/Groups/{group}", operation)


def test_a_removal_that_may_mean_several_members_is_refused(directory: Directory) -> None:
    ada = directory.user("ada", externalId="x-1")
    bob = directory.user("x-1")
    group = directory.group("acme", ada, bob)
    answer = directory.call("PATCH", f"/Groups/{group}", {"schemas": [PATCH], "Operations": [_remove("x-1")]})
    assert (answer.status_code, answer.get_json()["scimType"]) == (400, "invalidValue")
    assert _members(directory, group) == sorted([ada, bob])
    directory.patch(f"/Groups/{group}", _remove(bob))
    directory.patch(f"/Groups/{group}", _remove("x-1"))
    assert _members(directory, group) == []


@pytest.mark.parametrize("by", ["rename", "delete"])
def test_a_name_of_several_is_a_member_once_it_is_of_one(directory: Directory, by: str) -> None:
    ada = directory.user("ada", externalId="x-1")
    bob = directory.user("X-1")
    group = directory.group("acme", "x-1")
    assert _members(directory, group) == ["x-1"]
    assert not directory.may(ada, "acme")
    assert not directory.may(bob, "acme")
    if by == "rename":
        directory.patch(f"/Users/{bob}", {"op": "replace", "path": "userName", "value": "bob"})
    else:
        directory.call("DELETE", f"/Users/{bob}")
    assert _members(directory, group) == [ada]
    assert directory.may(ada, "acme")
    assert not directory.may(bob, "acme")


@pytest.mark.parametrize(
    ("filter_", "left"),
    [
        ('value eq "$ada" and type eq "user"', "bob late team"),
        ('type eq "User" and value eq "$ada"', "bob late team"),
        ('value eq "$ada" and type eq "Group"', "ada bob late team"),
        ('value eq "late" and type eq "User"', "ada bob team"),
        ('value eq "$ada" or value eq "BOB"', "late team"),
        ('(value eq "$ada" or value eq "$bob") and type eq "User"', "late team"),
        ('type eq "Group"', "ada bob"),
        ("type pr", "late"),
        ('type ne "User"', "ada bob"),
        ('not (type eq "User")', "ada bob"),
        ('not (type ne "User")', "team"),
        ('not (not (type eq "User"))', "team"),
        ('not (type eq "User" or value eq "$bob")', "ada bob"),
        ('not (value eq "$ada")', "ada"),
        ('value ne "$ada"', "ada"),
        ('value sw "la"', "ada bob team"),
        ('display co "BOSS"', "bob late team"),
    ],
)
def test_filters_of_members(directory: Directory, filter_: str, left: str) -> None:
    ids = {"late": "late", "ada": directory.user("ada"), "bob": directory.user("bob"), "team": directory.group("team")}
    group = directory.group("acme", *(value for name, value in ids.items() if name != "ada"))
    ada = {"value": ids["ada"], "display": "The Boss"}
    directory.patch(f"/Groups/{group}", {"op": "add", "path": "members", "value": [ada]})
    for name, value in ids.items():
        filter_ = filter_.replace(f"${name}", value)
    directory.patch(f"/Groups/{group}", {"op": "remove", "path": f"members[{filter_}]"})
    assert _members(directory, group) == sorted(ids[name] for name in left.split())


def test_operations_in_a_row_are_made_together(directory: Directory) -> None:
    ada = directory.user("ada")
    group = directory.group("acme", ada)

    def statements(number: int) -> int:
        directory.patch(
            f"/Groups/{group}", {"op": "add", "path": "members", "value": [{"value": f"n{one}"} for one in range(200)]}
        )
        paths = [f'members[value eq "n{one}" and type eq "User"]' for one in range(number)]
        with Statements(directory.engine) as run:
            directory.patch(f"/Groups/{group}", *({"op": "remove", "path": path} for path in paths))
        return len(run)

    statements(1)
    assert statements(200) < statements(2) + 20
    assert directory.may(ada, "acme")


def test_the_order_of_operations_counts(directory: Directory) -> None:
    ada, bob = directory.user("ada"), directory.user("bob")
    group = directory.group("acme", ada)
    add = {"op": "add", "path": "members", "value": [{"value": bob}]}
    directory.patch(f"/Groups/{group}", add, _remove(bob), {"op": "remove", "path": "members"}, add, add)
    assert _members(directory, group) == [bob]
    directory.patch(f"/Groups/{group}", _remove(bob), add | {"value": [{"value": ada}]}, _remove(ada))
    assert _members(directory, group) == []
