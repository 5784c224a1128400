"""Stored plans: loading them, and whether they are still due."""

import json
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, insert

from app.access.tables import RevisionRow
from app.foundation.database.engine import open_engine, reading, writing
from app.foundation.database.tables import METADATA
from app.sync.ledger.ledger import open_ledger
from app.sync.ledger.tables import LedgerItemRow
from app.sync.plan.dependencies import find_dependents, find_unsafe_deletes, skip_dependents
from app.sync.plan.stored import Hold, load_plan, read_planned
from app.sync.plan.tables import PlanItemRow, PlanRow
from tests.tables import make_tables
from tests.worlds.clock import NOON
from tests.worlds.planning import plan_items

ITEM = PlanItemRow.__table__
HOLD = Hold(
    kind="document",
    organization_id="acme",
    deletes=7,
    in_ledger=10,
    limit="delete_percent",
    allowed=12.5,
    reason="7 of 10",
)


class Stored:
    """A database with one plan, to which items are added in order."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.ledger_id = open_ledger(engine, "http://backend.example", "key", lambda: NOON).ledger_id
        self.ordinal = 0
        with writing(engine) as connection:
            connection.execute(insert(RevisionRow.__table__).values(revision=3, created_at=0, changes="{}"))
            connection.execute(
                insert(PlanRow.__table__).values(
                    plan_id="plan-1",
                    ledger_id=self.ledger_id,
                    revision=3,
                    ledger_revision=0,
                    plan_hash="hash",
                    created_at=1,
                    organization_ids='["acme"]',
                    limits=json.dumps([HOLD.to_wire()]),
                )
            )

    def item(self, kind, item_id, *, action="add", container_id="", **columns):
        self.ordinal += 1
        row = {"phase": 10, "operation": "add_users", "scope": "[]", "reason": "", "organization_id": "acme"} | columns
        with writing(self.engine) as connection:
            connection.execute(
                insert(ITEM).values(
                    plan_id="plan-1",
                    ordinal=self.ordinal,
                    action=action,
                    kind=kind,
                    container_id=container_id,
                    item_id=item_id,
                    **row,
                )
            )
        return self.ordinal

    def holds(self, kind, item_id, *, container_id="", parent_id="", certain=True, organization_id="acme"):
        with writing(self.engine) as connection:
            connection.execute(
                insert(LedgerItemRow.__table__).values(
                    ledger_id=self.ledger_id,
                    kind=kind,
                    organization_id=organization_id,
                    container_id=container_id,
                    item_id=item_id,
                    digest="",
                    parent_id=parent_id,
                    certain=certain,
                )
            )

    def read(self, *, after=0, limit=1000):
        with reading(self.engine) as connection:
            return read_planned(connection, "plan-1", after=after, limit=limit)

    def skip(self):
        with writing(self.engine) as connection:
            skip_dependents(connection, self.ledger_id, "plan-1")
        with reading(self.engine) as connection:
            skipped = plan_items(connection, "plan-1", "skipped")
        return {(item.kind, item.item_id): item.message for item in skipped}

    def below(self, ordinal):
        with reading(self.engine) as connection:
            items = read_planned(connection, "plan-1", after=ordinal - 1, limit=1)
            return find_unsafe_deletes(connection, self.ledger_id, items).get(ordinal)

    def dependents(self, *ordinals):
        with reading(self.engine) as connection:
            items = [
                item for item in read_planned(connection, "plan-1", after=0, limit=1000) if item.ordinal in ordinals
            ]
            return find_dependents(connection, self.ledger_id, items)


@pytest.fixture
def stored(database_url: str) -> Iterator[Stored]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield Stored(engine)
    engine.dispose()


def test_plan_is_read_back_as_it_was_stored(stored):
    stored.item("document", "d1")
    stored.item("document", "d2", status="done")

    with reading(stored.engine) as connection:
        plan = load_plan(connection, "plan-1")
        assert load_plan(connection, "plan-2") is None

    assert plan is not None
    assert (plan.plan_hash, plan.organization_ids, plan.user_ids, plan.holds) == ("hash", ("acme",), (), (HOLD,))
    assert plan.counts == {"document": {"add": {"planned": 1, "done": 1}}}
    assert (plan.total(), plan.total("done"), plan.has_changes) == (2, 1, True)


def test_items_are_read_page_by_page_without_what_is_covered(stored):
    stored.item("document", "d1")
    coverer = stored.item("folder", "f", action="delete")
    stored.item("document", "d2", action="delete", covered_by=coverer)
    stored.item("document", "d3", status="done")
    stored.item("document", "d4")

    assert [item.item_id for item in stored.read(limit=2)] == ["d1", "f"]
    assert [item.item_id for item in stored.read(after=2)] == ["d4"]


@pytest.mark.parametrize("status", ["failed", "skipped", "waiting", "parked", "cancelled"])
def test_items_that_need_an_unsettled_add_are_skipped_when_planned_and_before_each_call(stored, status):
    stored.item("folder", "f", status=status)
    blocked = stored.item("folderUser", "ada", container_id="f")
    free = stored.item("folderUser", "ada", container_id="g")

    assert stored.dependents(blocked, free) == {blocked: "folder f is not in the backend"}
    assert stored.skip().get(("folderUser", "ada")) == "folder f is not in the backend"
    assert [item.ordinal for item in stored.read()] == [free]


def test_update_needs_the_add_of_the_same_item(stored):
    stored.item("organization", "acme", organization_id="acme", status="done")
    stored.item("document", "d", status="failed")
    update = stored.item("document", "d", action="update", operation="move_documents", parent_id="f")

    assert stored.dependents(update) == {update: "document d is not in the backend"}


def test_missing_organization_is_reported_before_a_missing_folder(stored):
    stored.item("organization", "acme", status="failed")
    stored.item("folder", "f", status="skipped")
    document = stored.item("document", "d", parent_id="f")

    assert stored.dependents(document) == {document: "organization acme is not in the backend"}


def test_dependents_of_what_failed_are_skipped_level_by_level(stored):
    stored.item("folder", "top", status="failed")
    stored.item("folder", "sub", parent_id="top")
    stored.item("document", "d", parent_id="sub")
    stored.item("documentUser", "ada", container_id="d")
    stored.item("folderUser", "ada", container_id="sub")
    stored.item("folder", "beside")
    stored.item("folderUser", "bob", container_id="beside")
    stored.item("documentUser", "cleo", container_id="top")

    assert stored.skip() == {
        ("folder", "sub"): "folder top is not in the backend",
        ("document", "d"): "folder sub is not in the backend",
        ("documentUser", "ada"): "document d is not in the backend",
        ("folderUser", "ada"): "folder sub is not in the backend",
    }


def test_dependents_of_an_organization_or_group_that_failed_are_skipped(stored):
    stored.item("organization", "acme", status="failed")
    stored.item("organization", "acme", action="update", operation="disable_organizations")
    stored.item("group", "g", organization_id="other", status="parked")
    stored.item("groupMember", "ada", container_id="g", organization_id="other")
    stored.item("groupMember", "ada", container_id="h", organization_id="other")
    stored.item("organizationUser", "ada")
    stored.item("organizationUser", "bob", organization_id="other")

    assert stored.skip() == {
        ("organization", "acme"): "organization acme is not in the backend",
        ("groupMember", "ada"): "group g is not in the backend",
        ("organizationUser", "ada"): "organization acme is not in the backend",
    }
    assert [(item.kind, item.container_id) for item in stored.read()] == [
        ("groupMember", "h"),
        ("organizationUser", ""),
    ]


def test_dependents_of_what_the_backend_has_are_kept(stored):
    stored.holds("document", "d")
    stored.item("document", "d", status="failed")
    stored.item("documentUser", "ada", container_id="d")
    stored.holds("folder", "f", certain=False)
    stored.item("folder", "f", status="failed")
    stored.item("folderUser", "bob", container_id="f")

    assert stored.skip() == {("folderUser", "bob"): "folder f is not in the backend"}


def test_deletes_do_not_depend_on_what_failed(stored):
    stored.item("folder", "f", status="failed")
    stored.item("folderUser", "bob", container_id="f", action="delete")

    assert stored.skip() == {}


@pytest.mark.parametrize(
    ("coverer", "below", "text"),
    [
        (("folder", "f"), ("document", "d", "", "f"), "document d is still in folder f"),
        (("folder", "f"), ("document", "d", "", "g"), "document d is still in folder f"),
        (("folder", "f"), ("folder", "h", "", "g"), "folder h is still in folder f"),
        (("folder", "f"), ("folderUser", "ada", "f", ""), "folderUser ada is still in folder f"),
        (("document", "d"), ("documentUser", "ada", "d", ""), "documentUser ada is still in document d"),
        (("group", "g"), ("groupMember", "ada", "g", ""), "groupMember ada is still in group g"),
        (("organization", "acme"), ("groupMember", "ada", "g", ""), "groupMember ada is still in organization acme"),
    ],
)
def test_delete_must_not_take_along_what_it_does_not_cover(stored, coverer, below, text):
    kind, item_id, container_id, parent_id = below
    ordinal = stored.item(*coverer, action="delete")
    stored.holds(*coverer)
    if coverer[0] == "folder":
        stored.holds("folder", "g", parent_id="f")
        stored.item("folder", "g", action="delete", covered_by=ordinal)
    stored.holds("document", "elsewhere", parent_id="other")
    stored.holds("groupMember", "bob", container_id="g", organization_id="other")
    if coverer[0] == "organization":
        stored.item("document", "elsewhere", action="delete", covered_by=ordinal)
    assert stored.below(ordinal) is None

    stored.holds(kind, item_id, container_id=container_id, parent_id=parent_id)
    assert stored.below(ordinal).startswith(text)

    stored.item(kind, item_id, container_id=container_id, action="delete", covered_by=ordinal)
    assert stored.below(ordinal) is None
