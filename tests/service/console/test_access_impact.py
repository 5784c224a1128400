"""Whose access a preview changes: by organization, by effect, and all users and resources of one change."""

import json
import re
from html import unescape

import pytest
from sqlalchemy import delete, update

from app.foundation.database.engine import writing
from app.service.console.settings import Role
from app.service.console.urls import address
from app.sync.plan.tables import PlanAccessRow, PlanRow
from app.sync.runs.run import Run, RunRequest, RunStatus
from tests.service.console import states
from tests.service.console.conftest import Office
from tests.service.console.test_pages import HOSTILE
from tests.service.console.visitors import add_rows

USERS = ["ada", HOSTILE, *(f"u{number:03}" for number in range(118))]


def _preview(office: Office) -> Run:
    """120 users lose two documents, Bob gains one, and Cleo's role changes in another organization."""
    run = states.planned(office, dry_run=True)
    report = {"impact": {"lose": 240, "gain": 1, "change": 1}}
    office.runs.update(run.run_id, RunStatus.PLANNING, report=report)
    row = {"plan_id": run.plan_id, "organization_id": "acme", "kind": "document", "names": "{}"}
    one = {"users": 1, "resources": 1, "pairs": 1, "resource_ids": '["handbook"]'}
    grant = {"kind": "grant", "organizationId": "acme", "documentId": "handbook", "userId": "bob", "expiresAt": 0}
    why = json.dumps({"users": {}, "resources": {}, "causes": [["added", grant]]})
    many = {"users": 120, "resources": 2, "pairs": 240, "user_ids": json.dumps(USERS)}
    names = json.dumps({"users": {"ada": "Ada of the plan"}, "resources": {}})
    lost = {"ordinal": 1, "before": "editor", "after": "", "resource_ids": '["handbook", "roadmap"]', "names": names}
    rows = [
        row | many | lost,
        row | one | {"ordinal": 2, "before": "", "after": "viewer", "user_ids": '["bob"]', "names": why},
        row | one | {"ordinal": 3, "before": "editor", "after": "viewer", "user_ids": '["cleo"]'},
    ]
    rows[2]["organization_id"] = "else"
    add_rows(office, PlanAccessRow, rows)
    return run


def _text(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html.partition("<main")[2])).split())


def test_the_run_page_and_the_list_name_users_and_resources(office: Office) -> None:
    run = _preview(office)
    browser = office.browser(Role.VIEWER)
    text = _text(browser.get(address("run", id=run.run_id)))
    lost, gained = "120 users would lose access to 2 documents", "1 user would gain access to 1 document"
    assert -1 < text.find(lost) < text.find(gained) < text.find("1 user would change editor → viewer on")
    for path in (address("run", id=run.run_id), address("access_impact", run=run.run_id)):
        html = browser.get(path)
        text = _text(html)
        assert "<script>alert" not in html
        assert "u050" not in html  # of many ids, only the first are read
        assert "Acme acme lose access 120 users, 2 documents gain access 1 user, 1 document" in text
        assert "120 users would lose access to 2 documents" in text
        assert "All of these are in" not in text
    assert "loses editor" in text
    assert "gains viewer Bob bob document Handbook handbook" in text
    assert "editor → viewer" in text
    assert "Ada [bold]Lovelace[/bold]" in text or "Ada of the plan" in text
    assert "and 117 more" in text
    assert address("access_change", run=run.run_id, ordinal=1).replace("&", "&amp;") in html
    of_one = _text(browser.get(address("access_impact", run=run.run_id, organization="else")))
    assert "All of these are in else" in of_one


