"""When deletes are held, which ones, and how they are approved."""

import pytest

from app.sync.plan.selection import Selection
from app.sync.plan.settings import LimitSettings

NO_PERCENT = 100
DECIDE = ": approve the deletes, or keep the items in the backend"


@pytest.fixture
def documents(world, new_directory):
    """Sets the number of documents of an organization, without folders. Other organizations do not change."""
    numbers = {}

    def set_company(**changes):
        numbers.update(changes)
        directory = new_directory()
        for organization, number in numbers.items():
            directory.organization(organization)
            for index in range(number):
                directory.document(organization, f"d{index:03}")
        world.set_directory(directory)

    return set_company


@pytest.mark.parametrize(
    ("before", "after", "count", "percent", "held"),
    [
        (100, 95, 5, NO_PERCENT, 0),
        (100, 94, 5, NO_PERCENT, 6),
        (100, 80, 500, 20, 0),
        (100, 79, 500, 20, 21),
        (10, 8, 500, 20, 0),
        (10, 7, 500, 20, 3),
        (9, 0, 500, 20, 0),
        (9, 0, 8, 20, 9),
        (10, 9, 500, 0, 1),
        (3, 2, 0, NO_PERCENT, 1),
        (16, 14, 500, 12.5, 0),
        (16, 13, 500, 12.5, 3),
    ],
)
def test_limits_hold_what_is_over_either(*, world, documents, before, after, count, percent, held):
    documents(acme=before)
    world.apply(world.plan())
    documents(acme=after)

    plan = world.plan(limits=LimitSettings(delete_count=count, delete_percent=percent))

    assert (plan.total("held"), plan.total("planned")) == ((held, 0) if held else (0, before - after))
    if held:
        (hold,) = plan.holds
        assert (hold.kind, hold.organization_id, hold.deletes, hold.in_ledger) == ("document", "acme", held, before)
        assert {item.message for item in world.items(plan, "held")} == {hold.reason}


def test_limits_report_their_numbers(world, documents):
    documents(acme=20)
    world.apply(world.plan())
    documents(acme=0)

    assert [hold.reason for hold in world.plan(limits=LimitSettings(delete_percent=12.5)).holds] == [
        f"20 of 20 documents would be deleted, over sync.limits.delete_percent (12.5 %){DECIDE}"
    ]
    assert [hold.reason for hold in world.plan(limits=LimitSettings(delete_count=7)).holds] == [
        f"20 documents would be deleted, over sync.limits.delete_count (7){DECIDE}"
    ]


def test_limits_are_named(world, documents, new_directory):
    def named(**limits):
        return {(hold.kind, hold.limit, hold.allowed) for hold in world.plan(limits=LimitSettings(**limits)).holds}

    documents(acme=20, other=1)
    world.apply(world.plan())
    documents(acme=0)
    assert named(delete_percent=12.5) == {("document", "delete_percent", 12.5)}
    assert named(delete_count=7) == {("document", "delete_count", 7)}
    world.set_directory(new_directory().organization("acme"))
    assert named(delete_percent=NO_PERCENT) == {("organization", "organization", None)}
    assert named() == {("document", "delete_percent", 20), ("organization", "organization", None)}
    world.set_directory(new_directory().organization("other").document("other", "d000"))
    assert named() == {("document", "delete_percent", 20), ("organization", "covers_held", None)}


def test_limits_speak_of_one_item_as_one(world, new_directory):
    world.set_directory(new_directory().organization("acme").folder("acme", "f").document("acme", "d", folder="f"))
    world.apply(world.plan())
    world.set_directory(new_directory().organization("acme"))

    assert [hold.reason for hold in world.plan(limits=LimitSettings(delete_count=0)).holds] == [
        f"1 document would be deleted, over sync.limits.delete_count (0){DECIDE}",
        f"1 folder and 1 item in it would be deleted, 2 in all, over sync.limits.delete_count (0){DECIDE}",
    ]


def test_limits_count_each_organization_and_kind_alone(world, documents, new_directory):
    documents(acme=10, other=10)
    world.apply(world.plan())
    documents(acme=0, other=8)

    plan = world.plan(limits=LimitSettings())

    assert {(item.organization_id, item.status) for item in world.items(plan)} == {
        ("acme", "held"),
        ("other", "planned"),
    }


