"""Tests of every template in every state of its subject. A missing name or attribute is an error there."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import insert, update

from app.foundation.database.engine import writing
from app.monitoring.activity import NodeActivity
from app.service.console.rendering import make_environment
from app.service.console.settings import Role
from app.service.console.urls import address
from app.sync.ledger.items import ItemKey
from app.sync.plan.tables import PlanAccessRow, PlanImpactRow, PlanItemRow, PlanPartRow, PlanRow
from app.sync.runs.run import Run, RunRequest, RunStatus
from app.sync.runs.tables import RunRow
from tests.choice import sampled
from tests.commands.conftest import DIRECTORY
from tests.service.console import access_pages, states, sync_pages, system_pages
from tests.service.console.conftest import Office
from tests.service.console.states import STATES
from tests.service.console.tracing import TracingLoader, traced
from tests.service.console.visitors import Visitors, add_rows, office_of

pytestmark = pytest.mark.one_database


@pytest.mark.parametrize("role", sampled([Role.ADMIN, Role.VIEWER], sample=1))
@pytest.mark.parametrize("state", STATES)
def test_a_run_is_shown_in_every_state(office: Office, state: str, role: Role) -> None:
    run = STATES[state](office)
    browser = office.browser(role)
    shown = address("run", id=run.run_id)
    for path in (shown, address("runs"), address("overview"), address("held")):
        assert "</html>" in browser.get(path)
        assert browser.status == 200, path
    for path in (shown, address("run", id=run.run_id, kind="document"), address("run", id=run.run_id, after=6)):
        assert 'data-part="stages"' in browser.get(path, **{"x-fragment": "1"})
        assert browser.status == 200, path


@pytest.fixture
def loaders(monkeypatch: pytest.MonkeyPatch) -> list[TracingLoader]:
    """Filled with the loader of each console that a test makes."""
    found: list[TracingLoader] = []
    monkeypatch.setattr("app.service.console.console.make_environment", traced(make_environment, found))
    return found


@pytest.mark.extended
def test_every_branch_of_every_template_is_rendered(
    tmp_path: Path, loaders: list[TracingLoader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A branch that no test renders may use what does not exist: the search for unused code finds no template."""
    with office_of(tmp_path, "unread") as unread:
        access_pages.visit_unread(Visitors(unread))
    with office_of(tmp_path, "runs", DIRECTORY) as office:
        _visit_runs(office, monkeypatch)
    with office_of(tmp_path, "all", access_pages.directory(), access_pages.other_directory()) as office:
        visitors = Visitors(office)
        access_pages.visit_browse(visitors, monkeypatch)
        access_pages.visit_search(visitors, monkeypatch)
        access_pages.visit_comparisons(office, monkeypatch)
        sync_pages.visit_overview(visitors)
        visitors = Visitors(office)
        sync_pages.visit_items(visitors)
        sync_pages.visit_ledger_items(visitors)
        sync_pages.visit_parked(visitors)
        sync_pages.visit_held(visitors)
        sync_pages.visit_preview_file(visitors)
        sync_pages.visit_sources(visitors)
        sync_pages.visit_notices(visitors, monkeypatch)
        access_pages.visit_explain(visitors)
        system_pages.visit_doctor(visitors)
        system_pages.visit_system(visitors)
        system_pages.visit_problems(visitors, monkeypatch)
        access_pages.visit_records_without_effect(visitors)
        system_pages.visit_index(office, tmp_path / "index")
        system_pages.visit_sign_in(office)
        office.time.move_on(days=3)
        Visitors(office).show("overview")
    branches: set[str] = set().union(*(loader.branches for loader in loaders))
    rendered: set[str] = set().union(*(loader.rendered for loader in loaders))
    assert {one.partition(":")[0] for one in branches} == set(loaders[0].list_templates())
    assert sorted(branches - rendered) == []


