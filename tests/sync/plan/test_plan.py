"""Operations of plans, their scopes and order, and skipped items."""

import json
import re
import tracemalloc
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import delete, event, func, insert, select, text, update

from app.contract import operations
from app.foundation.database.engine import is_sqlite, open_engine, reading, writing
from app.sync.ledger.ledger import open_ledger
from app.sync.ledger.settlement import SETTLES
from app.sync.ledger.tables import ItemFailureRow, LedgerItemRow, LedgerRow
from app.sync.plan.planner import PlanningError
from app.sync.plan.rules import RULES
from app.sync.plan.selection import Selection
from app.sync.plan.tables import PlanRow

LEDGER_ITEM = LedgerItemRow.__table__
FAILURE = ItemFailureRow.__table__


@pytest.fixture
def company(new_directory):
    """A small company; each keyword changes one thing in it."""

    def make(**changes):
        has = {"name": "n", "parent": "", "folder": "specs", "access": "restricted", "role": "editor"} | changes
        return (
            new_directory()
            .organization("acme", name=has["name"])
            .user("ada", name=has["name"])
            .user("bob")
            .member("acme", "ada", has["role"])
            .group("acme", "eng", users=["bob"], name=has["name"])
            .folder("acme", "home")
            .folder("acme", "specs", parent=has["parent"], access_type=has["access"], name=has["name"])
            .document("acme", "roadmap", folder=has["folder"], access_type=has["access"], name=has["name"])
            .grant("acme", folder="specs", user="bob", access_role=has["role"])
            .grant("acme", document="roadmap", user="ada", access_role=has["role"])
        )

    return make


def test_plan_adds_everything_in_order_with_what_each_call_carries(world, company):
    world.set_directory(company())

    assert world.sent(world.plan()) == [
        ("add_organizations", "[]", "", "acme"),
        ("add_folder", '["acme"]', "", "home"),
        ("add_folder", '["acme"]', "", "specs"),
        ("add_documents", '["acme","specs"]', "", "roadmap"),
        ("update_document_access", '["acme","restricted"]', "", "roadmap"),
        ("add_groups", '["acme"]', "", "eng"),
        ("add_users", '["acme"]', "", "ada"),
        ("add_users", '["acme","document","roadmap"]', "roadmap", "ada"),
        ("add_users", '["acme","folder","specs"]', "specs", "bob"),
        ("add_users_to_groups", '["acme","group","eng"]', "eng", "bob"),
    ]


def test_plan_items_carry_the_records_fields_and_state(world, company):
    world.set_directory(company())

    items = {(item.kind, item.operation, item.item_id): item for item in world.items(world.plan())}

    folder = items["folder", "add_folder", "specs"]
    assert json.loads(folder.payload) == {"folderName": "n"}
    assert (folder.parent_id, folder.access_type, folder.digest) == ("", "restricted", "specs=n")
    user = items["documentUser", "add_users", "ada"]
    assert json.loads(user.payload) == {"name": "n", "email": "ada@acme.example"}
    assert (user.access_role, user.reason) == ("editor", "granted to the user by name")
    assert items["groupMember", "add_users_to_groups", "bob"].payload == ""


@pytest.mark.parametrize(
    ("change", "sent"),
    [
        (
            {"name": "m"},
            [
                ("update_organizations", "[]", "", "acme"),
                ("update_folder", '["acme"]', "", "specs"),
                ("update_documents", '["acme"]', "", "roadmap"),
                ("update_users", '["acme"]', "", "ada"),
                ("update_users", '["acme","document","roadmap"]', "roadmap", "ada"),
            ],
        ),
        ({"parent": "home"}, [("update_folder", '["acme"]', "", "specs")]),
        ({"folder": "home"}, [("move_documents", '["acme","home"]', "", "roadmap")]),
        ({"folder": ""}, [("move_documents", '["acme",""]', "", "roadmap")]),
        (
            {"access": "public"},
            [
                ("update_folder_access", '["acme","public"]', "", "specs"),
                ("update_document_access", '["acme","public"]', "", "roadmap"),
            ],
        ),
        (
            {"role": "viewer"},
            [
                ("update_users", '["acme"]', "", "ada"),
                ("update_users", '["acme","document","roadmap"]', "roadmap", "ada"),
                ("update_users", '["acme","folder","specs"]', "specs", "bob"),
            ],
        ),
    ],
)
def test_plan_updates_only_what_changed(world, company, change, sent):
    world.set_directory(company())
    world.apply(world.plan())
    world.set_directory(company(**change))

    plan = world.plan()

    assert world.sent(plan) == sent
    world.apply(plan)
    assert world.plan().counts == {}


