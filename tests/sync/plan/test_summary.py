"""The parts and the impact of a plan."""

from itertools import groupby

import pytest
from sqlalchemy import insert

from app.foundation.database.engine import reading, writing
from app.sync.ledger.tables import ItemFailureRow
from app.sync.plan import planner
from app.sync.plan.settings import LimitSettings
from app.sync.plan.stored import Plan, count_items, load_plan
from app.sync.plan.summary import Impact, PlanPart, affected, largest_impact, parts_of
from tests.worlds.planning import Directory, PlanningWorld

ORGANIZATIONS = ("acme", "acme-2", 'quo"ted', "ünï|pipe", "zeta")


def company(users: int = 6) -> Directory:
    """Several organizations, whose names sort otherwise as JSON."""
    directory = Directory()
    for number in range(users):
        directory.user(f"u{number}")
    for name in ORGANIZATIONS:
        directory.organization(name, disabled=name == "zeta").folder(name, "top").folder(name, "sub", parent="top")
        directory.document(name, "d0", folder="sub", access_type="restricted").document(name, "d1")
        for number in range(users):
            directory.member(name, f"u{number}")
            directory.grant(name, folder="top", user=f"u{number}")
            directory.grant(name, document="d1", user=f"u{number}", access_role="viewer")
        directory.group(name, "g", users=["u1", "u2"])
    return directory


def parts_by_hand(world: PlanningWorld, plan: Plan, organization_id: str = "") -> list[PlanPart]:
    """From the items."""
    found = []
    items = world.items(plan)
    for alike, some in groupby(items, key=lambda item: (item.phase, item.kind, item.action, item.operation)):
        here = [
            item.ordinal
            for item in some
            if not organization_id or (item.organization_id == organization_id and item.kind != "organization")
        ]
        if here:
            assert here == list(range(here[0], here[-1] + 1)), "what is alike stands together"
            found.append(PlanPart(here[0], here[-1], *alike))
    return found


@pytest.mark.parametrize("page", [1, 7, 5_000])
def test_parts_are_those_of_the_items(world: PlanningWorld, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    """However the pages fall in which the items go by."""
    monkeypatch.setattr(planner, "_ROWS_AT_A_TIME", page)
    world.set_directory(company())
    first = world.plan()
    world.apply(first)
    world.set_directory(company(users=3).organization("new").member("new", "u0"))
    second = world.plan(limits=LimitSettings(delete_count=2))
    for plan in (first, second):
        with reading(world.engine) as connection:
            assert parts_of(connection, plan.plan_id) == parts_by_hand(world, plan)
            for name in (*ORGANIZATIONS, "new", "nobody"):
                assert parts_of(connection, plan.plan_id, name) == parts_by_hand(world, plan, name)
    assert second.total("held")


def test_what_a_plan_counts_is_what_it_holds(world: PlanningWorld) -> None:
    world.set_directory(company())
    top = next(item for item in world.items(world.plan()) if (item.kind, item.item_id) == ("folder", "top"))
    failure = {"ledger_id": world.ledger_id, "kind": top.kind, "organization_id": top.organization_id}
    tried = f"{top.digest}|{top.access_type}|{top.access_role}|0|{top.parent_id}"
    failure |= {"container_id": "", "item_id": "top", "deleting": False, "fingerprint": tried}
    with writing(world.engine) as connection:
        connection.execute(insert(ItemFailureRow).values(failures=10, retry_at=0, parked=True, message="no", **failure))
    plan = world.plan()
    with reading(world.engine) as connection:
        assert plan.counts == count_items(connection, plan.plan_id)
        assert load_plan(connection, plan.plan_id) == plan
    assert plan.total("parked") == 1
    assert plan.total("skipped") > 1


def test_people_are_counted_once_in_each_organization(world: PlanningWorld) -> None:
    before = Directory().organization("acme").organization("other").document("acme", "d").folder("acme", "f")
    for user in ("leaves", "moves", "renamed", "stays", "comes"):
        before.user(user).member("other", user)
    for user in ("leaves", "moves", "renamed", "stays"):
        before.member("acme", user)
    before.grant("acme", document="d", user="leaves").grant("acme", document="d", user="moves")
    world.set_directory(before)
    plan = world.plan()
    with reading(world.engine) as connection:
        assert largest_impact(connection, plan.plan_id, 10) == [Impact("other", 5, 0, 0), Impact("acme", 4, 0, 0)]
        assert affected(connection, plan.plan_id) == (2, 9)
    world.apply(plan)
    after = Directory().organization("acme").organization("other").document("acme", "d").folder("acme", "f")
    for user in ("leaves", "moves", "stays", "comes"):
        after.user(user)
    after.user("renamed", name="another")
    for user in ("moves", "renamed", "stays", "comes"):
        after.member("acme", user)
        after.member("other", user)
    after.member("other", "leaves").grant("acme", folder="f", user="moves").grant("acme", folder="f", user="comes")
    world.set_directory(after)
    plan = world.plan()
    with reading(world.engine) as connection:
        assert largest_impact(connection, plan.plan_id, 10) == [Impact("acme", 1, 1, 2), Impact("other", 0, 0, 1)]
        assert largest_impact(connection, plan.plan_id, 1) == [Impact("acme", 1, 1, 2)]


def test_a_plan_that_is_made_to_compare_leaves_nothing(world: PlanningWorld) -> None:
    world.set_directory(company())
    plan = world.plan()
    assert planner.is_still_due(world.engine, plan, limits=None)
    with reading(world.engine) as connection:
        assert parts_of(connection, f"{plan.plan_id} again") == []
        assert affected(connection, f"{plan.plan_id} again") == (0, 0)