def _visit_runs(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    visitors = Visitors(office)
    visitors.show("runs")
    sync_pages.visit_sync(visitors)
    visitors.show("runs", status="held", kind="verify")
    visitors.show("runs", period="day", busy=1)
    # All is well but for a run that has failed since yesterday.
    states.failed(office)
    states.done(office)
    NodeActivity(node="n", role="worker", clock=office.time).write(office.engine)
    visitors.show("overview")
    with monkeypatch.context() as patched:
        patched.setattr("app.sync.runs.history.MAX_RECAPPED", 1)
        office.runs.cancel(states.queued(office).run_id)
        visitors.show("overview")
    for run in _runs(visitors):
        for query in ({}, {"status": "failed"}, {"kind": "document", "status": "held"}, {"item": "nothing"}):
            visitors.show("run", id=run.run_id, **query)
        visitors.browsers[Role.VIEWER].get(address("run", id=run.run_id), **{"x-fragment": "1"})
        visitors.show("runs")
        visitors.show("overview")


def _runs(visitors: Visitors) -> Iterator[Run]:
    """Runs that together have everything that a run can have, each as it is when it is shown."""
    office = visitors.office
    for made in STATES.values():
        yield made(office)
    yield from _asked(office)
    yield from _previews(visitors)
    yield office.held_run()
    superseded = states.held(office)
    states.held(office)
    yield superseded
    run = states.reading(office)
    values = {"finished_at": office.time(), "error": "the process was asked to end"}
    yield office.runs.move(run.run_id, RunStatus.READING, RunStatus.CANCELLED, **values)
    yield _troubled(office)
    run = states.planning(office)
    yield office.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.DONE, finished_at=office.time())
    for _ in range(50):
        run = states.queued(office)
    yield run


def _asked(office: Office) -> Iterator[Run]:
    """Runs of every scope."""
    yield states.queued(office, organization_ids=("acme",))
    yield states.queued(office, organization_ids=("acme", "shut"))
    yield states.queued(office, organization_ids=tuple(f"o{number}" for number in range(5)))
    yield states.queued(office, user_ids=("ada",))
    yield states.queued(office, user_ids=("ada", "bob"))
    for user_ids, missing in ((("ada", "bob"), ["bob"]), (("x", "y"), ["x", "y"])):
        run = states.planning(office, user_ids=user_ids)
        unknown = {"organizationIds": [], "userIds": missing, "count": len(missing)}
        verify = {"seen": 0, "missing": 0, "adopted": 2, "foreign": {"group": 1}, "notRead": ["group"]}
        report = {"unknown": unknown, "verify": verify}
        office.runs.update(run.run_id, RunStatus.PLANNING, report=report)
        yield office.runs.get(run.run_id)
    yield states.queued(office, verify=True, allow_deletes=True, asked_by="mira", asked_reason="to see")
    yield states.queued(office, retry=True)
    yield states.queued(office, retry=True, items=(ItemKey("document", "acme", "", "handbook"),))


