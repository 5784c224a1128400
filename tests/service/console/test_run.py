"""Tests of the page of a run, its items, and failed items: filters, retries, and unusual parameters."""

import json
import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from sqlalchemy import insert, select, update

from app.foundation.database.engine import writing
from app.service.console.run_changes import hold_rows
from app.service.console.run_progress import phase_rows, stage_rows
from app.service.console.settings import Role
from app.service.console.urls import address
from app.sync.ledger.failures import message_digest
from app.sync.ledger.items import ItemKey
from app.sync.ledger.ledger import open_ledger
from app.sync.ledger.tables import CallRow, ItemFailureRow
from app.sync.plan.counts import read_run_counts
from app.sync.plan.parts import PlanPart
from app.sync.plan.tables import PlanItemRow
from app.sync.runs.run import Run, RunRequest, RunStatus
from app.sync.runs.tables import RunRow
from tests.service.console import states
from tests.service.console.conftest import Browser, Office
from tests.service.console.states import (
    applying,
    approved_partial,
    approved_planning,
    broken,
    planned,
    planning,
    previewed,
    refused,
    unread,
)
from tests.service.console.test_pages import HOSTILE, planned_run
from tests.service.console.visitors import add_rows
from tests.worlds.plan_parts import note_parts

ODD = {"hostile": HOSTILE, "long": "ü" * 256, "rtl": "\u202eabc", "tags": "<b>x</b>"}


@pytest.mark.parametrize(
    ("filters", "text"),
    [
        ({"kind": "document"}, "1 item matches."),
        ({"kind": "document", "status": "held", "action": "delete"}, "1 item matches."),
        ({"organization": "acme", "item": "handbook"}, "1 item matches."),
        ({"organization": "other"}, "No item matches"),
        ({"action": "add"}, "No item matches"),
        ({"item": ODD["hostile"]}, "No item matches"),
        ({"organization": ODD["long"]}, "No item matches"),
        ({"item": ODD["rtl"], "organization": ODD["tags"]}, "No item matches"),
        ({"after": "1"}, "Nothing to do"),
    ],
)
def test_query_parameters_filter_items(office: Office, filters: dict[str, str], text: str) -> None:
    run = planned_run(office, item_id="handbook")
    browser = office.browser(Role.VIEWER)
    html = browser.get(address("run", id=run, **filters))
    assert browser.status == 200
    assert text in html
    assert "<script>alert" not in html
    assert "<b>x</b>" not in html


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        ("action=odd", 400),
        ("kind=odd", 400),
        ("item=%00", 404),
        ("organization=%ED%A0%80", 200),
        ("after=x", 404),
        ("after=-1", 404),
        ("scope=everything", 400),
    ],
)
def test_filters_that_cannot_be_lead_on(office: Office, wanted: str, status: int) -> None:
    run = planned_run(office, item_id="handbook")
    browser = office.browser(Role.VIEWER)
    html = browser.get(f"/console/run?id={run}&{wanted}")
    assert browser.status == status
    assert "/console/" in html


def test_a_fragment_has_what_follows_a_run_alone(office: Office) -> None:
    run = planned_run(office, item_id="handbook")
    html = office.browser(Role.VIEWER).get(address("run", id=run), **{"x-fragment": "1"})
    parts = ["head", "facts", "stages", "notices", "progress", "holds", "access", "kinds", "other-holds"]
    parts += ["tabs", "filter", "items", "reported"]
    assert re.findall(r'data-part="([\w-]+)"', html) == [*parts, "ended"]
    assert "data-ended" in html
    assert "<main" not in html


def test_a_fragment_has_the_buttons_of_its_reader_alone(office: Office) -> None:
    run = applying(office)
    approver, viewer = office.browser(Role.APPROVER), office.browser(Role.VIEWER)
    for _ in range(2):
        for browser, cancels in ((approver, True), (viewer, False)):
            html = browser.get(address("run", id=run.run_id), **{"x-fragment": "1"})
            assert ("Cancel the run" in html) == cancels
            assert ("formToken" in html) == cancels
    mine = approver.get(address("run", id=run.run_id), **{"x-fragment": "1"})
    other = office.browser(Role.APPROVER).get(address("run", id=run.run_id), **{"x-fragment": "1"})
    tokens = [re.findall(r'name="formToken" value="(\w+)"', html) for html in (mine, other)]
    assert tokens[0] != tokens[1]