def test_limits_leave_adds_and_updates_alone(world, documents, new_directory):
    documents(acme=10)
    world.apply(world.plan())
    world.set_directory(new_directory().organization("acme").document("acme", "new").document("acme", "d000", name="m"))

    plan = world.plan(limits=LimitSettings())

    assert world.sent(plan) == [
        ("add_documents", '["acme",""]', "", "new"),
        ("update_documents", '["acme"]', "", "d000"),
        ("update_document_access", '["acme","organizationPrivate"]', "", "new"),
    ]
    assert plan.total("held") == 9


@pytest.fixture
def tree(world, new_directory):
    """An organization with one folder that holds documents with a user each, and a loose document."""

    def set_company(*, documents=3, folder=True, organization=True, loose=True):
        directory = new_directory().organization("other").user("ada")
        if organization:
            directory.organization("acme")
            if loose:
                directory.document("acme", "loose")
        if organization and folder:
            directory.folder("acme", "f")
            for index in range(documents):
                directory.document("acme", f"d{index}", folder="f")
                directory.grant("acme", document=f"d{index}", user="ada")
        world.set_directory(directory)

    return set_company


def test_limits_count_everything_below_a_folder(world, tree):
    tree()
    world.apply(world.plan())
    tree(folder=False)

    below = LimitSettings(delete_count=7, delete_percent=NO_PERCENT)
    assert world.plan(limits=below).total("held") == 0
    over = world.plan(limits=LimitSettings(delete_count=6, delete_percent=NO_PERCENT))
    (hold,) = over.holds
    assert (hold.kind, hold.deletes, hold.contained, hold.in_ledger) == ("folder", 1, 6, 1)
    assert hold.reason == (
        f"1 folder and 6 items in it would be deleted, 7 in all, over sync.limits.delete_count (6){DECIDE}"
    )
    assert over.total("held") == 7


def test_limits_count_everything_below_an_organization(world, tree):
    tree()
    world.apply(world.plan())
    tree(organization=False)

    over = world.plan(limits=LimitSettings(delete_count=8, delete_percent=NO_PERCENT))
    (hold,) = over.holds
    assert (hold.kind, hold.organization_id, hold.deletes, hold.contained, hold.in_ledger) == (
        "organization",
        "",
        1,
        8,
        2,
    )
    assert hold.reason == (
        f"1 organization and 8 items in it would be deleted, 9 in all, over sync.limits.delete_count (8){DECIDE}"
    )
    assert (over.total("held"), over.total()) == (9, 9)


def test_deleting_an_organization_always_asks(world, documents, new_directory):
    documents(acme=1, other=0, third=1)
    world.apply(world.plan())
    world.set_directory(new_directory().organization("acme").document("acme", "d000"))

    limits = LimitSettings(delete_count=1_000_000, delete_percent=NO_PERCENT)
    plan = world.plan(limits=limits)

    (hold,) = plan.holds
    assert hold.reason == (
        "2 organizations and 1 item in them would be deleted; deleting an organization always asks, whatever"
        f" sync.limits allow{DECIDE}"
    )
    assert (hold.kind, hold.deletes, hold.contained, hold.in_ledger) == ("organization", 2, 1, 3)
    assert (plan.total("held"), plan.total()) == (3, 3)
    assert world.plan(limits=limits, approving=plan.plan_id).total("planned") == 3
    assert world.plan().total("planned") == 3


def test_limits_hold_deletes_that_cover_held_items(world, tree):
    tree(documents=12)
    world.apply(world.plan())
    tree(folder=False, loose=False)

    plan = world.plan(limits=LimitSettings())

    assert {hold.kind: hold.reason for hold in plan.holds} == {
        "document": f"13 of 13 documents would be deleted, over sync.limits.delete_percent (20 %){DECIDE}",
        "documentUser": f"12 of 12 document members would be deleted, over sync.limits.delete_percent (20 %){DECIDE}",
        "folder": f"1 folder would take along 12 documents that are held{DECIDE}",
    }
    assert (plan.total("held"), plan.total()) == (26, 26)
    assert world.sent(plan) == []