def test_plan_of_nothing_is_empty(world, company):
    world.set_directory(company())
    world.apply(world.plan())

    plan = world.plan()

    assert (plan.counts, plan.has_changes) == ({}, False)


def test_plan_moves_folders_that_change_places_from_the_top_down(world, new_directory):
    world.set_directory(new_directory().organization("o").folder("o", "a").folder("o", "b", "a").folder("o", "c", "b"))
    world.apply(world.plan())
    world.set_directory(new_directory().organization("o").folder("o", "c").folder("o", "b", "c").folder("o", "a", "b"))

    plan = world.plan()
    world.apply(plan)

    assert [item for operation, _, _, item in world.sent(world.plan())] == []
    assert {key[1]: folder["in"] for key, folder in world.backend.contents.folders.items()} == {
        "a": "b",
        "b": "c",
        "c": "",
    }
    assert world.items(plan, "failed", "skipped") == []


def test_plan_sends_all_of_an_unconfirmed_item(world, company):
    world.set_directory(company())
    world.apply(world.plan())
    with writing(world.engine) as connection:
        connection.execute(update(LEDGER_ITEM).values(certain=False))

    assert [(operation, item) for operation, _, _, item in world.sent(world.plan())] == [
        ("add_organizations", "acme"),
        ("disable_organizations", "acme"),
        ("add_folder", "home"),
        ("add_folder", "specs"),
        ("update_folder_access", "home"),
        ("update_folder_access", "specs"),
        ("add_documents", "roadmap"),
        ("move_documents", "roadmap"),
        ("update_document_access", "roadmap"),
        ("add_groups", "eng"),
        ("add_users", "ada"),
        ("add_users", "ada"),
        ("add_users", "bob"),
        ("add_users_to_groups", "bob"),
    ]


def test_plan_deletes_contents_before_containers(world, company, new_directory):
    world.set_directory(company())
    world.apply(world.plan())
    world.set_directory(new_directory().organization("acme").user("bob").folder("acme", "home"))

    assert world.sent(world.plan()) == [
        ("delete_users", '["acme"]', "", "ada"),
        ("delete_users_from_groups", '["acme","eng"]', "", "eng"),
        ("delete_folder", '["acme","specs"]', "", "specs"),
    ]


def test_plan_marks_what_goes_along_with_another_delete(world, company, new_directory):
    world.set_directory(company(parent="home"))
    world.apply(world.plan())
    world.set_directory(new_directory().organization("acme"))

    plan = world.plan()

    items = {item.ordinal: item for item in world.items(plan)}
    covered = {
        (item.kind, item.item_id): (items[item.covered_by].kind, items[item.covered_by].item_id)
        for item in items.values()
        if item.covered_by
    }
    assert covered == {
        ("folder", "specs"): ("folder", "home"),
        ("document", "roadmap"): ("folder", "home"),
        ("folderUser", "bob"): ("folder", "home"),
        ("documentUser", "ada"): ("folder", "home"),
        ("groupMember", "bob"): ("group", "eng"),
    }