def test_a_fragment_contains_the_items_of_its_page(office: Office) -> None:
    run = applying(office)
    browser = office.browser(Role.VIEWER)
    for wanted, items in (({}, 6), ({"kind": "folder"}, 2), ({"status": "held"}, 2), ({"after": "4"}, 2), ({}, 6)):
        html = browser.get(address("run", id=run.run_id, **wanted), **{"x-fragment": "1"})
        assert html.count("ordinal=") == items, wanted


def test_a_run_shows_the_sources_that_it_could_not_read(office: Office) -> None:
    run = unread(office)
    browser = office.browser(Role.VIEWER)
    html = browser.get(address("run", id=run.run_id))
    text = " ".join(re.sub(r"<[^>]+>", " ", html).split())
    assert "documents could not be read; its changes are not in this run: documents.jsonl: No such file" in text
    assert "people was read partially; it removes nothing: 1 malformed record" in text
    assert "No changes among the records that could be read" in html
    assert "The backend matches the directory" not in html
    assert [stage.state for stage in stage_rows(run, {}) if stage.name == "Read directory"] == ["warning"]
    for page in ("runs", "overview"):
        assert "1 source failed, 1 partial" in browser.get(address(page))


def test_a_preview_shows_that_access_is_lost(office: Office) -> None:
    run = planned(office, dry_run=True)
    report = {"impact": {"gain": 6, "lose": 70_440, "change": 0}}
    values = {"finished_at": office.time(), "report": report}
    office.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.DONE, **values)
    html = office.browser(Role.APPROVER).get(address("run", id=run.run_id))
    assert "Access impact: 70,440 lost, 6 gained." in html
    assert "Applying this, or another sync, takes this access away at once." in html
    assert '<button class="danger">Apply' in html
    assert "Apply 4 changes, hold 2" in html
    assert "no longer in the directory" in html


def test_an_approved_run_shows_no_progress_before_it_applies(office: Office) -> None:
    run = approved_planning(office)
    html = office.browser(Role.VIEWER).get(address("run", id=run.run_id), **{"x-fragment": "1"})
    assert "<progress" not in html
    counts = {
        "folder": {"add": {"planned": 2, "done": 2}},
        "document": {"add": {"planned": 2, "done": 2}, "delete": {"planned": 2, "done": 1}},
    }
    office.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.APPLYING, counts=counts)
    html = office.browser(Role.VIEWER).get(address("run", id=run.run_id), **{"x-fragment": "1"})
    assert "5 of 6 items sent" in html


def test_an_item_has_its_request_and_the_answer_as_text(office: Office) -> None:
    run = planned_run(office, item_id="handbook", message=HOSTILE)
    call = {"run_id": run, "plan_id": "plan", "ledger_id": 1, "operation": "delete_documents", "ordinals": "[1]"}
    response = {"first_ordinal": 1, "code": 400, "tries": 2, "answer": HOSTILE, "sent_at": 0, "settled_at": 1500}
    with writing(office.engine) as connection:
        connection.execute(insert(CallRow).values(**call, **response))
    browser = office.browser(Role.VIEWER)
    html = browser.get(address("item", run=run, ordinal=1))
    assert "/organizations/documents/delete" in html
    assert "not sent yet" in html
    assert "HTTP 400" not in html  # it is held: no call was about it
    with writing(office.engine) as connection:
        connection.execute(update(PlanItemRow).values(status="failed"))
    html = browser.get(address("item", run=run, ordinal=1))
    assert "HTTP 400" in html
    assert "2 tries" in html
    assert "settled after 1.5 s" in html
    assert "<script>alert" not in html
    assert "\u202e" not in html


def test_a_covered_item_links_to_the_item_that_deletes_it(office: Office) -> None:
    run = planned_run(office, item_id="handbook")
    with writing(office.engine) as connection:
        connection.execute(update(PlanItemRow).values(covered_by=7))
    html = office.browser(Role.VIEWER).get(address("item", run=run, ordinal=1))
    assert "The deletion of" in html
    assert "ordinal=7" in html