def _previews(visitors: Visitors) -> Iterator[Run]:
    """Previews without limits, one that a run applies, one of another backend, and one that holds nothing."""
    office = visitors.office
    made = states.planned(office, dry_run=True, allow_deletes=True)
    preview = office.runs.move(made.run_id, RunStatus.PLANNING, RunStatus.DONE, finished_at=office.time())
    yield preview
    run, _ = office.runs.enqueue(RunRequest(trigger="console", plan_id=preview.plan_id, alone=True))
    yield preview
    add_rows(office, PlanAccessRow, list(_access_rows(str(preview.plan_id)))[:3:2])
    office.runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, started_at=office.time())
    office.runs.move(run.run_id, RunStatus.READING, RunStatus.PLANNING, plan_id=preview.plan_id)
    yield office.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.DONE, finished_at=office.time())
    visitors.show("access_impact", run=run.run_id)
    visitors.show("access_change", run=run.run_id, ordinal=1)
    yield preview
    preview = states.previewed(office)
    with writing(office.engine) as connection:
        of_plan = PlanRow.__table__.c.plan_id == preview.plan_id
        connection.execute(update(PlanRow.__table__).where(of_plan).values(ledger_id=99))
        of_run = RunRow.__table__.c.run_id == preview.run_id
        compared = json.dumps({"impact": {"gain": 0, "lose": 2, "change": 0}})
        counts = json.dumps({"document": {"delete": {"planned": 2}}, "folder": {"delete": {"planned": 1}}})
        connection.execute(update(RunRow.__table__).where(of_run).values(report=compared, counts=counts))
    removed = {"kind": "document", "organizationId": "acme", "documentId": "plan"}
    lost = {"resources": 2, "pairs": 2, "resource_ids": '["plan", "roadmap"]'}
    lost["names"] = json.dumps({"causes": [["removed", removed]]})
    row = next(_access_rows(str(preview.plan_id)))
    left = {"ordinal": 2, "users": 4, "pairs": 4, "user_ids": '["a", "b", "c", "d"]'}
    left["names"] = json.dumps({"causes": [["removed", {"kind": "user", "userId": "a"}]]})
    add_rows(office, PlanAccessRow, [row | lost, row | left])
    visitors.show("access_impact", run=preview.run_id)
    visitors.show("access_change", run=preview.run_id, ordinal=1)
    yield preview
    made = states.planned(office, dry_run=True)
    office.runs.update(made.run_id, RunStatus.PLANNING, report={"impact": {"gain": 0, "lose": 0, "change": 0}})
    yield office.runs.get(made.run_id)
    office.runs.update(made.run_id, RunStatus.PLANNING, report={"impact": {"gain": 2_000, "lose": 1, "change": 0}})
    visitors.show("access_impact", run=made.run_id)
    visitors.show("access_impact", run=made.run_id, effect="gain")
    other = states.planned(office, dry_run=True)
    office.runs.update(other.run_id, RunStatus.PLANNING, report={"impact": {"notCompared": "it is the first read"}})
    visitors.show("access_impact", run=other.run_id)
    add_rows(office, PlanAccessRow, list(_access_rows(str(made.plan_id))))
    part = {"first_ordinal": 7, "last_ordinal": 8, "items": 2, "phase": 33, "organization_id": "", "kind": "document"}
    part |= {"action": "update", "operation": "update_document_access", "plan_id": made.plan_id}
    add_rows(office, PlanPartRow, [part])
    for filters in ({"effect": "gain"}, {"organization": "else"}, {}):
        visitors.show("access_impact", run=made.run_id, **filters)
    visitors.show("access_impact", run=made.run_id, cause=5)
    for ordinal in (1, 2, 3, 4):
        visitors.show("access_change", run=made.run_id, ordinal=ordinal)
    visitors.show("access_change", 404, run=made.run_id, ordinal=100)
    yield office.runs.get(made.run_id)
    of_one = states.planned(office, dry_run=True)
    office.runs.update(of_one.run_id, RunStatus.PLANNING, report={"impact": {"gain": 0, "lose": 1, "change": 0}})
    add_rows(office, PlanAccessRow, list(_access_rows(str(of_one.plan_id)))[:1])
    yield office.runs.get(of_one.run_id)
    for files in (["a.yaml"], ["a.yaml", "b.yaml"]):
        made = states.planned(office, dry_run=True)
        report: dict[str, object] = {
            "impact": {"gain": 0, "lose": 2, "change": 0},
            "whatIf": files,
            "problems": ["a.yaml:1: it is odd"],
        }
        office.runs.update(made.run_id, RunStatus.PLANNING, report=report)
        yield office.runs.get(made.run_id)
    values = {"finished_at": office.time(), "counts": {}}
    made = states.planning(office, dry_run=True)
    yield office.runs.move(made.run_id, RunStatus.PLANNING, RunStatus.DONE, **values)
    for status, error in ((RunStatus.DONE, None), (RunStatus.FAILED, "a.yaml: line 3: not YAML")):
        made = states.planning(office, dry_run=True)
        ended = {**values, "report": {"whatIf": ["a.yaml", "b.yaml"]}, "error": error}
        yield office.runs.move(made.run_id, RunStatus.PLANNING, status, **ended)
    made = states.planned(office, dry_run=True)
    values = {"finished_at": office.time(), "counts": {"folder": {"add": {"planned": 2}, "delete": {"planned": 1}}}}
    values["report"] = {"impact": {"gain": 0, "lose": 1, "change": 0}, "verify": {"seen": 4}}
    yield office.runs.move(made.run_id, RunStatus.PLANNING, RunStatus.DONE, **values)