def test_items_possibly_moved_out_of_a_folder_are_not_deleted_with_it(world, new_directory):
    def set_company(*folders):
        directory = new_directory().organization("acme")
        for folder, parent in folders:
            directory.folder("acme", folder, parent=parent)
        return directory

    world.set_directory(set_company(("old", ""), ("below", "old")).document("acme", "d", folder="old"))
    world.apply(world.plan())
    world.set_directory(set_company(("old", ""), ("below", "")).document("acme", "d"))
    # Both moves are made, and the answers are lost.
    world.backend.troubles, world.backend.percent = ("answer is lost",), 100
    world.apply(world.plan())
    world.backend.percent = 0
    assert {folder["in"] for folder in world.backend.contents.folders.values()} == {""}
    world.set_directory(set_company())

    plan = world.plan()
    assert [(item.kind, item.item_id) for item in world.items(plan) if item.covered_by] == []
    world.apply(plan)
    world.apply(world.plan(retry=()))
    assert (world.backend.contents.folders, world.backend.contents.documents) == ({}, {})
    assert world.plan().counts == {}


def test_plan_deletes_an_organization_in_one_call(world, company, new_directory):
    world.set_directory(company().organization("other"))
    world.apply(world.plan())
    world.set_directory(new_directory().organization("other"))

    plan = world.plan()

    assert world.sent(plan) == [("delete_organizations", "[]", "", "acme")]
    assert plan.total("planned") == 9
    world.apply(plan)
    assert set(world.ledger()) == {("organization", "other", "", "other")}


def test_plan_moves_out_of_a_folder_before_it_is_deleted(world, new_directory):
    world.set_directory(
        new_directory()
        .organization("acme")
        .folder("acme", "old")
        .folder("acme", "kept", parent="old")
        .folder("acme", "deep", parent="kept")
        .document("acme", "d", folder="old")
        .document("acme", "e", folder="deep")
    )
    world.apply(world.plan())
    world.set_directory(
        new_directory().organization("acme").folder("acme", "kept").document("acme", "d", folder="kept")
    )

    plan = world.plan()

    assert [(operation, item) for operation, _, _, item in world.sent(plan)] == [
        ("update_folder", "kept"),
        ("update_folder_access", "kept"),
        ("move_documents", "d"),
        ("delete_folder", "deep"),
        ("delete_folder", "old"),
    ]
    world.apply(plan)
    assert set(world.backend.contents.documents) == {("acme", "d")}
    assert set(world.backend.contents.folders) == {("acme", "kept")}


def test_plan_keeps_a_folder_when_something_could_not_be_moved_out_of_it(world, new_directory):
    world.set_directory(new_directory().organization("acme").folder("acme", "old").document("acme", "d", folder="old"))
    world.apply(world.plan())
    world.set_directory(new_directory().organization("acme").document("acme", "d"))

    plan = world.plan()
    world.apply(plan, refuses="move_documents")

    assert set(world.backend.contents.documents) == {("acme", "d")}
    (skipped,) = world.items(plan, "skipped")
    assert (skipped.operation, skipped.message) == (
        "delete_folder",
        "document d is still in folder old and is not to be deleted with it",
    )


def test_folder_whose_move_was_not_answered_is_deleted(world, new_directory):
    world.set_directory(new_directory().organization("acme").folder("acme", "a").folder("acme", "b", "a", "public"))
    world.apply(world.plan())
    answer = world.backend.answer

    def without_b(path, data):
        code, body, headers = answer(path, data)
        if path.endswith("folders/update"):
            del body["result"]["data"]["b"]
        return code, body, headers

    world.backend.answer = without_b
    world.set_directory(new_directory().organization("acme").folder("acme", "b").folder("acme", "a", "b"))
    plan = world.plan()
    world.apply(plan)
    assert [(item.operation, item.item_id) for item in world.items(plan, "failed")] == [("update_folder", "b")]
    # "b" is unconfirmed although its access type was updated, and each folder is in the other by the ledger.
    ledger = {key[3]: (row["parent_id"], row["certain"]) for key, row in world.ledger().items() if key[0] == "folder"}
    assert ledger == {"a": ("b", True), "b": ("a", False)}

    world.backend.answer = answer
    world.set_directory(new_directory().organization("acme"))
    plan = world.plan(retry=())
    world.apply(plan)

    assert world.items(plan, "skipped", "failed") == []
    assert world.backend.contents.folders == {}
    assert world.plan().total() == 0