def parked(office: Office, *messages: str) -> None:
    """One item for each message."""
    ledger = open_ledger(office.engine, "http://backend.test", "key", office.time)
    row = {"ledger_id": ledger.ledger_id, "kind": "folderUser", "organization_id": "acme", "container_id": "specs"}
    row |= {"deleting": False, "fingerprint": "", "failures": 10, "retry_at": 0, "parked": True}
    with writing(office.engine) as connection:
        connection.execute(
            insert(ItemFailureRow),
            [
                row | {"item_id": f"u{number}", "message": message, "message_digest": message_digest(message)}
                for number, message in enumerate(messages)
            ],
        )


def retry(browser: Browser, **form: str | list[str]) -> str:
    """Sends the form of the parked page, which it takes from there."""
    html = browser.get(address("parked"))
    token = html.split('name="formToken" value="', 1)[1].split('"', 1)[0] if "formToken" in html else ""
    browser.answer = browser.client.post(
        "/console/retry", data={"formToken": token, **form}, headers={"Sec-Fetch-Site": "same-origin"}
    )
    return browser.answer.get_data(as_text=True)


def test_chosen_items_alone_are_tried_again(office: Office) -> None:
    parked(office, "no", "no", HOSTILE)
    browser = office.browser(Role.APPROVER)
    key = json.dumps(["folderUser", "acme", "specs", "u1", False])
    for _ in range(2):
        retry(browser, only="1", chosen=[key])
        assert browser.status == 303
    (run,) = office.runs.recent()
    assert (run.retry, run.items, run.organization_ids) == (
        True,
        (ItemKey("folderUser", "acme", "specs", "u1"),),
        ("acme",),
    )
    office.time.move_on(seconds=1)
    retry(browser, message=HOSTILE)
    assert office.runs.recent()[0].items == (ItemKey("folderUser", "acme", "specs", "u2"),)
    office.time.move_on(seconds=1)
    retry(browser, kind="folderUser", organization="acme")
    assert (office.runs.recent()[0].items, office.runs.recent()[0].kinds) == ((), ("folderUser",))
    assert "retries 1 item" in browser.get(address("run", id=run.run_id))


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"only": "1"}, 400),
        ({"chosen": ["[1]"]}, 400),
        ({"chosen": ['["folderUser", "a", "b", "\\ud800", false]']}, 400),
        ({"message": "nobody said so"}, 400),
        ({"kind": "odd"}, 400),
        ({"organization": "\0"}, 404),
    ],
)
def test_a_retry_of_nothing_makes_no_run(office: Office, form: dict[str, str | list[str]], status: int) -> None:
    parked(office, "no")
    browser = office.browser(Role.APPROVER)
    assert "/console/" in retry(browser, **form)
    assert browser.status == status
    assert office.runs.recent() == []


def test_viewers_are_shown_no_choice_and_have_none(office: Office) -> None:
    parked(office, "no")
    browser = office.browser(Role.VIEWER)
    html = browser.get(address("parked", message="no"))
    assert "Retry " not in html
    assert "checkbox" not in html
    retry(browser, kind="folderUser")
    assert browser.status == 403
    assert office.runs.recent() == []


def test_stages_have_a_start_and_a_duration(office: Office) -> None:
    held = office.held_run()
    office.time.move_on(seconds=60)
    stages = stage_rows(held, {"planned": 34, "held": 34})
    assert [(stage.name, stage.state) for stage in stages] == [
        ("Queued", "done"),
        ("Read directory", "done"),
        ("Plan", "done"),
    ]
    assert stages[0].took == 1.0
    office.runs.approve(held.run_id)
    again = office.runs.get(held.run_id)
    assert [(stage.name, stage.state) for stage in stage_rows(again, {})] == [
        ("Approved", "queued"),
        ("Read directory", "coming"),
        ("Plan", "coming"),
        ("Apply", "coming"),
    ]
    assert again.stages[-1].at - again.stages[-2].at == timedelta(seconds=60)