def test_changes_of_access_have_their_causes_and_lead_to_explain(office: Office) -> None:
    run = _preview(office)
    browser = office.browser(Role.VIEWER)
    question = {"type": "document", "resource": "handbook", "organization": "acme"}
    links = {user: address("explain", user=user, **question).replace("&", "&amp;") for user in ("ada", "bob")}
    html = browser.get(address("access_change", run=run.run_id, ordinal=2))
    cause = "Why grant added: document Handbook handbook , user Bob bob , ends 1970-01-01 00:00:00 UTC Users"
    assert cause in _text(html)
    assert f'href="{links["bob"]}">access today</a>' in html
    assert "1 user would gain access to 1 document From no access to viewer, in Acme" in _text(html)
    # Each user and each resource leads to Explain, and the cause names the user whose it is.
    html = browser.get(address("access_change", run=run.run_id, ordinal=1))
    assert html.count(">access today</a>") == 50 + 2
    assert f'href="{links["ada"]}">' in html
    assert "120 users would lose access to 2 documents From editor to no access, in Acme" in _text(html)
    assert re.search(
        r"Why The cause for \S.* on Handbook handbook \. The others may have causes of their own\.",
        _text(html),
    )


def test_an_access_impact_states_that_its_plan_is_outdated(office: Office) -> None:
    run = _preview(office)
    office.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.DONE, finished_at=office.time())
    browser = office.browser(Role.VIEWER)
    assert "cannot be applied" not in browser.get(address("access_impact", run=run.run_id))
    with writing(office.engine) as connection:
        connection.execute(update(PlanRow.__table__).values(ledger_id=99))
    html = browser.get(address("access_impact", run=run.run_id))
    assert "so this plan cannot be applied" in html
    assert 'class="state bad"' not in html


def test_the_largest_changes_come_first(office: Office) -> None:
    run = _preview(office)
    with writing(office.engine) as connection:
        of_cleo = PlanAccessRow.__table__.c.ordinal == 3
        connection.execute(update(PlanAccessRow).where(of_cleo).values(users=900, pairs=900))
    browser = office.browser(Role.VIEWER)
    html = browser.get(address("access_impact", run=run.run_id))
    table = _text(html.partition('aria-label="Changes of access"')[2].join(("<main", "")))
    assert table.index("editor → viewer") < table.index("loses editor") < table.index("gains viewer")
    second = browser.get(address("access_impact", run=run.run_id, after=3))
    assert "editor → viewer" not in second.partition('id="changes"')[2]
    assert "loses editor" in second


def test_the_numbers_of_a_large_preview_are_lower_bounds(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _preview(office)
    monkeypatch.setattr("app.sync.plan.affected_users._MAX_COUNTED_ROWS", 2)
    text = _text(office.browser(Role.VIEWER).get(address("access_impact", run=run.run_id)))
    assert "at least 120 users would lose access to at least 2 documents" in text
    assert re.search(
        "Acme acme lose access at least 120 users, at least 2 documents gain access (at least )?1 user", text
    )


def test_a_run_shows_the_access_impact_of_the_preview_that_it_applied(office: Office) -> None:
    preview = _preview(office)
    office.runs.move(preview.run_id, RunStatus.PLANNING, RunStatus.DONE, finished_at=office.time())
    run, _ = office.runs.enqueue(RunRequest(trigger="console", plan_id=preview.plan_id, alone=True))
    browser = office.browser(Role.VIEWER)
    assert "Who gained and lost access" not in browser.get(address("run", id=run.run_id))
    office.runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, started_at=office.time())
    office.runs.move(run.run_id, RunStatus.READING, RunStatus.PLANNING, plan_id=preview.plan_id)
    office.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.DONE, finished_at=office.time())
    text = _text(browser.get(address("run", id=run.run_id)))
    assert "120 users lost access to 2 documents" in text
    assert "1 user changed editor → viewer on 1 document" in text
    for path in (address("access_impact", run=run.run_id), address("access_change", run=run.run_id, ordinal=1)):
        assert "Sync of " in browser.get(path)
        assert browser.status == 200


