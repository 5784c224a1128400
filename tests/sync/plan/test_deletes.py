"""The reasons of deletes, and discarded deletes, which are skipped until their effect changes."""

from datetime import timedelta

import pytest
from sqlalchemy import text

from app.foundation.database.engine import writing
from app.sync.plan.deletes import discard_held
from app.sync.plan.selection import Selection
from app.sync.plan.settings import LimitSettings


def _reasons(world, plan):
    return {
        (item.kind, item.container_id, item.item_id): item.reason
        for item in world.items(plan)
        if item.action == "delete"
    }


def _company(directory, now_ms, *, disabled=False, ends=None):
    """ada, with all that a user can have in acme; ``ends``: when what can end does."""
    return (
        directory.organization("acme")
        .user("ada", disabled=disabled)
        .user("bob")
        .member("acme", "ada", expires_at=ends)
        .group("acme", "eng", users=["ada"])
        .folder("acme", "specs")
        .folder("acme", "plans")
        .document("acme", "roadmap")
        .grant("acme", folder="specs", user="ada", expires_at=ends)
        .grant("acme", document="roadmap", user="ada", expires_at=ends)
        .grant("acme", folder="plans", group="eng", expires_at=ends)
    )


def test_reason_of_a_disabled_user(world, new_directory, now_ms):
    world.set_directory(_company(new_directory(), now_ms))
    world.apply(world.plan())
    world.set_directory(_company(new_directory(), now_ms, disabled=True))

    reasons = _reasons(world, world.plan())

    assert set(reasons) == {
        ("organizationUser", "", "ada"),
        ("groupMember", "eng", "ada"),
        ("folderUser", "specs", "ada"),
        ("folderUser", "plans", "ada"),
        ("documentUser", "roadmap", "ada"),
    }
    assert set(reasons.values()) == {"the user is disabled in the directory"}


def test_reason_of_an_expired_record_has_the_time(world, new_directory, now, now_ms):
    world.set_directory(_company(new_directory(), now_ms, ends=now_ms + 60_000))
    world.apply(world.plan())

    reasons = _reasons(world, world.plan(now=now + timedelta(minutes=5)))

    ended = f"expired on {now + timedelta(minutes=1):%Y-%m-%d %H:%M} UTC"
    assert reasons == {
        ("organizationUser", "", "ada"): f"the membership {ended}",
        ("folderUser", "specs", "ada"): f"the grant to the user {ended}",
        ("folderUser", "plans", "ada"): f"the grant to group eng {ended}",
        ("documentUser", "roadmap", "ada"): f"the grant to the user {ended}",
    }


def test_reason_names_the_last_expired_grant_of_groups(world, new_directory, now, now_ms):
    def says(*ends):
        directory = new_directory().organization("acme").user("ada").document("acme", "roadmap")
        directory.group("acme", "inner", users=["ada"]).group("acme", "outer", groups=["inner"])
        for group, end in zip(("inner", "outer"), ends, strict=True):
            directory.grant("acme", document="roadmap", group=group, expires_at=now_ms + end)
        return directory

    world.set_directory(says(60_000, 120_000))
    world.apply(world.plan())

    reasons = _reasons(world, world.plan(now=now + timedelta(minutes=5)))

    ended = f"{now + timedelta(minutes=2):%Y-%m-%d %H:%M} UTC"
    assert list(reasons.values()) == [f"the grant to group outer expired on {ended}"]


