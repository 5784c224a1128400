"""Discarded deletes, which are skipped until their effect changes."""

from collections.abc import Callable, Iterable

import pytest
from sqlalchemy import text

from app.foundation.database.engine import writing
from app.sync.plan.discards import discard_held
from app.sync.plan.settings import LimitSettings
from app.sync.plan.stored import Plan
from tests.worlds.planning import Directory, PlanningWorld

SetCompany = Callable[..., None]
Discard = Callable[[Plan], int]

ONE = LimitSettings(delete_count=1, delete_percent=100)
DISCARDED_MESSAGE = "left alone: discarded on 2026-11-20 12:00 UTC by ada (command line)"


@pytest.fixture
def set_company(world: PlanningWorld) -> SetCompany:
    """Sets the documents, the folders, and the folders of further documents. The backend has ``a`` to ``d``, and ``x``
    and ``y`` in ``reports``."""

    def set_company(*documents: str, folders: Iterable[str] = ("reports",), **further: str) -> None:
        directory = Directory().organization("acme")
        for folder in folders:
            directory.folder("acme", folder)
        for document in documents:
            directory.document("acme", document)
        for document, folder in further.items():
            directory.document("acme", document, folder=folder)
        world.set_directory(directory)

    set_company("a", "b", "c", "d", x="reports", y="reports")
    world.apply(world.plan())
    return set_company


@pytest.fixture
def discard(world: PlanningWorld) -> Discard:
    """Discards the held deletes of a plan. Returns their number."""

    def discard(plan: Plan) -> int:
        with writing(world.engine) as connection:
            return discard_held(
                connection, ledger_id=plan.ledger_id, run_id="r", plan_id=plan.plan_id, message=DISCARDED_MESSAGE
            )

    return discard


def names(world: PlanningWorld, plan: Plan, *statuses: str) -> list[str]:
    return sorted(item.item_id for item in world.items(plan, *statuses))


def test_discarded_deletes_are_not_held_again_and_do_not_count(
    world: PlanningWorld, set_company: SetCompany, discard: Discard
) -> None:
    set_company("c", "d", x="reports", y="reports")
    assert discard(world.plan(limits=ONE)) == 2

    again = world.plan(limits=ONE)
    assert (again.total("discarded"), again.total("held", "planned"), again.holds) == (2, 0, ())
    assert not again.has_changes
    assert {item.message for item in world.items(again, "discarded")} == {DISCARDED_MESSAGE}

    set_company("d", x="reports", y="reports")
    third = world.plan(limits=ONE)
    assert (names(world, third, "discarded"), names(world, third, "planned")) == (["a", "b"], ["c"])


def test_discard_ends_when_the_item_is_desired_again(
    world: PlanningWorld, set_company: SetCompany, discard: Discard
) -> None:
    set_company("c", "d", x="reports", y="reports")
    discard(world.plan(limits=ONE))
    set_company("a", "b", "c", "d", x="reports", y="reports")
    assert world.plan(limits=ONE).total() == 0
    set_company("c", "d", x="reports", y="reports")
    assert names(world, world.plan(limits=ONE), "held") == ["a", "b"]


def test_plan_without_limits_has_discarded_deletes(
    world: PlanningWorld, set_company: SetCompany, discard: Discard
) -> None:
    set_company("c", "d", x="reports", y="reports")
    discard(world.plan(limits=ONE))
    allowed = world.plan()
    assert names(world, allowed, "planned") == ["a", "b"]
    world.apply(allowed)
    set_company("a", "b", "c", "d", x="reports", y="reports")
    world.apply(world.plan(limits=ONE))
    set_company("c", "d", x="reports", y="reports")
    assert names(world, world.plan(limits=ONE), "held") == ["a", "b"], "it was deleted since, so it is a new delete"


def test_discarded_folder_keeps_its_contents(world: PlanningWorld, set_company: SetCompany, discard: Discard) -> None:
    set_company("a", "b", "c", "d", folders=())
    assert discard(world.plan(limits=ONE)) == 3
    again = world.plan(limits=ONE)
    assert names(world, again, "discarded") == ["reports", "x", "y"]
    assert not again.has_changes


def test_discarded_document_is_due_again_if_its_folder_is_deleted(
    world: PlanningWorld, set_company: SetCompany, discard: Discard
) -> None:
    set_company("a", "b", "c", "d")
    assert discard(world.plan(limits=ONE)) == 2, "x and y by themselves"
    set_company("a", "b", "c", "d", folders=())
    assert names(world, world.plan(limits=ONE), "held") == ["reports", "x", "y"]


def test_delete_in_a_discarded_folder_is_separate(
    world: PlanningWorld, set_company: SetCompany, discard: Discard
) -> None:
    set_company("a", "b", "c", "d", folders=())
    discard(world.plan(limits=ONE))
    with writing(world.engine) as connection:
        connection.execute(text("UPDATE discarded_item SET fingerprint = 'another effect' WHERE item_id = 'x'"))
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
