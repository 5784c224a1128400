"""The desired state, checked through plans from an empty ledger."""

import pytest

from app.sync.plan.selection import Selection


def roles(world, plan, kind):
    return {(item.container_id, item.item_id): item.access_role for item in world.items(plan) if item.kind == kind}


def test_desired_leaves_out_expired_records_and_disabled_users(world, new_directory, now_ms):
    world.set_directory(
        new_directory()
        .organization("acme")
        .user("ada")
        .user("bob", disabled=True)
        .user("cleo")
        .member("acme", "ada", "viewer", expires_at=now_ms + 1)
        .member("acme", "bob")
        .member("acme", "cleo", expires_at=now_ms)
        .group("acme", "eng", users=["ada", "bob"])
        .document("acme", "d")
        .grant("acme", document="d", user="cleo", expires_at=now_ms)
        .grant("acme", document="d", user="bob")
    )

    plan = world.plan()

    assert roles(world, plan, "organizationUser") == {("", "ada"): "viewer"}
    assert roles(world, plan, "groupMember") == {("eng", "ada"): ""}
    assert roles(world, plan, "documentUser") == {}


def test_desired_role_is_the_own_grant_then_the_most_permissive_of_the_groups(world, new_directory):
    world.set_directory(
        new_directory()
        .organization("acme")
        .user("own")
        .user("both")
        .user("nested")
        .group("acme", "readers", users=["own", "both"], groups=["inner"])
        .group("acme", "writers", users=["own", "both"])
        .group("acme", "inner", users=["nested"])
        .folder("acme", "f")
        .grant("acme", folder="f", user="own", access_role="viewer")
        .grant("acme", folder="f", group="readers", access_role="viewer")
        .grant("acme", folder="f", group="writers", access_role="editor")
    )

    plan = world.plan()

    assert roles(world, plan, "folderUser") == {
        ("f", "own"): "viewer",
        ("f", "both"): "editor",
        ("f", "nested"): "viewer",
    }
    reasons = {item.item_id: item.reason for item in world.items(plan) if item.kind == "folderUser"}
    assert reasons == {
        "own": "granted to the user by name",
        "both": "granted to group writers",
        "nested": "granted to group readers",
    }


def test_desired_members_are_transitive_through_a_cycle_of_groups(world, new_directory):
    world.set_directory(
        new_directory()
        .organization("acme")
        .user("ada")
        .user("bob")
        .group("acme", "one", users=["ada"], groups=["two"])
        .group("acme", "two", users=["bob"], groups=["one"])
    )

    assert set(roles(world, world.plan(), "groupMember")) == {
        (group, user) for group in ("one", "two") for user in ("ada", "bob")
    }


@pytest.fixture
def types(world):
    def of(plan):
        return [
            (item.operation, item.item_id, item.access_type)
            for item in world.items(plan, "planned")
            if item.operation in {"add_folder", "update_folder_access", "update_document_access"}
        ]

    return of


def test_desired_access_type_at_the_top_is_the_organizations(world, new_directory, types):
    world.set_directory(
        new_directory()
        .organization("acme", access_type="public")
        .folder("acme", "top")
        .folder("acme", "own", access_type="restricted")
        .folder("acme", "below", parent="top")
        .document("acme", "at top")
        .document("acme", "in folder", folder="below")
        .document("acme", "its own", folder="below", access_type="organizationPrivate")
    )

    assert types(world.plan()) == [
        ("add_folder", "own", "restricted"),
        ("add_folder", "top", "public"),
        ("add_folder", "below", ""),
        ("update_document_access", "its own", "organizationPrivate"),
        ("update_document_access", "at top", "public"),
    ]


def test_desired_follows_the_organizations_type_at_the_top_alone(world, new_directory, types):
    def set_company(access_type):
        world.set_directory(
            new_directory()
            .organization("acme", access_type=access_type)
            .folder("acme", "top")
            .folder("acme", "below", parent="top")
            .document("acme", "d", folder="below")
            .document("acme", "e")
        )

    set_company("public")
    world.apply(world.plan())
    set_company("restricted")

    assert types(world.plan()) == [
        ("update_folder_access", "top", "restricted"),
        ("update_document_access", "e", "restricted"),
    ]


def test_desired_document_that_once_had_a_type_gets_the_one_in_force(world, new_directory, types):
    def set_company(own, of_folder):
        world.set_directory(
            new_directory()
            .organization("acme", access_type="public")
            .folder("acme", "f", access_type=of_folder)
            .folder("acme", "g", parent="f")
            .document("acme", "d", folder="g", access_type=own)
            .document("acme", "never had one", folder="g")
        )

    set_company("restricted", "organizationPrivate")
    world.apply(world.plan())
    set_company("", "organizationPrivate")
    plan = world.plan()
    assert types(plan) == [("update_document_access", "d", "organizationPrivate")]
    world.apply(plan)
    assert world.plan().counts == {}

    set_company("", "public")
    assert types(world.plan()) == [
        ("update_folder_access", "f", "public"),
        ("update_document_access", "d", "public"),
    ]


def test_desired_folder_that_moves_below_another_inherits_again(world, new_directory, types):
    world.set_directory(new_directory().organization("acme").folder("acme", "a").folder("acme", "b"))
    world.apply(world.plan())
    world.set_directory(new_directory().organization("acme").folder("acme", "a").folder("acme", "b", parent="a"))

    plan = world.plan()

    assert world.sent(plan) == [
        ("update_folder", '["acme"]', "", "b"),
        ("update_folder_access", '["acme",""]', "", "b"),
    ]


def test_desired_of_a_disabled_organization_is_its_own_row(world, new_directory):
    def set_company(disabled, name="n", member="ada"):
        world.set_directory(
            new_directory()
            .organization("acme", disabled=disabled, name=name)
            .user("ada")
            .user("bob")
            .member("acme", member)
            .folder("acme", "f", name=name)
        )

    set_company(disabled=False)
    world.apply(world.plan())
    set_company(disabled=True, name="other", member="bob")
    plan = world.plan()
    assert world.sent(plan) == [
        ("update_organizations", "[]", "", "acme"),
        ("disable_organizations", "[true]", "", "acme"),
    ]
    world.apply(plan)
    assert world.plan().counts == {}

    set_company(disabled=False, name="other", member="bob")
    assert [operation for operation, *_ in world.sent(world.plan())] == [
        "disable_organizations",
        "update_folder",
        "add_users",
        "delete_users",
    ]


def test_desired_of_one_user_is_the_same_as_within_everything(world, new_directory):
    world.set_directory(
        new_directory()
        .organization("acme")
        .organization("other")
        .user("ada")
        .user("bob")
        .member("acme", "ada")
        .member("other", "ada")
        .member("acme", "bob")
        .group("acme", "inner", users=["ada", "bob"])
        .group("acme", "outer", groups=["inner"])
        .folder("acme", "f")
        .document("other", "d")
        .grant("acme", folder="f", group="outer")
        .grant("other", document="d", user="ada", access_role="viewer")
    )

    def found(selection, organizations):
        return {
            (item.kind, item.organization_id, item.container_id, item.item_id, item.access_role, item.reason)
            for item in world.items(world.plan(selection=selection))
            if item.item_id == "ada" and item.organization_id in organizations
        }

    everything = Selection()
    assert len(found(everything, ["acme", "other"])) == 6
    assert found(Selection.of([], ["ada"]), ["acme", "other"]) == found(everything, ["acme", "other"])
    assert found(Selection.of(["acme"], ["ada"]), ["acme", "other"]) == found(everything, ["acme"])