def test_stages_of_a_run_that_verifies_have_their_own_times(office: Office) -> None:
    def take(seconds: int, status: RunStatus, to: RunStatus) -> Run:
        office.time.move_on(seconds=seconds)
        return office.runs.move(run.run_id, status, to)

    run, _ = office.runs.enqueue(RunRequest(trigger="schedule", verify=True))
    take(1, RunStatus.QUEUED, RunStatus.READING)
    take(2, RunStatus.READING, RunStatus.PLANNING)
    verifying = take(3, RunStatus.PLANNING, RunStatus.VERIFYING)
    assert [(stage.name, stage.state) for stage in stage_rows(verifying, {})] == [
        ("Queued", "done"),
        ("Read directory", "done"),
        ("Reading backend", "verifying"),
        ("Plan", "coming"),
        ("Apply", "coming"),
    ]
    take(100, RunStatus.VERIFYING, RunStatus.PLANNING)
    take(5, RunStatus.PLANNING, RunStatus.APPLYING)
    done = take(7, RunStatus.APPLYING, RunStatus.DONE)
    assert [(stage.name, stage.took) for stage in stage_rows(done, {})] == [
        ("Queued", 1.0),
        ("Read directory", 2.0),
        ("Read backend", 100.0),
        ("Plan", 5.0),
        ("Apply", 7.0),
    ]


def test_dry_run_has_stages_to_come_except_the_last(office: Office) -> None:
    run, _ = office.runs.enqueue(RunRequest(trigger="schedule", dry_run=True))
    assert [(stage.name, stage.state) for stage in stage_rows(run, {})] == [
        ("Queued", "queued"),
        ("Read directory", "coming"),
        ("Plan", "coming"),
    ]


def test_phases_are_sent_one_after_the_other(office: Office) -> None:
    run, _ = office.runs.enqueue(RunRequest(trigger="schedule"))
    counts = {
        "document": {"add": {"planned": 4, "done": 4}, "update": {"planned": 6, "done": 3, "failed": 1}},
        # With what was sent before its deletes were approved.
        "folder": {"delete": {"planned": 5, "done": 3}},
        # Held and parked items are not sent.
        "group": {"delete": {"planned": 3, "held": 3}, "update": {"planned": 3, "done": 1, "parked": 1}},
    }
    run = office.runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, counts=counts)
    parts = [
        PlanPart(1, 4, 30, "document", "add", "add_documents"),
        PlanPart(5, 7, 31, "document", "update", "update_documents"),
        PlanPart(8, 10, 32, "document", "update", "move_documents"),
        PlanPart(11, 12, 20, "group", "update", "update_group"),
        PlanPart(13, 13, 21, "group", "update", "update_group"),
        PlanPart(14, 16, 160, "folder", "delete", "delete_folder"),
        PlanPart(17, 19, 170, "group", "delete", "delete_group"),
    ]
    assert [(row.name, row.sent, row.to_send) for row in phase_rows(run, parts)] == [
        ("Add folders", 1, 2),
        ("Add documents", 4, 4),
        ("Update documents", 3, 3),
        ("Move documents", 1, 3),
        ("Delete folders", 1, 3),
    ]


def test_limits_are_shown_in_short_form() -> None:
    limits = {
        ("delete_count", 1_000_000): "limit 1,000,000 deletes",
        ("delete_percent", 20.0): "limit 20 %",
        ("delete_percent", 12.5): "limit 12.5 %",
        ("covers_held", None): "contains held items",
        ("organization", None): "deleting an organization always asks",
        ("", None): "over the limits",
    }
    rows = hold_rows([{"kind": "document", "limit": limit, "allowed": allowed} for limit, allowed in limits] + ["odd"])
    assert [row.over for row in rows] == list(limits.values())
    assert hold_rows([{"kind": "document", "reason": "of an older version"}])[0].over == "over the limits"
    covering = "240 documents would take along 64 document members that are held: ask"
    rows = hold_rows(
        [{"kind": "groupMember"}, {"kind": "document", "limit": "covers_held", "allowed": None, "reason": covering}]
    )
    assert [(row.kind, row.over) for row in rows] == [
        ("document", "contains 64 document members that are held"),
        ("groupMember", "over the limits"),
    ]
    unread = {"kind": "folder", "limit": "foreign", "reason": "the contents of folder specs cannot be read: ask"}
    assert [row.over for row in hold_rows([unread, unread | {"reason": "folder specs contains 1 document: ask"}])] == [
        "the contents cannot be read",
        "contains other items",
    ]
    assert hold_rows(None) == []