def test_plan_adds_again_what_leaving_an_organization_takes_away(world, new_directory):

    def set_company(is_member):
        directory = (
            new_directory()
            .organization("acme")
            .user("ada")
            .group("acme", "eng", users=["ada"])
            .document("acme", "d")
            .grant("acme", document="d", user="ada")
        )
        world.set_directory(directory.member("acme", "ada") if is_member else directory.document("acme", "new"))

    set_company(is_member=True)
    world.apply(world.plan())
    set_company(is_member=False)
    plan = world.plan()

    assert [(item.phase, item.operation, item.kind) for item in world.items(plan) if item.item_id == "ada"] == [
        (130, "delete_users", "organizationUser"),
        (180, "add_users", "documentUser"),
        (190, "add_users_to_groups", "groupMember"),
    ]
    world.apply(plan)
    assert [place for place, people in world.backend.contents.people.items() if "ada" in people] == [
        ("acme", "document", "d")
    ]
    assert world.backend.contents.groups == {("acme", "eng"): {"ada"}}
    assert world.plan().counts == {}


def test_plan_does_not_resend_a_group_whose_name_changed(world, new_directory):
    world.set_directory(new_directory().organization("acme").group("acme", "eng", name="Engineers"))
    world.apply(world.plan())
    world.set_directory(new_directory().organization("acme").group("acme", "eng", name="Engineering"))

    assert world.plan().counts == {}


def fail(world, item, *, parked, deleting=False, retry_in=1000, now_ms, failures=10):
    with writing(world.engine) as connection:
        connection.execute(
            insert(FAILURE).values(
                ledger_id=world.ledger_id,
                kind=item.kind,
                organization_id=item.organization_id,
                container_id=item.container_id,
                item_id=item.item_id,
                deleting=deleting,
                fingerprint=f"{item.digest}|{item.access_type}|{item.access_role}|{item.disabled:d}|{item.parent_id}",
                failures=failures,
                retry_at=now_ms + retry_in,
                parked=parked,
                message="no",
            )
        )


@pytest.mark.parametrize(
    ("parked", "retry_in", "status", "message"),
    [
        (True, 0, "parked", "parked after 10 failures: no"),
        (False, 1, "waiting", "tried again from {minute} on, after 10 failures: no"),
        (False, 0, "planned", ""),
    ],
)
def test_plan_puts_off_what_failed_until_its_pause_is_over(
    *, world, new_directory, now_ms, parked, retry_in, status, message
):
    world.set_directory(new_directory().organization("acme").user("ada").member("acme", "ada"))
    (user,) = [item for item in world.items(world.plan()) if item.kind == "organizationUser"]
    fail(world, user, parked=parked, retry_in=retry_in, now_ms=now_ms)

    (item,) = [item for item in world.items(world.plan()) if item.kind == "organizationUser"]

    minute = f"{datetime.fromtimestamp((now_ms + retry_in) / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    assert (item.status, item.message) == (status, message.format(minute=minute))


def test_plan_counts_one_failure_in_the_singular(*, world, new_directory, now_ms):
    world.set_directory(new_directory().organization("acme").user("ada").member("acme", "ada"))
    (user,) = [item for item in world.items(world.plan()) if item.kind == "organizationUser"]
    fail(world, user, parked=False, now_ms=now_ms, failures=1)

    (item,) = [item for item in world.items(world.plan()) if item.kind == "organizationUser"]

    assert item.message.startswith("tried again from ")
    assert item.message.endswith(" on, after 1 failure: no")


def test_plan_tries_a_parked_item_at_once_when_it_changes(world, new_directory, now_ms):
    world.set_directory(new_directory().organization("acme").user("ada").member("acme", "ada"))
    (user,) = [item for item in world.items(world.plan()) if item.kind == "organizationUser"]
    fail(world, user, parked=True, now_ms=now_ms)
    world.set_directory(new_directory().organization("acme").user("ada", name="Ada").member("acme", "ada"))

    assert world.items(world.plan(), "parked") == []