def test_reason_of_a_missing_record(world, new_directory, now_ms):
    world.set_directory(_company(new_directory(), now_ms))
    world.apply(world.plan())
    world.set_directory(
        new_directory()
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


def test_who_and_what_is_gone_is_named(world, new_directory, now_ms):
    world.set_directory(_company(new_directory(), now_ms).grant("acme", folder="specs", user="bob"))
    world.apply(world.plan())
    world.set_directory(
        new_directory().organization("acme").user("bob").document("acme", "roadmap").group("acme", "eng")
    )

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
    # Narrowed to users nobody deletes the folder itself.
    assert _reasons(world, of_bob) == {("folderUser", "specs", "bob"): f"the folder is {gone}"}


def test_reason_of_a_missing_organization_in_a_plan_of_a_user(world, new_directory, now_ms):
    world.set_directory(_company(new_directory(), now_ms))
    world.apply(world.plan())
    world.set_directory(new_directory().user("ada"))

    reasons = _reasons(world, world.plan(selection=Selection.of((), ("ada",))))

    assert set(reasons.values()) == {"the organization is no longer in the directory"}


@pytest.mark.parametrize("users", [[], ["ada"]])
@pytest.mark.parametrize("parent", ["nowhere", "specs"])
def test_what_is_below_a_broken_folder_is_gone_from_the_directory(world, new_directory, parent, users):
    def company(above):
        return (
            new_directory()
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
    # In a plan for everything they go along with the folder and the document.
    assert of_users.keys() == {("folderUser", "specs", "ada"), ("documentUser", "roadmap", "ada")}
    if users:
        assert of_users["folderUser", "specs", "ada"] == "the folder is no longer in the directory"
        assert of_users["documentUser", "roadmap", "ada"] == "the document is no longer in the directory"


@pytest.mark.parametrize("users", [[], ["ada"]])
def test_grants_of_a_missing_group_have_no_effect(world, new_directory, users):
    def company(groups):
        directory = new_directory().organization("acme").user("ada").folder("acme", "specs")
        directory.grant("acme", folder="specs", group="outer")
        directory.group("acme", "inner", users=["ada"]).group("acme", "outer", groups=["inner"])
        directory.tables["groups"] = [
            one for one in directory.tables["groups"] if one["organization_user_group_id"] in groups
        ]
        return directory

    world.set_directory(company(["inner", "outer"]))
    world.apply(world.plan())
    for groups in (["outer"], ["inner"]):
        world.set_directory(company(groups))
        reasons = _reasons(world, world.plan(selection=Selection.of([], users)))
        assert ("folderUser", "specs", "ada") in reasons
        assert ("groupMember", "outer", "ada") in reasons


ONE = LimitSettings(delete_count=1, delete_percent=100)
SAID = "left alone: discarded on 2026-11-20 12:00 UTC by ada (command line)"


@pytest.fixture
def company(world, new_directory):
    """The directory, with a folder of two documents beside others; a document may be in a folder."""

    def says(*documents, folders=("reports",), **further):
        directory = new_directory().organization("acme")
        for folder in folders:
            directory.folder("acme", folder)
        for document in documents:
            directory.document("acme", document)
        for document, folder in further.items():
            directory.document("acme", document, folder=folder)
        world.set_directory(directory)

    says("a", "b", "c", "d", x="reports", y="reports")
    world.apply(world.plan())
    return says


@pytest.fixture
def discard(world):
    """Somebody discards what a plan has held."""

    def say_no(plan):
        with writing(world.engine) as connection:
            return discard_held(connection, ledger_id=plan.ledger_id, run_id="r", plan_id=plan.plan_id, message=SAID)

    return say_no


def names(world, plan, *statuses):
    return sorted(item.item_id for item in world.items(plan, *statuses))


def test_discarded_deletes_are_neither_done_nor_held_again_and_do_not_count(world, company, discard):
    company("c", "d", x="reports", y="reports")
    assert discard(world.plan(limits=ONE)) == 2

    again = world.plan(limits=ONE)
    assert (again.total("discarded"), again.total("held", "planned"), again.holds) == (2, 0, ())
    assert not again.has_changes
    assert {item.message for item in world.items(again, "discarded")} == {SAID}

    company("d", x="reports", y="reports")
    one_more = world.plan(limits=ONE)
    assert (names(world, one_more, "discarded"), names(world, one_more, "planned")) == (["a", "b"], ["c"])


def test_discard_ends_when_the_item_is_desired_again(world, company, discard):
    company("c", "d", x="reports", y="reports")
    discard(world.plan(limits=ONE))
    company("a", "b", "c", "d", x="reports", y="reports")
    assert world.plan(limits=ONE).total() == 0
    company("c", "d", x="reports", y="reports")
    assert names(world, world.plan(limits=ONE), "held") == ["a", "b"]


def test_allowing_deletes_deletes_what_was_discarded(world, company, discard):
    company("c", "d", x="reports", y="reports")
    discard(world.plan(limits=ONE))
    allowed = world.plan()
    assert names(world, allowed, "planned") == ["a", "b"]
    world.apply(allowed)
    company("a", "b", "c", "d", x="reports", y="reports")
    world.apply(world.plan(limits=ONE))
    company("c", "d", x="reports", y="reports")
    assert names(world, world.plan(limits=ONE), "held") == ["a", "b"], "what was deleted since is new"


def test_a_folder_is_left_alone_with_all_that_is_in_it(world, company, discard):
    company("a", "b", "c", "d", folders=())
    assert discard(world.plan(limits=ONE)) == 3
    again = world.plan(limits=ONE)
    assert names(world, again, "discarded") == ["reports", "x", "y"]
    assert not again.has_changes


def test_what_would_go_along_with_a_folder_now_is_due_again(world, company, discard):
    company("a", "b", "c", "d")
    assert discard(world.plan(limits=ONE)) == 2, "x and y by themselves"
    company("a", "b", "c", "d", folders=())
    assert names(world, world.plan(limits=ONE), "held") == ["reports", "x", "y"]


def test_what_was_not_discarded_goes_without_the_folder_that_was(world, company, discard):
    company("a", "b", "c", "d", folders=())
    discard(world.plan(limits=ONE))
    with writing(world.engine) as connection:
        connection.execute(text("UPDATE discarded_item SET fingerprint = 'as it was then' WHERE item_id = 'x'"))
    plan = world.plan(limits=LimitSettings(delete_count=0, delete_percent=100))
    assert names(world, plan, "discarded") == ["reports", "y"]
    (alone,) = world.items(plan, "held")
    assert (alone.item_id, alone.covered_by) == ("x", None)
    discard(plan)
    assert names(world, world.plan(limits=ONE), "discarded") == ["reports", "x", "y"]
    with writing(world.engine) as connection:
        connection.execute(text("DELETE FROM discarded_item WHERE item_id = 'x'"))
    world.apply(world.plan(limits=ONE))
    assert sorted(item for _, item in world.backend.contents.documents) == ["a", "b", "c", "d", "y"]
