"""The reasons of deletes, as operators see them."""

from datetime import datetime, timedelta

import pytest

from app.sync.plan.selection import Selection
from app.sync.plan.stored import Plan
from tests.worlds.planning import Directory, PlanningWorld


def _reasons(world: PlanningWorld, plan: Plan) -> dict[tuple[str, str, str], str]:
    """The kind, container and id of each delete → its reason."""
    return {
        (item.kind, item.container_id, item.item_id): item.reason
        for item in world.items(plan)
        if item.action == "delete"
    }


def _with_ada(directory: Directory, *, disabled: bool = False, expires_at: int | None = None) -> Directory:
    """A company in which ada has an entry of each kind."""
    return (
        directory.organization("acme")
        .user("ada", disabled=disabled)
        .user("bob")
        .member("acme", "ada", expires_at=expires_at)
        .group("acme", "eng", users=["ada"])
        .folder("acme", "specs")
        .folder("acme", "plans")
        .document("acme", "roadmap")
        .grant("acme", folder="specs", user="ada", expires_at=expires_at)
        .grant("acme", document="roadmap", user="ada", expires_at=expires_at)
        .grant("acme", folder="plans", group="eng", expires_at=expires_at)
    )


def test_reason_of_a_disabled_user(world: PlanningWorld) -> None:
    world.set_directory(_with_ada(Directory()))
    world.apply(world.plan())
    world.set_directory(_with_ada(Directory(), disabled=True))

    reasons = _reasons(world, world.plan())

    assert set(reasons) == {
        ("organizationUser", "", "ada"),
        ("groupMember", "eng", "ada"),
        ("folderUser", "specs", "ada"),
        ("folderUser", "plans", "ada"),
        ("documentUser", "roadmap", "ada"),
    }
    assert set(reasons.values()) == {"the user is disabled in the directory"}


def test_reason_of_an_expired_record_has_the_time(world: PlanningWorld, now: datetime, now_ms: int) -> None:
    world.set_directory(_with_ada(Directory(), expires_at=now_ms + 60_000))
    world.apply(world.plan())

    reasons = _reasons(world, world.plan(now=now + timedelta(minutes=5)))

    ended = f"expired on {now + timedelta(minutes=1):%Y-%m-%d %H:%M} UTC"
    assert reasons == {
        ("organizationUser", "", "ada"): f"the membership {ended}",
        ("folderUser", "specs", "ada"): f"the grant to the user {ended}",
        ("folderUser", "plans", "ada"): f"the grant to group eng {ended}",
        ("documentUser", "roadmap", "ada"): f"the grant to the user {ended}",
    }


def test_reason_names_the_last_expired_grant_of_groups(world: PlanningWorld, now: datetime, now_ms: int) -> None:
    def company(*milliseconds: int) -> Directory:
        directory = Directory().organization("acme").user("ada").document("acme", "roadmap")
        directory.group("acme", "inner", users=["ada"]).group("acme", "outer", groups=["inner"])
        for group, offset in zip(("inner", "outer"), milliseconds, strict=True):
            directory.grant("acme", document="roadmap", group=group, expires_at=now_ms + offset)
        return directory

    world.set_directory(company(60_000, 120_000))
    world.apply(world.plan())

    reasons = _reasons(world, world.plan(now=now + timedelta(minutes=5)))

    ended = f"{now + timedelta(minutes=2):%Y-%m-%d %H:%M} UTC"
    assert list(reasons.values()) == [f"the grant to group outer expired on {ended}"]


def test_reason_of_a_missing_record(world: PlanningWorld) -> None:
    world.set_directory(_with_ada(Directory()))
    world.apply(world.plan())
    world.set_directory(
        Directory()
        .organization("acme")
        .user("ada")
        .user("bob")
        .group("acme", "eng")
        .folder("acme", "specs")
        .folder("acme", "plans")
        .document("acme", "roadmap")
    )

    assert _reasons(world, world.plan()) == {
        ("organizationUser", "", "ada"): "no membership of the organization any more",
        ("groupMember", "eng", "ada"): "not in the group any more",
        ("folderUser", "specs", "ada"): "no grant on the folder any more",
        ("folderUser", "plans", "ada"): "no grant on the folder any more",
        ("documentUser", "roadmap", "ada"): "no grant on the document any more",
    }