def test_plan_parks_a_delete_by_itself(world, new_directory, now_ms):
    world.set_directory(new_directory().organization("acme").group("acme", "g").document("acme", "d"))
    world.apply(world.plan())
    world.set_directory(new_directory().organization("acme").group("acme", "g"))
    (item,) = world.items(world.plan())
    fail(world, item, parked=True, deleting=True, now_ms=now_ms)

    assert world.plan().counts == {"document": {"delete": {"parked": 1}}}


def test_plan_skips_what_hangs_on_a_parked_container(world, company, now_ms):
    world.set_directory(company(parent="home"))
    (home,) = [item for item in world.items(world.plan()) if (item.kind, item.item_id) == ("folder", "home")]
    fail(world, home, parked=True, now_ms=now_ms)

    plan = world.plan()

    assert {(item.kind, item.item_id, item.message) for item in world.items(plan, "skipped")} == {
        ("folder", "specs", "folder home is not in the backend"),
        ("document", "roadmap", "folder specs is not in the backend"),
        ("folderUser", "bob", "folder specs is not in the backend"),
        ("documentUser", "ada", "document roadmap is not in the backend"),
    }
    assert ("add_groups", '["acme"]', "", "eng") in world.sent(plan)


def test_plan_waits_for_the_grace_period(world, new_directory, now):
    full = (
        new_directory().organization("acme").user("ada").document("acme", "d").grant("acme", document="d", user="ada")
    )
    gone = new_directory().organization("acme").document("acme", "d")
    world.set_directory(full)
    world.apply(world.plan())
    world.set_directory(gone)

    assert world.plan(grace=60).counts == {"documentUser": {"delete": {"waiting": 1}}}
    assert world.plan(grace=60, now=now + timedelta(seconds=59)).counts == {"documentUser": {"delete": {"waiting": 1}}}
    assert world.plan(grace=60, now=now + timedelta(seconds=60)).counts == {"documentUser": {"delete": {"planned": 1}}}
    world.set_directory(full)
    assert world.plan(grace=60).counts == {}
    world.set_directory(gone)
    assert world.plan(grace=60, now=now + timedelta(days=1)).counts == {"documentUser": {"delete": {"waiting": 1}}}


def test_a_grace_period_that_began_in_the_future_begins_now(world, new_directory, now):
    world.set_directory(new_directory().organization("acme").document("acme", "d"))
    world.apply(world.plan())
    world.set_directory(new_directory().organization("acme"))
    world.plan(grace=60, now=now + timedelta(days=1))

    assert world.plan(grace=0, now=now).counts == {"document": {"delete": {"planned": 1}}}
    assert world.plan(grace=60, now=now).counts == {"document": {"delete": {"waiting": 1}}}
    assert world.plan(grace=60, now=now + timedelta(seconds=60)).counts == {"document": {"delete": {"planned": 1}}}


def test_plan_keeps_a_folder_while_something_in_it_is_kept(world, new_directory, now):
    world.set_directory(new_directory().organization("acme").folder("acme", "f").document("acme", "d", folder="f"))
    world.apply(world.plan())
    world.set_directory(new_directory().organization("acme"))
    world.plan(grace=60)
    with writing(world.engine) as connection:
        connection.execute(
            update(LEDGER_ITEM).where(LEDGER_ITEM.c.kind == "document").values(gone_at=LEDGER_ITEM.c.gone_at + 5000)
        )

    plan = world.plan(grace=60, now=now + timedelta(seconds=61))

    assert plan.counts == {"folder": {"delete": {"waiting": 1}}, "document": {"delete": {"waiting": 1}}}
    assert world.plan(grace=60, now=now + timedelta(seconds=65)).total("planned") == 2


def test_plan_narrowed_to_organizations_leaves_others_alone(world, company, new_directory):
    world.set_directory(company().organization("other").folder("other", "f"))
    world.apply(world.plan())
    world.set_directory(new_directory().organization("new"))

    plan = world.plan(selection=Selection.of(["other"]))

    assert world.sent(plan) == [("delete_organizations", "[]", "", "other")]
    assert (plan.organization_ids, plan.user_ids) == (("other",), ())