def _restructuring(office: Office) -> Run:
    """A folder becomes restricted, users leave a group, one loses a grant, and two leave the directory."""
    run = states.planned(office, dry_run=True)
    office.runs.update(run.run_id, RunStatus.PLANNING, report={"impact": {"lose": 9, "gain": 1, "change": 1}})
    folder = {"kind": "folder", "organizationId": "acme", "folderId": "specs", "accessType": "restricted"}
    grant = {"kind": "grant", "organizationId": "acme", "documentId": "handbook", "accessRole": "viewer"}
    role = {"kind": "membership", "organizationId": "acme", "userId": "bob", "accessRole": "viewer"}
    member = {"kind": "groupMember", "organizationId": "acme", "organizationUserGroupId": "eng"}
    causes: list[tuple[str, list[str], list[str], list[tuple[str, dict[str, str]]]]] = [
        ("acme", ["ada", "bob"], ["specs-1", "specs-2"], [("changed", folder)]),
        # The role of the first user is not why both lose access.
        ("acme", ["bob", "cleo"], ["specs-1"], [("changed", role), ("changed", folder)]),
        (
            "acme",
            ["dan"],
            ["roadmap"],
            [("removed", grant | {"userId": "dan"}), ("removed", member | {"userId": "dan"})],
        ),
        ("acme", ["eve"], ["roadmap"], [("removed", member | {"userId": "eve"})]),
        ("acme", ["fay"], ["handbook"], [("removed", grant | {"userId": "fay"})]),
        ("acme", ["gone-1"], ["handbook"], [("removed", {"kind": "user", "userId": "gone-1", "email": "g@1"})]),
        ("else", ["gone-2"], ["other"], [("removed", {"kind": "user", "userId": "gone-2"})]),
        ("else", ["hal"], ["other"], []),
        *(
            ("acme", ["ida"], [each], [("removed", {"kind": "document", "organizationId": "acme", "documentId": each})])
            for each in ("old-1", "old-2")
        ),
    ]
    rows = [
        {
            "plan_id": run.plan_id,
            "ordinal": ordinal,
            "organization_id": organization_id,
            "kind": "document",
            "before": "" if user_ids == ["eve"] else "editor",
            "after": "viewer" if user_ids in (["eve"], ["fay"]) else "",
            "users": len(user_ids),
            "resources": len(resource_ids),
            "pairs": len(user_ids) * len(resource_ids),
            "user_ids": json.dumps(user_ids),
            "resource_ids": json.dumps(resource_ids),
            "names": json.dumps({"causes": of_row}),
        }
        for ordinal, (organization_id, user_ids, resource_ids, of_row) in enumerate(causes, 1)
    ]
    add_rows(office, PlanAccessRow, rows)
    return run


def test_changes_of_access_are_grouped_by_their_cause(office: Office) -> None:
    run = _restructuring(office)
    browser = office.browser(Role.VIEWER)
    for path in (address("run", id=run.run_id), address("access_impact", run=run.run_id)):
        html = browser.get(path)
        table = html.partition('aria-label="Changes of access by cause"')[2].partition("</table>")[0]
        rows = [_text("<main" + row) for row in table.split("<tr>")[2:]]
        users, one, it = "Ada [bold]Lovelace[/bold] ada , Bob bob , Cleo cleo", "1 user", "1 document"
        assert rows == [
            f"folder changed: folder specs , access type restricted {users} lose access 3 users , 2 documents Acme",
            "users removed gone-1 , gone-2 lose access 2 users , 2 documents several",
            f"group member removed: group eng dan , eve lose access {one} , {it} gain access {one} , {it} Acme",
            "documents removed ida lose access 1 user , 2 documents Acme",
            f"grant removed: document Handbook handbook , role viewer , user fay editor → viewer {one} , {it} Acme",
            "causes not stored hal lose access 1 user , 1 document else",
        ]
        assert f'href="{address("access_impact", run=run.run_id, cause=3).replace("&", "&amp;")}">1 user</a>' in table
    html = browser.get(address("access_impact", run=run.run_id, cause=1))
    text = _text(html)
    assert "3 users would lose access to 2 documents" in text
    assert "2 changes, most users times resources first" in text
    shown = re.findall(r"access-change\?run=[^&]+&amp;ordinal=(\d+)", html)
    assert sorted(set(shown)) == ["1", "2"]
    assert address("access_impact", run=run.run_id) in html