@pytest.mark.parametrize(
    ("status", "numbers", "state"),
    [
        (RunStatus.DONE, {"done": 3}, "done"),
        (RunStatus.PARTIAL, {"done": 3, "failed": 1}, "partial"),
        (RunStatus.HELD, {"failed": 3}, "failed"),
        (RunStatus.FAILED, {}, "failed"),
    ],
)
def test_the_stage_that_applies_shows_whether_it_succeeded(
    office: Office, status: RunStatus, numbers: dict[str, int], state: str
) -> None:
    run = applying(office)
    # The status is moved a moment after the end is noted.
    finished_at = office.time()
    office.time.move_on(seconds=0.001)
    ended = office.runs.move(run.run_id, RunStatus.APPLYING, status, finished_at=finished_at)
    assert [row.state for row in stage_rows(ended, numbers) if row.name == "Apply"] == [state]


def test_an_approved_run_lists_and_counts_the_items_of_its_second_plan(office: Office) -> None:
    run = approved_partial(office)
    text = text_of(office.browser(Role.VIEWER).get(address("run", id=run.run_id)))
    assert "All 6" in text
    assert "Held 2" in text
    assert "Failed" not in text
    assert "Before the approval, this run settled 5 other items: 5 done, 4 failed." in text


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html.partition("<main")[2]).split())


def test_a_failed_run_states_its_cause_and_that_nothing_was_changed(office: Office) -> None:
    run = refused(office)
    html = office.browser(Role.VIEWER).get(address("run", id=run.run_id))
    text = text_of(html)
    assert "The backend refuses the credentials: The API key is suspended. Nothing was changed in the backend." in text
    assert "Each sync fails until the settings have valid credentials: set backend.api_key and" in text
    assert "tries again" not in text
    assert "add_documents: UNAUTHENTICATED" in text
    assert "Find the cause" not in text
    assert "Planned changes" in text
    assert "Changes in the backend" not in text
    assert re.search(r"Apply [\d.]+ s, nothing sent", text)
    assert "The API key is suspended" in text_of(office.browser(Role.VIEWER).get(address("runs")))


def test_a_failed_run_counts_what_it_had_changed(office: Office) -> None:
    text = text_of(office.browser(Role.VIEWER).get(address("run", id=broken(office).run_id)))
    assert "3 items had been changed in the backend. The next sync tries the others again." in text
    assert "Find the cause" in text


def test_a_sentence_about_one_page_of_items_is_about_that_page(office: Office) -> None:
    run = planned(office)
    with writing(office.engine) as connection:
        rows = [dict(row._mapping) for row in connection.execute(select(PlanItemRow.__table__))][:1]
        more = [rows[0] | {"ordinal": ordinal, "item_id": f"more-{ordinal}"} for ordinal in range(7, 31)]
        connection.execute(insert(PlanItemRow.__table__), more)
        connection.execute(update(PlanItemRow).values(reason="it is new"))
    browser = office.browser(Role.VIEWER)
    page = text_of(browser.get(address("run", id=run.run_id)))
    assert "The items on this page are in Acme acme and have the same reason: it is new." in page
    assert "All items are in" not in page
    assert page.count("more-") == 14  # 20 items in all
    whole = text_of(
        browser.get(address("run", id=run.run_id, item="more-7"))
        + browser.get(address("run", id=run.run_id, status="held"))
    )
    assert "All items are in Acme acme" in whole
    assert "on this page" not in whole


MEMBER = {"phase": 50, "action": "add", "kind": "organizationUser", "operation": "add_users", "container_id": ""}
HANDBOOK = {"phase": 60, "kind": "documentUser", "container_id": "handbook", "action": "add", "operation": "add_users"}
LEFT = {"phase": 120, "action": "delete", "kind": "documentUser", "operation": "delete_users"}


def _ended(office: Office, rows: list[dict[str, Any]], status: RunStatus = RunStatus.DONE, **values: Any) -> Run:
    """A run with these items of users, which are done unless they have another status."""
    run = planning(office)
    row = {"plan_id": run.run_id, "organization_id": "acme", "scope": "[]", "reason": "so", "status": "done"}
    rows = [row | {"ordinal": ordinal} | each for ordinal, each in enumerate(rows, 1)]
    add_rows(office, PlanItemRow, rows)
    with writing(office.engine) as connection:
        note_parts(connection, run.run_id)
        values["counts"] = read_run_counts(connection, run.run_id)
    values |= {"plan_id": run.run_id, "finished_at": office.time()}
    return office.runs.move(run.run_id, RunStatus.PLANNING, status, **values)