def _access_rows(plan_id: str) -> Iterator[dict[str, object]]:
    """A change of named users and resources, and one of users who are counted alone."""
    row = {
        "plan_id": plan_id,
        "organization_id": "acme",
        "kind": "document",
        "resources": 1,
        "resource_ids": '["plan"]',
    }
    names = '{"users": {"gone": "Ada <b>Lovelace</b>"}, "resources": {"plan": "The plan"},'
    names += ' "causes": [["removed", {"kind": "membership", "userId": "gone"}]]}'
    ada = {
        "ordinal": 1,
        "before": "editor",
        "after": "",
        "users": 1,
        "pairs": 1,
        "user_ids": '["gone"]',
        "names": names,
    }
    others = {"ordinal": 2, "before": "", "after": "viewer", "users": 2_000, "pairs": 2_000, "user_ids": "[]"}
    yield from (row | ada, row | others | {"names": "{}"})
    many = {"users": 60, "user_ids": json.dumps([f"u{number}" for number in range(60)]), "pairs": 180}
    resources = {"resources": 3, "resource_ids": '["plan", "b\\"\\u00e9", "c"]'}
    yield row | ada | many | resources | {"ordinal": 3, "after": "viewer", "organization_id": "else"}
    yield row | ada | {"ordinal": 4, "user_ids": "[]", "resource_ids": "[]"}
    yield row | ada | {"ordinal": 70, "kind": "folder"}
    for number in range(65):
        names = f'{{"causes": [["removed", {{"kind": "grant", "userId": "gone", "folderId": "f{max(number, 51)}"}}]]}}'
        yield row | ada | {"ordinal": 5 + number, "organization_id": f"o{number:02}", "names": names}


def test_a_preview_shows_its_access_impact(office: Office) -> None:
    run = states.planned(office, dry_run=True)
    office.runs.update(run.run_id, RunStatus.PLANNING, report={"impact": {"gain": 2_000, "lose": 1, "change": 0}})
    add_rows(office, PlanAccessRow, list(_access_rows(str(run.plan_id))))
    browser = office.browser(Role.VIEWER)
    text = " ".join(re.sub(r"<[^>]+>", " ", browser.get(address("run", id=run.run_id))).split())
    assert "60 users would change editor → viewer on 3 documents" in text
    assert "at least 2,000 users would gain access to at least 1 document" in text
    html = browser.get(address("access_impact", run=run.run_id))
    assert "loses editor" in html
    assert "Ada &lt;b&gt;Lovelace&lt;/b&gt;" in html
    assert "2,000 users without an entry in the organization" in html


def _troubled(office: Office) -> Run:
    """A run of a large plan with failed items, whose directory has problems."""
    run = states.planned(office)
    item = {"plan_id": run.run_id, "phase": 130, "action": "delete", "kind": "organizationUser", "container_id": "x"}
    item |= {"organization_id": "acme", "scope": "[]", "reason": "gone", "message": "HTTP 400", "status": "failed"}
    item |= {"operation": "remove_users"}
    impact = {"plan_id": run.run_id, "lose": 1, "change": 0}
    with writing(office.engine) as connection:
        connection.execute(
            insert(PlanItemRow.__table__),
            [item | {"ordinal": 7 + number, "item_id": f"u{number}" if number else "ada"} for number in range(1_100)],
        )
        connection.execute(
            insert(PlanImpactRow.__table__),
            [
                impact | {"organization_id": f"o{number}", "gain": number % 2, "people": 100 - number}
                for number in range(12)
            ]
            + [impact | {"organization_id": "all", "gain": 1, "lose": 0, "change": 2, "people": 200}],
        )
    report = {
        "problems": ["people: directory.yaml:8: no such user", "no place"],
        "sources": [{"name": "people", "verdict": "failed", "reason": "away"}, states.UNREAD],
        "problemCounts": {"malformed": 1, "dangling": 2},
        "verify": {"seen": 4, "missing": 1, "changed": 2, "adopted": 1, "foreign": {"document": 2, "group": 1}}
        | {"foreignNamed": ["document a", "document b"], "notRead": ["folder", "document", "group"]},
        "unknown": {"organizationIds": ["x"], "userIds": ["y"], "count": 3},
        "leftBehind": ["folder z"],
        "held": [states.HOLD, states.HOLD | {"organizationId": ""}],
    }
    counts = {
        "document": {"delete": {"planned": 1, "done": 1}},
        "folder": {"add": {"planned": 3}, "update": {"planned": 2, "failed": 1}, "delete": {"planned": 2, "held": 1}},
    }
    office.runs.update(run.run_id, RunStatus.PLANNING, report=report, counts=counts)
    return office.runs.get(run.run_id)