def test_reasons_name_the_record_that_is_gone(world: PlanningWorld) -> None:
    world.set_directory(_with_ada(Directory()).grant("acme", folder="specs", user="bob"))
    world.apply(world.plan())
    world.set_directory(Directory().organization("acme").user("bob").document("acme", "roadmap").group("acme", "eng"))

    whole, of_bob = world.plan(), world.plan(selection=Selection.of((), ("bob",)))

    gone = "no longer in the directory"
    assert _reasons(world, whole) == {
        ("organizationUser", "", "ada"): f"the user is {gone}",
        ("groupMember", "eng", "ada"): f"the user is {gone}",
        ("documentUser", "roadmap", "ada"): f"the user is {gone}",
        ("folder", "", "specs"): gone,
        ("folder", "", "plans"): gone,
        ("folderUser", "specs", "ada"): "goes along with folder specs, which is gone from the directory",
        ("folderUser", "plans", "ada"): "goes along with folder plans, which is gone from the directory",
        ("folderUser", "specs", "bob"): "goes along with folder specs, which is gone from the directory",
    }
    # A plan of users does not delete the folder itself.
    assert _reasons(world, of_bob) == {("folderUser", "specs", "bob"): f"the folder is {gone}"}


def test_reason_of_a_missing_organization_in_a_plan_of_a_user(world: PlanningWorld) -> None:
    world.set_directory(_with_ada(Directory()))
    world.apply(world.plan())
    world.set_directory(Directory().user("ada"))

    reasons = _reasons(world, world.plan(selection=Selection.of((), ("ada",))))

    assert set(reasons.values()) == {"the organization is no longer in the directory"}


@pytest.mark.parametrize("users", [[], ["ada"]])
@pytest.mark.parametrize("parent", ["nowhere", "specs"])
def test_contents_of_a_broken_folder_are_gone(world: PlanningWorld, parent: str, users: list[str]) -> None:
    def company(above: str) -> Directory:
        return (
            Directory()
            .organization("acme")
            .user("ada")
            .member("acme", "ada")
            .group("acme", "eng", users=["ada"])
            .folder("acme", "specs", parent=above)
            .document("acme", "roadmap", folder="specs")
            .grant("acme", folder="specs", group="eng")
            .grant("acme", document="roadmap", user="ada")
        )

    world.set_directory(company(""))
    world.apply(world.plan())
    world.set_directory(company(parent))

    reasons = _reasons(world, world.plan(selection=Selection.of([], users)))

    of_users = {key: reason for key, reason in reasons.items() if key[0].endswith("User")}
    # In a plan of everything, the deletes of the folder and the document cover them.
    assert of_users.keys() == {("folderUser", "specs", "ada"), ("documentUser", "roadmap", "ada")}
    if users:
        assert of_users["folderUser", "specs", "ada"] == "the folder is no longer in the directory"
        assert of_users["documentUser", "roadmap", "ada"] == "the document is no longer in the directory"


@pytest.mark.parametrize("users", [[], ["ada"]])
def test_grants_of_a_missing_group_have_no_effect(world: PlanningWorld, users: list[str]) -> None:
    def company(groups: list[str]) -> Directory:
        directory = Directory().organization("acme").user("ada").folder("acme", "specs")
        directory.grant("acme", folder="specs", group="outer")
        directory.group("acme", "inner", users=["ada"]).group("acme", "outer", groups=["inner"])
        directory.tables["groups"] = [
            row for row in directory.tables["groups"] if row["organization_user_group_id"] in groups
        ]
        return directory

    world.set_directory(company(["inner", "outer"]))
    world.apply(world.plan())
    for groups in (["outer"], ["inner"]):
        world.set_directory(company(groups))
        reasons = _reasons(world, world.plan(selection=Selection.of([], users)))
        assert ("folderUser", "specs", "ada") in reasons
        assert ("groupMember", "outer", "ada") in reasons