def test_causes_of_a_large_preview_have_lower_bounds(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _restructuring(office)
    monkeypatch.setattr("app.sync.plan.affected_users._MAX_COUNTED_ROWS", 2)
    monkeypatch.setattr("app.sync.plan.affected_users.NAMED_ROWS", 4)
    text = _text(office.browser(Role.VIEWER).get(address("run", id=run.run_id)))
    assert "lose access at least 2 users , at least 2 documents Acme" in text
    assert "causes not stored lose access at least 1 user , at least 1 document editor → viewer at least 1 user" in text


def test_a_sync_names_the_users_and_resources_of_its_preview(office: Office) -> None:
    run = _preview(office)
    office.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.DONE, finished_at=office.time())
    text = _text(office.browser(Role.APPROVER).get(address("sync")))
    assert "120 users would lose access to 2 documents" in text
    assert "access" in text
    assert "accesses" not in text


@pytest.mark.parametrize(
    ("filters", "shown"),
    [
        ({"effect": "gain"}, {"gains viewer"}),
        ({"effect": "lose"}, {"loses editor"}),
        ({"organization": "else"}, {"editor → viewer"}),
        ({"organization": "else", "effect": "gain"}, set()),
        ({"after": "1"}, {"gains viewer", "editor → viewer"}),
    ],
)
def test_changes_are_filtered(office: Office, filters: dict[str, str], shown: set[str]) -> None:
    run = _preview(office)
    html = office.browser(Role.VIEWER).get(address("access_impact", run=run.run_id, **filters))
    html = html.partition('id="changes"')[2]
    assert {words for words in ("gains viewer", "loses editor", "editor → viewer") if words in html} == shown
    assert ("No change matches" in html) == (not shown)
    if filters == {"effect": "gain"}:
        assert "1 of 3 changes: who gains access, most users" in _text("<main" + html)


def test_all_users_of_a_change_are_listed_page_by_page(office: Office) -> None:
    run = _preview(office)
    browser = office.browser(Role.VIEWER)
    path: str | None = address("access_change", run=run.run_id, ordinal=1)
    seen: list[str] = []
    while path is not None:
        html = browser.get(path)
        assert "120 users" in _text(html)
        assert "Roadmap" in html
        users = html.partition("Users ")[2].partition("Resources ")[0]
        seen += [unescape(found) for found in re.findall(r"/console/user\?id=([^&\"]+)", users)]
        link = re.search(r'href="([^"]*)">Next page', users)
        path = unescape(link[1]) if link else None
    assert len(seen) == len(set(seen)) == 120
    assert seen[0] == "ada"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("access-impact?run=nobody", 404),
        ("access-impact?run={run}&effect=odd", 400),
        ("access-impact?run={run}&organization=%00", 404),
        ("access-impact?run={run}&after=x", 404),
        ("access-impact?run={run}&cause=x", 404),
        ("access-impact?run={run}&cause=3", 404),
        ("access-impact?run={sync}", 404),
        ("access-change?run={run}&ordinal=9", 404),
        ("access-change?run={run}", 404),
        ("access-change?run={run}&ordinal=1&users=x", 404),
        ("access-change?run={run}&ordinal=1&users=999999999", 200),
    ],
)
def test_missing_records_are_an_error_page(office: Office, path: str, status: int) -> None:
    run, sync = _preview(office), states.done(office)
    browser = office.browser(Role.VIEWER)
    html = browser.get("/console/" + path.format(run=run.run_id, sync=sync.run_id))
    assert browser.status == status
    assert "Traceback" not in html


def test_a_run_that_applied_a_preview_without_a_comparison_has_no_access_impact(office: Office) -> None:
    preview = _preview(office)
    with writing(office.engine) as connection:
        connection.execute(delete(PlanAccessRow))
    run, _ = office.runs.enqueue(RunRequest(trigger="console", plan_id=preview.plan_id))
    office.runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, started_at=office.time())
    office.runs.move(run.run_id, RunStatus.READING, RunStatus.PLANNING, plan_id=preview.plan_id, revision=1)
    browser = office.browser(Role.VIEWER)
    html = browser.get(address("access_impact", run=run.run_id))
    assert browser.status == 404
    assert "No answer to a permission call would change" not in html
