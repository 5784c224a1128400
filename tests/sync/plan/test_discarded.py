"""Discarded deletes are skipped until their effect changes."""

import pytest
from sqlalchemy import text

from app.foundation.database.engine import writing
from app.sync.plan.deletes import discard_held
from app.sync.plan.settings import LimitSettings

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
