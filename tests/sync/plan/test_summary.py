"""The parts and the impact of a plan."""

from itertools import groupby

import pytest
from sqlalchemy import insert

from app.foundation.database.engine import reading, writing
from app.sync.ledger.tables import ItemFailureRow
from app.sync.plan import planner
from app.sync.plan.counts import count_items
from app.sync.plan.parts import PlanPart, parts_of
from app.sync.plan.settings import LimitSettings
from app.sync.plan.stored import Plan, load_plan
from app.sync.plan.user_impact import Impact, affected, largest_impact
from tests.worlds.planning import Directory, PlanningWorld

ORGANIZATIONS = ("acme", "acme-2", 'quo"ted', "ünï|pipe", "zeta")


def company(users: int = 6) -> Directory:
    """Several organizations, whose names have another order as JSON."""
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


def parts_of_items(world: PlanningWorld, plan: Plan, organization_id: str = "") -> list[PlanPart]:
    """The parts of a plan, computed from its items."""
    parts = []
    items = world.items(plan)
    for key, group in groupby(items, key=lambda item: (item.phase, item.kind, item.action, item.operation)):
        ordinals = [
            item.ordinal
            for item in group
            if not organization_id or (item.organization_id == organization_id and item.kind != "organization")
        ]
        if ordinals:
            assert ordinals == list(range(ordinals[0], ordinals[-1] + 1)), "similar items are neighbours"
            parts.append(PlanPart(ordinals[0], ordinals[-1], *key))
    return parts


@pytest.mark.parametrize("page_size", [1, 7, 5_000])
def test_parts_match_items(world: PlanningWorld, monkeypatch: pytest.MonkeyPatch, page_size: int) -> None:
    monkeypatch.setattr(planner, "ROWS_PER_PAGE", page_size)
    world.set_directory(company())
    first = world.plan()
    world.apply(first)
    world.set_directory(company(users=3).organization("new").member("new", "u0"))
    second = world.plan(limits=LimitSettings(delete_count=2))
    for plan in (first, second):
        with reading(world.engine) as connection:
            assert parts_of(connection, plan.plan_id) == parts_of_items(world, plan)
            for name in (*ORGANIZATIONS, "new", "nobody"):
                assert parts_of(connection, plan.plan_id, name) == parts_of_items(world, plan, name)
    assert second.total("held")


def test_counts_match_items(world: PlanningWorld) -> None:
    world.set_directory(company())
    top = next(item for item in world.items(world.plan()) if (item.kind, item.item_id) == ("folder", "top"))
    failure = {"ledger_id": world.ledger_id, "kind": top.kind, "organization_id": top.organization_id}
    fingerprint = f"{top.digest}|{top.access_type}|{top.access_role}|0|{top.parent_id}"
    failure |= {"container_id": "", "item_id": "top", "deleting": False, "fingerprint": fingerprint}
    with writing(world.engine) as connection:
        connection.execute(insert(ItemFailureRow).values(failures=10, retry_at=0, parked=True, message="no", **failure))
    plan = world.plan()
    with reading(world.engine) as connection:
        assert plan.counts == count_items(connection, plan.plan_id)
        assert load_plan(connection, plan.plan_id) == plan
    assert plan.total("parked") == 1
    assert plan.total("skipped") > 1


def two_organizations() -> Directory:
    return Directory().organization("acme").organization("other").document("acme", "d").folder("acme", "f")


@pytest.fixture
def first_plan(world: PlanningWorld) -> Plan:
    """The plan that adds all users of two organizations."""
    directory = two_organizations()
    for user in ("leaves", "moves", "renamed", "stays", "comes"):
        directory.user(user).member("other", user)
    for user in ("leaves", "moves", "renamed", "stays"):
        directory.member("acme", user)
    directory.grant("acme", document="d", user="leaves").grant("acme", document="d", user="moves")
    world.set_directory(directory)
    return world.plan()


def test_impact_counts_a_user_once_in_each_organization(world: PlanningWorld, first_plan: Plan) -> None:
    with reading(world.engine) as connection:
        impact = largest_impact(connection, first_plan.plan_id, 10)
        assert impact == [Impact("other", 5, 0, 0), Impact("acme", 4, 0, 0)]
        assert affected(connection, first_plan.plan_id) == (2, 9)


def test_impact_separates_gains_losses_and_changes(world: PlanningWorld, first_plan: Plan) -> None:
    world.apply(first_plan)
    directory = two_organizations().user("renamed", name="another")
    for user in ("leaves", "moves", "stays", "comes"):
        directory.user(user)
    for user in ("moves", "renamed", "stays", "comes"):
        directory.member("acme", user).member("other", user)
    directory.member("other", "leaves")
    directory.grant("acme", folder="f", user="moves").grant("acme", folder="f", user="comes")
    world.set_directory(directory)
    plan = world.plan()
    with reading(world.engine) as connection:
        assert largest_impact(connection, plan.plan_id, 10) == [Impact("acme", 1, 1, 2), Impact("other", 0, 0, 1)]
        assert largest_impact(connection, plan.plan_id, 1) == [Impact("acme", 1, 1, 2)]


def test_comparing_plans_stores_nothing(world: PlanningWorld) -> None:
    world.set_directory(company())
    plan = world.plan()
    assert planner.is_up_to_date(world.engine, plan, limits=None)
    with reading(world.engine) as connection:
        assert parts_of(connection, f"{plan.plan_id} again") == []
        assert affected(connection, f"{plan.plan_id} again") == (0, 0)
