"""Whose access a preview changes: by organization, by effect, and all users and resources of one change."""

import json
import re
from html import unescape

import pytest
from sqlalchemy import update

from app.foundation.database.engine import writing
from app.service.console.settings import Role
from app.service.console.urls import address
from app.sync.plan.tables import PlanAccessRow
from app.sync.runs.run import Run, RunStatus
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
    assert -1 < text.find(lost) < text.find(gained) < text.find("1 user would have another role")
    for path in (address("run", id=run.run_id), address("access_impact", run=run.run_id)):
        html = browser.get(path)
        text = _text(html)
        assert "loses editor" in text
        assert "gains viewer Bob bob document Handbook handbook" in text
        assert "editor → viewer" in text
        assert "Ada [bold]Lovelace[/bold]" in text or "Ada of the plan" in text
        assert "and 117 more" in text
        assert address("access_change", run=run.run_id, ordinal=1).replace("&", "&amp;") in html
        assert "<script>alert" not in html
        assert "u050" not in html  # of many ids, only the first are read
        assert "Acme acme 120 users , 2 documents 1 user , 1 document –" in text
        assert "120 users would lose access to 2 documents" in text
        assert "All of these are in" not in text
    of_one = _text(browser.get(address("access_impact", run=run.run_id, organization="else")))
    assert "All of these are in else" in of_one


def test_changes_of_access_have_their_causes_and_lead_to_explain(office: Office) -> None:
    run = _preview(office)
    browser = office.browser(Role.VIEWER)
    question = {"type": "document", "resource": "handbook", "organization": "acme"}
    links = {user: address("explain", user=user, **question).replace("&", "&amp;") for user in ("ada", "bob")}
    cause = "grant added: document Handbook handbook , user Bob bob , ends 1970-01-01 00:00:00 UTC explain"
    paths = [address("run", id=run.run_id), address("access_impact", run=run.run_id)]
    for path in (*paths, address("access_change", run=run.run_id, ordinal=2)):
        html = browser.get(path)
        assert cause in _text(html), path
        assert f'href="{links["bob"]}">explain</a>' in html
    # On the page of a change, each user and each resource leads to Explain.
    html = browser.get(address("access_change", run=run.run_id, ordinal=1))
    assert html.count(">explain</a>") == 1 + 50 + 2
    assert f'href="{links["ada"]}">' in html
    html = browser.get(paths[1])
    assert f'href="{links["ada"]}">explain</a> <span class="muted small">of the first user</span>' in html


def test_the_largest_changes_come_first(office: Office) -> None:
    run = _preview(office)
    with writing(office.engine) as connection:
        of_cleo = PlanAccessRow.__table__.c.ordinal == 3
        connection.execute(update(PlanAccessRow).where(of_cleo).values(users=900, pairs=900))
    browser = office.browser(Role.VIEWER)
    for path in (address("run", id=run.run_id), address("access_impact", run=run.run_id)):
        table = _text(browser.get(path).partition('aria-label="Changes of access"')[2].join(("<main", "")))
        assert table.index("editor → viewer") < table.index("loses editor") < table.index("gains viewer")
    second = browser.get(address("access_impact", run=run.run_id, after=3))
    assert "editor → viewer" not in second
    assert "loses editor" in second


def test_the_numbers_of_a_large_preview_are_lower_bounds(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _preview(office)
    monkeypatch.setattr("app.sync.plan.affected_people._MAX_COUNTED_ROWS", 2)
    text = _text(office.browser(Role.VIEWER).get(address("access_impact", run=run.run_id)))
    assert "at least 120 users would lose access to at least 2 documents" in text
    assert "Acme acme at least 120 users , 2 documents at least 1 user , 1 document –" in text


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
    assert {words for words in ("gains viewer", "loses editor", "editor → viewer") if words in html} == shown
    assert ("No change matches" in html) == (not shown)


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
        link = re.search(r'href="([^"]*)">Next 50', users)
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