def test_plan_narrowed_to_users_touches_what_is_theirs_alone(world, company):
    world.set_directory(company())
    world.apply(world.plan())
    world.set_directory(company(name="m", role="viewer"))

    plan = world.plan(selection=Selection.of([], ["bob"]))

    assert world.sent(plan) == [("update_users", '["acme","folder","specs"]', "specs", "bob")]


def test_plan_narrowed_to_users_skips_items_without_container(world, company):
    world.set_directory(company())

    plan = world.plan(selection=Selection.of([], ["ada"]))

    assert world.sent(plan) == []
    assert {(item.kind, item.item_id) for item in world.items(plan, "skipped")} == {
        ("organizationUser", "ada"),
        ("documentUser", "ada"),
    }


def test_plan_narrowed_to_a_user_who_is_gone_deletes_what_was_his(world, company, new_directory):
    world.set_directory(company())
    world.apply(world.plan())
    world.set_directory(new_directory().organization("acme"))

    plan = world.plan(selection=Selection.of([], ["ada"]))

    assert world.sent(plan) == [
        ("delete_users", '["acme","document","roadmap"]', "roadmap", "ada"),
        ("delete_users", '["acme"]', "", "ada"),
    ]


@pytest.mark.parametrize("organizations", [[], ["acme"]])
def test_plan_narrowed_to_a_user_reads_by_index(world, company, new_directory, organizations):
    if not is_sqlite(world.engine):
        pytest.skip("the other database chooses by its statistics, which small tables do not have")
    world.set_directory(company())
    world.apply(world.plan())
    world.set_directory(company(role="viewer"))
    with explained(world.engine) as steps:
        plan = world.plan(selection=Selection.of(organizations, ["ada"]))

    assert plan.total("planned") == 2
    own = {"m", "a", "o", "u", "up", "l", "ledger_item", "plan_item"}
    assert [step for step in steps if step[0].startswith("SCAN") and step[0].split()[1] in own] == []
    assert [step for step in steps if re.match(r"SEARCH l .*\(ledger_id=\? AND kind=\?\)$", step[0])] == []


def test_plan_reads_through_no_organization_for_each_of_its_rows(world, company):
    if not is_sqlite(world.engine):
        pytest.skip("the other database chooses by its statistics, which small tables do not have")
    world.set_directory(company())
    with explained(world.engine) as steps:
        world.apply(world.plan())
        plan = world.plan()

    assert plan.total() == 0
    assert len(steps) > 30
    through = [step for step in steps if step[0].endswith("(organization_id=?)")]
    assert [step for step in through if "model_organization" not in step[0]] == []


@contextmanager
def explained(engine):
    """How the database goes about each statement that runs meanwhile: a step, and the statement."""
    steps: list[tuple[str, str]] = []

    def explain(_connection, cursor, sql, parameters, *rest):
        if rest[-1] or sql.split()[0] not in {"INSERT", "UPDATE", "DELETE", "SELECT"}:
            return
        raw = cursor.connection.cursor()
        steps.extend((row[3], sql) for row in raw.execute(f"EXPLAIN QUERY PLAN {sql}", parameters))

    event.listen(engine, "before_cursor_execute", explain)
    yield steps
    event.remove(engine, "before_cursor_execute", explain)


def test_plan_is_refused_before_the_directory_was_read(world):
    with pytest.raises(PlanningError, match="has not been read yet"):
        world.plan()


def test_plan_is_refused_for_a_ledger_or_an_approval_that_is_not_there(world, new_directory):
    world.set_directory(new_directory())
    with pytest.raises(PlanningError, match="there is no plan gone of this backend"):
        world.plan(approving="gone")
    world.ledger_id += 1
    with pytest.raises(PlanningError, match="there is no ledger"):
        world.plan()