def test_items_name_their_causes(office: Office) -> None:
    run = states.caused(office)
    html = office.browser(Role.VIEWER).get(address("run", id=run.run_id))
    items = text_of("<main " + html.partition('id="items"')[2])
    for cause in (
        "role unknown → viewer people: directory.yaml:9",
        "role editor → viewer , name Eve → Ada people: directory.yaml:8",
        "folder none → specs people: directory.yaml:11",
        "ada folder specs granted to group eng, which the user joins",
        "no grant on the folder any more: the user leaves group eng , ops",
        "no grant on the folder any more removed in people",
        "the user is no longer in the directory 13 done delete",
        "the grant to the user expired on 2026-11-01 Runs are kept",
    ):
        assert cause in items, (cause, items)
    assert items.count("which the user joins") == 1
    users = text_of("<main " + html.partition('aria-label="Changed users"')[2])
    assert "ada" in users
    assert "editor → viewer in the organization" in users


def test_items_with_one_reason_and_different_groups_name_their_own(office: Office) -> None:
    left = LEFT | {"kind": "groupMember", "container_id": "eng", "item_id": "dan"}
    gone = LEFT | {"kind": "folderUser", "container_id": "specs", "reason": "no grant on the folder any more"}
    run = _ended(office, [left, gone | {"item_id": "dan"}, gone | {"item_id": "eve"}])
    text = text_of(office.browser(Role.VIEWER).get(address("run", id=run.run_id, kind="folderUser")))
    assert "have the same reason" not in text
    assert text.count("the user leaves group eng") == 1


def test_the_findings_of_a_verify_and_unknown_ids_are_sentences(office: Office) -> None:
    found = {"seen": 4, "missing": 0, "adopted": 2, "foreign": {"group": 1}, "notRead": ["folder", "group"]}
    report = {"verify": found, "unknown": {"organizationIds": [], "userIds": ["nobody"], "count": 1}}
    run = _ended(office, [MEMBER | {"item_id": "ada"}], report=report)
    with writing(office.engine) as connection:
        of_run = RunRow.__table__.c.run_id == run.run_id
        connection.execute(update(RunRow.__table__).where(of_run).values(user_ids='["ada", "nobody"]'))
    text = text_of(office.browser(Role.VIEWER).get(address("run", id=run.run_id)))
    assert "1 user and 1 unknown id" in text
    assert "1 id is in neither the directory nor the backend, so nothing was done about it: nobody ." in text
    assert "2 items existed already. Usher keeps them in step from now on." in text
    assert "1 item did not come from Usher and was left alone: 1 group ." in text
    assert "The backend cannot list its folders and groups , so this run did not compare them." in text
    assert "Further reports" not in text
    assert "1 user and 1 unknown id" in text_of(office.browser(Role.VIEWER).get(address("runs")))


def test_a_run_that_has_ended_shows_who_gained_and_lost_entries(office: Office) -> None:
    rows = [MEMBER | {"item_id": "ada"}, *(HANDBOOK | {"item_id": each} for each in ("ada", "bob"))]
    rows += [LEFT | {"item_id": "dan", "container_id": f"d{number}"} for number in range(5)]
    rows += [LEFT | {"item_id": "dan", "container_id": "held", "status": "held"}]
    run = _ended(office, rows)
    browser = office.browser(Role.VIEWER)
    html = browser.get(address("run", id=run.run_id))
    text = text_of(html)
    assert "1 user lost 5 entries 2 users gained 3 entries" in text
    assert "the access behind the 1 held delete has ended already" in text
    assert "dan so 5 0 lost document d0 , lost document d1 , lost document d2 and 2 more" in text
    assert "0 2 gained membership, gained document Handbook handbook" in text
    assert text.index("Entries gained and lost") < text.index("Changes in the backend")
    assert "Who gained and lost access" not in text
    assert "Users whose entries" not in text
    link = re.search(r'href="([^"]+)">5</a>', html)
    assert link is not None
    assert "5 items match" in browser.get(unescape(link[1]))
    overview = text_of(browser.get(address("overview")))
    assert "5 entries lost 3 gained" in overview
    assert "5 lost, 3 gained An entry is" in overview