def test_limits_hold_an_organization_for_what_is_in_it(world, documents, new_directory):
    documents(acme=12, other=1, third=1)
    world.apply(world.plan())
    world.set_directory(new_directory().organization("other").document("other", "d000"))

    plan = world.plan(limits=LimitSettings())

    assert {(item.kind, item.organization_id) for item in world.items(plan, "held")} == {
        ("organization", "acme"),
        ("document", "acme"),
        ("organization", "third"),
        ("document", "third"),
    }
    assert plan.total() == 15
    assert {(hold.kind, hold.organization_id): (hold.deletes, hold.contained, hold.reason) for hold in plan.holds} == {
        ("document", "acme"): (
            12,
            0,
            f"12 of 12 documents would be deleted, over sync.limits.delete_percent (20 %){DECIDE}",
        ),
        ("organization", ""): (2, 13, f"2 organizations would take along 12 documents that are held{DECIDE}"),
    }


def test_limits_do_not_count_what_waits(world, documents):
    documents(acme=10)
    world.apply(world.plan())
    documents(acme=0)

    plan = world.plan(limits=LimitSettings(), grace=60)

    assert (plan.total("waiting"), plan.total("held"), plan.holds) == (10, 0, ())


def test_limits_count_a_narrowed_plan_against_the_whole_organization(world, new_directory):
    def set_company(users):
        directory = new_directory().organization("acme")
        for index in range(20):
            directory.user(f"u{index:02}")
        for index in range(users):
            directory.member("acme", f"u{index:02}")
        world.set_directory(directory)

    set_company(20)
    world.apply(world.plan())
    set_company(0)

    few = Selection.of([], ["u00", "u01", "u02", "u03"])
    many = Selection.of([], ["u00", "u01", "u02", "u03", "u04"])
    assert world.plan(limits=LimitSettings(), selection=few).total("held") == 0
    assert world.plan(limits=LimitSettings(), selection=many).total("held") == 5


def test_plan_without_limits_holds_nothing(world, documents):
    documents(acme=10)
    world.apply(world.plan())
    documents(acme=0)

    plan = world.plan(limits=None)

    assert (plan.total("planned"), plan.holds) == (10, ())


def test_approval_lets_go_exactly_what_was_held_and_is_still_due(world, documents, new_directory):
    documents(acme=10, other=10)
    world.apply(world.plan())
    documents(acme=2, other=9)
    held = world.plan(limits=LimitSettings())
    assert held.total("held") == 8
    documents(acme=4, other=0)
    world.set_directory(
        new_directory()
        .organization("acme")
        .organization("other")
        .document("acme", "d000", name="changed")
        .document("acme", "d005")
    )

    plan = world.plan(limits=LimitSettings(), approving=held.plan_id)

    assert {item.action for item in world.items(plan)} == {"delete"}
    assert [item for *_, item in world.sent(plan)] == ["d002", "d003", "d004", "d006", "d007", "d008", "d009"]
    world.apply(plan)
    assert world.plan(limits=LimitSettings(), approving=held.plan_id).total() == 0


def test_approval_keeps_a_folder_that_holds_something_new(world, tree):
    tree()
    world.apply(world.plan())
    tree(folder=False)
    held = world.plan(limits=LimitSettings(delete_count=2))
    assert held.total("held") == 7
    tree(documents=4)
    world.apply(world.plan())
    tree(folder=False)

    plan = world.plan(limits=LimitSettings(), approving=held.plan_id)
    world.apply(plan)

    assert ("acme", "f") in world.backend.contents.folders
    assert {item.message for item in world.items(plan, "skipped")} == {
        "document d3 is still in folder f and is not to be deleted with it"
    }


def test_approval_adds_again_what_leaving_an_organization_takes_away(world, new_directory):
    def set_company(is_member):
        directory = new_directory().organization("acme").document("acme", "d")
        for index in range(10):
            user = f"u{index}"
            directory.user(user).grant("acme", document="d", user=user)
            if is_member:
                directory.member("acme", user)
        world.set_directory(directory)

    set_company(is_member=True)
    world.apply(world.plan())
    set_company(is_member=False)
    held = world.plan(limits=LimitSettings())
    assert held.counts == {"organizationUser": {"delete": {"held": 10}}}

    plan = world.plan(limits=LimitSettings(), approving=held.plan_id)

    assert plan.counts == {
        "organizationUser": {"delete": {"planned": 10}},
        "documentUser": {"add": {"planned": 10}},
    }