def test_plan_leaves_nothing_behind_when_it_fails(world, new_directory):
    world.set_directory(new_directory().organization("acme"))
    with world.engine.begin() as connection:
        connection.execute(text("ALTER TABLE model_user RENAME TO hidden"))
    with pytest.raises(Exception, match="model_user"):
        world.plan()
    with world.engine.begin() as connection:
        connection.execute(text("ALTER TABLE hidden RENAME TO model_user"))

    assert world.plan().total() == 1


def test_plan_hash_is_the_same_for_the_same_and_another_for_another(world, company):
    world.set_directory(company())
    first, again = world.plan(), world.plan()
    world.set_directory(company(role="viewer"))
    other = world.plan()
    world.set_directory(company())
    back = world.plan()

    assert first.plan_hash == again.plan_hash == back.plan_hash != other.plan_hash
    assert back.revision == first.revision + 2, "the hash is of what is to be done, whatever it was made from"


@pytest.mark.extended
@pytest.mark.slow
def test_plan_needs_no_more_memory_for_more_items(world, new_directory):
    def peak(users):
        directory = new_directory().organization("acme")
        for number in range(users):
            directory.user(f"user-{number}").member("acme", f"user-{number}")
        world.set_directory(directory)
        tracemalloc.start()
        try:
            world.plan()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(10)
    small = peak(10_000)
    assert peak(30_000) < small + 1024 * 1024


def test_plan_orders_and_hashes_alike_on_every_database(world, new_directory):
    directory = new_directory().organization('a"b').organization("Z").organization("ä").organization("b c")
    world.set_directory(directory)

    assert [item for *_, item in world.sent(world.plan())] == ["Z", 'a"b', "b c", "ä"]


def test_plan_quotes_ids_in_scopes(world, new_directory):
    odd = 'it\'s "q" \\ 😀\n'
    world.set_directory(new_directory().organization(odd).folder(odd, odd))

    (scope,) = [item.scope for item in world.items(world.plan()) if item.kind == "folder"]

    assert json.loads(scope) == [odd]


def test_rules_name_operations_of_the_contract():
    assert {rule.operation for rule in RULES} <= {name.lower() for name in vars(operations)}
    assert {rule.operation for rule in RULES if rule.action != "delete"} == set(SETTLES)


def test_plan_of_another_backend_does_not_delete_on_the_word_of_the_first(world, company, new_directory, now):
    world.set_directory(company())
    world.apply(world.plan())
    world.ledger_id = open_ledger(world.engine, "http://elsewhere.example", "key", lambda: now).ledger_id
    world.set_directory(new_directory().organization("acme"))

    assert world.sent(world.plan()) == [("add_organizations", "[]", "", "acme")]


def test_plan_deletes_only_what_the_ledger_holds(world, company, new_directory):
    world.set_directory(company())
    world.apply(world.plan())
    with writing(world.engine) as connection:
        connection.execute(delete(LEDGER_ITEM).where(LEDGER_ITEM.c.kind == "document"))
    world.set_directory(new_directory().organization("acme"))

    assert not [item for item in world.items(world.plan()) if item.kind == "document"]


def test_planning_restarts_after_a_concurrent_write_and_blocks_no_writer(world, company):
    world.set_directory(company())
    other = open_engine(world.engine.url.render_as_string(hide_password=False))
    written: list[bool] = []

    @event.listens_for(world.engine, "before_cursor_execute")
    def write_meanwhile(_connection, _cursor, statement, *_):
        if "TEMPORARY TABLE diff" in statement and not written:
            written.append(True)
            with writing(other) as connection:
                connection.execute(update(LedgerRow).values(ledger_revision=LedgerRow.ledger_revision + 1))

    plan = world.plan()
    event.remove(world.engine, "before_cursor_execute", write_meanwhile)
    other.dispose()
    assert written
    with reading(world.engine) as connection:
        # PostgreSQL's plan has the revision from before the write; SQLite's had to be made again after it.
        ledger_revision = connection.scalar(select(LedgerRow.__table__.c.ledger_revision))
        assert (plan.ledger_revision == ledger_revision) == is_sqlite(connection)
        assert connection.scalar(select(func.count()).select_from(PlanRow)) == 1