def test_a_run_that_has_ended_shows_changed_access_types(office: Office) -> None:
    of_access = {"phase": 33, "action": "update", "kind": "document", "operation": "update_document_access"}
    row = of_access | {"container_id": "", "was": '{"parentId":"","accessType":"public"}'}
    run = _ended(office, [row | {"item_id": "handbook"}, row | {"item_id": "new", "was": ""}])
    html = office.browser(Role.VIEWER).get(address("run", id=run.run_id))
    assert "1 document got another access type. Users without an entry have gained or lost access to it" in text_of(
        html
    )
    folder = row | {"phase": 22, "kind": "folder", "operation": "update_folder_access", "item_id": "archive"}
    again = _ended(office, [folder, row | {"item_id": "handbook"}])
    text = text_of(office.browser(Role.VIEWER).get(address("run", id=again.run_id)))
    assert "1 folder and 1 document got another access type." in text
    assert "gained or lost access to them as well" in text


def test_planned_numbers_of_a_run_are_not_shown_as_done(office: Office) -> None:
    run = _ended(office, [HANDBOOK | {"item_id": each, "status": "waiting"} for each in ("ada", "bob")])
    text = text_of(office.browser(Role.VIEWER).get(address("run", id=run.run_id)))
    assert "No user gained or lost an entry in the backend." in text
    assert "Planned changes" in text
    assert "Users whose entries the plan changes" in text
    assert "Changes in the backend" not in text


def test_entries_of_a_large_run_are_only_counted(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _ended(office, [HANDBOOK | {"item_id": each} for each in ("ada", "bob", "cleo")])
    monkeypatch.setattr("app.service.console.changed_entries.MAX_ENTRIES", 2)
    text = text_of(office.browser(Role.VIEWER).get(address("run", id=run.run_id)))
    assert "3 entries of users added" in text
    assert "user gained" not in text


def test_the_first_sync_is_one_sentence(office: Office) -> None:
    rows = [HANDBOOK | {"item_id": each} for each in ("ada", "bob")]
    run = _ended(office, rows, report={"verify": {"seen": 0, "missing": 0}})
    text = text_of(office.browser(Role.VIEWER).get(address("run", id=run.run_id)))
    assert "The backend was empty. This sync added 2 entries of users to the backend." in text
    again = _ended(office, rows, report={"verify": {"seen": 0, "missing": 2}})
    assert "2 users gained 2 entries" in text_of(office.browser(Role.VIEWER).get(address("run", id=again.run_id)))


def test_a_verify_names_the_kinds_of_differences(office: Office) -> None:
    for report, shown in (
        ({"missing": 14, "changed": 2, "undeleted": 0}, "14 missing, 2 different among 9,000 items of the backend"),
        ({"undeleted": 1}, "1 not deleted among"),
        ({}, "no differences among 9,000 items"),
    ):
        run = _ended(office, [MEMBER | {"item_id": "ada"}], report={"verify": {"seen": 9_000, **report}})
        assert shown in text_of(office.browser(Role.VIEWER).get(address("run", id=run.run_id)))


def test_a_run_begins_with_what_it_sent_and_folds_what_waits(office: Office) -> None:
    hold = {"kind": "documentUser", "organizationId": "acme", "deletes": 2, "ledger": 9, "limit": "delete_count"}
    kept = [LEFT | {"item_id": each, "container_id": "x", "status": "held"} for each in ("dan", "eve")]
    until = {"held_at": office.time(), "held_until": office.time() + timedelta(days=7), "report": {"held": [hold]}}
    first = _ended(office, [*kept, HANDBOOK | {"item_id": "ada"}], RunStatus.HELD, **until)
    browser = office.browser(Role.VIEWER)
    assert "<details><summary>2 deletes" not in browser.get(address("run", id=first.run_id))
    failed = {"item_id": "bob", "status": "failed", "message": "no"}
    run = _ended(office, [*kept, HANDBOOK | {"item_id": "ada"}, HANDBOOK | failed], RunStatus.HELD, **until)
    html = browser.get(address("run", id=run.run_id))
    assert "<details><summary>2 deletes, as many as the" in html
    # After a decision about those of the run before, they are others.
    office.runs.approve(first.run_id)
    assert "<details><summary>2 deletes" not in browser.get(address("run", id=run.run_id))
    assert html.index("Changes in the backend") < html.index("Deletes that wait for approval")
    items = html.partition('data-part="items"')[2]
    assert re.findall(r"ordinal=(\d+)", items) == ["4", "3"]
    assert "Not sent by this run: 2 held" in text_of("<main" + items)
    assert ">Sent 2</a>" in html
    for query, ordinals in (({"status": "all"}, ["1", "2", "3", "4"]), ({"status": "held"}, ["1", "2"])):
        items = browser.get(address("run", id=run.run_id, **query)).partition('data-part="items"')[2]
        assert re.findall(r"ordinal=(\d+)", items) == ordinals
        assert "Not sent by" not in items


def test_of_many_sent_items_the_first_are_shown(office: Office) -> None:
    kept = LEFT | {"item_id": "dan", "container_id": "x", "status": "held"}
    run = _ended(office, [kept, *(HANDBOOK | {"item_id": f"u{number:02}"} for number in range(30))])
    browser = office.browser(Role.VIEWER)
    items = browser.get(address("run", id=run.run_id)).partition('data-part="items"')[2]
    assert items.count("ordinal=") == 20
    link = re.search(r'href="([^"]+)#items">Next page', items)
    assert link is not None
    rest = browser.get(unescape(link[1])).partition('data-part="items"')[2]
    assert re.findall(r"ordinal=(\d+)", rest) == [str(number) for number in range(22, 32)]


@pytest.mark.parametrize("failed", [19, 20, 21])
def test_the_items_that_were_sent_continue_on_the_next_page(office: Office, failed: int) -> None:
    run = planned_run(office, item_id="handbook")
    rows = [{"ordinal": number, "status": "failed" if number <= failed + 1 else "done"} for number in range(2, 40)]
    with writing(office.engine) as connection:
        item = dict(connection.execute(select(PlanItemRow.__table__)).mappings().one())
        connection.execute(insert(PlanItemRow.__table__), [item | row for row in rows])
    counts = {"document": {"delete": {"planned": 39, "held": 1, "failed": failed, "done": 38 - failed}}}
    office.runs.update(run, RunStatus.HELD, counts=counts)
    html = office.browser(Role.VIEWER).get(address("run", id=run))
    assert "Sent 38<" in html
    following: dict[int, dict[str, Any]] = {
        19: {"status": "done", "after": 21},
        20: {"status": "done"},
        21: {"status": "failed", "after": 21},
    }
    assert f'href="{address("run", id=run, **following[failed])}#items">Next page' in unescape(html)


def test_an_applied_preview_begins_with_what_was_applied(office: Office) -> None:
    preview = previewed(office)
    browser = office.browser(Role.VIEWER)
    assert 'aria-current="true">To apply 4</a>' in browser.get(address("run", id=preview.run_id))
    # A filter shows items of every status.
    assert 'aria-current="true">All</a>' in browser.get(address("run", id=preview.run_id, action="delete"))
    run, _ = office.runs.enqueue(RunRequest(trigger="console", plan_id=preview.plan_id, alone=True))
    office.runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, started_at=office.time())
    office.runs.move(run.run_id, RunStatus.READING, RunStatus.PLANNING, plan_id=preview.plan_id)
    office.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.PARTIAL, finished_at=office.time())
    with writing(office.engine) as connection:
        items = PlanItemRow.__table__.c
        for status, ordinals in (("done", (1, 2, 3)), ("failed", (4,))):
            connection.execute(update(PlanItemRow).where(items.ordinal.in_(ordinals)).values(status=status))
    html = browser.get(address("run", id=preview.run_id))
    assert ">Planned 4</a>" in html
    assert " to apply" not in html
    items_shown = html.partition('data-part="items"')[2]
    assert re.findall(r"ordinal=(\d+)", items_shown) == ["4", "1", "2", "3"]


def test_the_items_of_a_run_repeat_no_message(office: Office) -> None:
    messages = ("too long", "too long", "locked", "too long")
    rows = [HANDBOOK | {"item_id": f"u{n}", "status": "failed", "message": each} for n, each in enumerate(messages)]
    html = office.browser(Role.VIEWER).get(address("run", id=_ended(office, rows).run_id))
    items = text_of("<main" + html.partition('data-part="items"')[2])
    assert re.findall("too long|locked|as above", items) == ["too long", "as above", "locked", "too long"]
