"""The state of the backend, and of runs that other runs or a missing worker affect."""

import re
from datetime import timedelta

import pytest
from sqlalchemy import insert, select, update

from app.access.source_tables import DirectorySourceRow
from app.foundation.clock import epoch_ms
from app.foundation.database.engine import writing
from app.monitoring.activity import NodeActivity
from app.service.console.settings import Role
from app.service.console.urls import address
from app.sync.ledger.failures import message_digest
from app.sync.ledger.ledger import open_ledger
from app.sync.ledger.tables import ItemFailureRow
from app.sync.runs.run import Run, RunRequest, RunStatus
from app.sync.runs.tables import RunRow
from tests.service.console import states
from tests.service.console.conftest import Browser, Office

NO_WORKER = "No worker is running, so"


def backend(browser: Browser) -> str:
    """The state of the backend on the overview."""
    html = browser.get(address("overview"))
    found = re.search(r'<dt>Backend</dt><dd>([^<]*)</dd>(?:<dd class="under">([^<]*)</dd>)?', html)
    assert found is not None
    return ", ".join(filter(None, found.groups()))


def test_the_backend_state_follows_from_the_last_run_without_previews(office: Office) -> None:
    browser = office.browser(Role.VIEWER)
    assert backend(browser) == "never synced"
    states.previewed(office)
    assert backend(browser) == "never synced"
    states.done(office)
    assert backend(browser) == "in step"
    # A preview and a run that never began do not change the state of the backend.
    preview = states.reading(office, dry_run=True)
    values = {"finished_at": office.time(), "error": "the backend is away"}
    office.runs.move(preview.run_id, RunStatus.READING, RunStatus.FAILED, **values)
    states.cancelled(office)
    assert backend(browser) == "in step"
    states.failed(office)
    assert backend(browser) == "the last run failed"
    states.done(office)
    run = states.applying(office)
    assert backend(browser) == "a run is changing it"
    office.runs.move(run.run_id, RunStatus.APPLYING, RunStatus.CANCELLED, finished_at=office.time())
    assert backend(browser) == "the last run was cancelled"
    states.continued(office)
    assert backend(browser) == "the last run was interrupted; another continues it"


def test_the_backend_state_counts_held_parked_and_failing_items(office: Office) -> None:
    browser = office.browser(Role.VIEWER)
    held = states.held(office)
    assert backend(browser) == "2 deletes held"
    ledger_id = open_ledger(office.engine, "http://backend.test", "key", office.time).ledger_id
    row = {"ledger_id": ledger_id, "kind": "folder", "organization_id": "acme", "container_id": "", "retry_at": 0}
    row |= {"deleting": False, "fingerprint": "", "failures": 10, "message": "", "message_digest": message_digest("")}
    with writing(office.engine) as connection:
        given = [("a", True), ("b", True), ("c", False)]
        connection.execute(insert(ItemFailureRow), [row | {"item_id": one, "parked": parked} for one, parked in given])
    assert backend(browser) == "2 deletes held, 3 items failing"
    office.runs.approve(held.run_id)
    assert backend(browser) == "a run is changing it"
    office.runs.move(held.run_id, RunStatus.QUEUED, RunStatus.READING)
    office.runs.move(held.run_id, RunStatus.READING, RunStatus.PLANNING)
    office.time.move_on(seconds=1)
    office.runs.move(held.run_id, RunStatus.PLANNING, RunStatus.DONE, finished_at=office.time(), counts={})
    # A later preview that would hold deletes changes nothing.
    states.previewed(office)
    assert backend(browser) == "3 items failing"


def test_an_applied_preview_links_the_run_that_applied_it(office: Office) -> None:
    preview = states.previewed(office)
    browser = office.browser(Role.APPROVER)
    page = address("run", id=preview.run_id)
    assert "Applied by" not in browser.get(page)
    run, _ = office.runs.enqueue(RunRequest(trigger="console", plan_id=preview.plan_id))
    assert "To be applied by" in browser.get(page)
    # A run that found the plan outdated has applied nothing.
    office.runs.cancel(run.run_id)
    assert "applied by" not in browser.get(page).lower()
    office.time.move_on(seconds=1)
    run, _ = office.runs.enqueue(RunRequest(trigger="console", plan_id=preview.plan_id))
    office.runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, started_at=office.time())
    office.runs.move(run.run_id, RunStatus.READING, RunStatus.PLANNING, plan_id=preview.plan_id)
    office.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.APPLYING)
    office.runs.move(run.run_id, RunStatus.APPLYING, RunStatus.DONE, finished_at=office.time())
    html = browser.get(page)
    assert re.search(rf'Applied by <a href="[^"]*id={run.run_id}">the ', html)
    assert "</svg>applied</span></span>" in html
    assert "cannot be applied" not in html
    assert ">Apply " not in html


def test_a_held_run_that_a_newer_one_replaced_is_superseded(office: Office) -> None:
    first, second = states.held(office), states.held(office)
    browser = office.browser(Role.APPROVER)
    html = browser.get(address("run", id=first.run_id))
    assert re.search(rf'Superseded by <a href="[^"]*id={second.run_id}">the ', html)
    assert 'class="pill idle"' in html
    assert "deletes wait" not in html
    assert "Review and approve" not in html
    assert "Review and approve 2 deletes" in browser.get(address("run", id=second.run_id))
    rows = browser.get(address("runs")).rpartition("<tbody>")[2].split("<tr>")[1:]
    assert "superseded" not in rows[0]
    assert "superseded" in rows[1]
    html = browser.get(address("approve", run=first.run_id))
    assert "Superseded by" in html
    assert f'href="{address("approve", run=second.run_id)}">Review that run</a>' in html
    assert ">Delete 2 entries" not in html
    # A narrower run replaces nothing.
    _narrowed(office, second)
    assert "Superseded" not in browser.get(address("run", id=second.run_id))


def _narrowed(office: Office, like: Run) -> None:
    run = states.done(office)
    with writing(office.engine) as connection:
        connection.execute(
            update(RunRow).where(RunRow.__table__.c.run_id == run.run_id).values(organization_ids='["acme"]')
        )
    assert run.finished_at is not None
    assert like.finished_at is not None
    assert run.finished_at > like.finished_at


def test_a_held_run_expires(office: Office) -> None:
    run = states.held(office)
    browser = office.browser(Role.APPROVER)
    office.time.move_on(seconds=timedelta(days=8).total_seconds())
    browser = office.browser(Role.APPROVER)
    html = browser.get(address("run", id=run.run_id))
    assert "expired</span>" in html
    assert "Review and approve" not in html


def test_a_queued_run_reports_a_missing_worker(office: Office) -> None:
    browser = office.browser(Role.VIEWER)
    run = states.queued(office)
    page = address("run", id=run.run_id)
    assert f"{NO_WORKER} this run waits. Start one: <code>usher worker</code>" in browser.get(page)
    assert f"{NO_WORKER} queued runs wait" in browser.get(address("overview"))
    worker = NodeActivity(node="n", role="worker", clock=office.time)
    worker.write(office.engine)
    assert NO_WORKER not in browser.get(page)
    assert NO_WORKER not in browser.get(address("overview"))
    office.time.move_on(seconds=75)
    assert NO_WORKER in browser.get(page)
    assert NO_WORKER in browser.get(address("overview"))
    assert "1 worker" not in browser.get(address("overview"))
    # It is not all well while no run can begin.
    assert "All well" not in browser.get(address("overview"))


def test_all_is_well_unless_a_run_has_failed(office: Office) -> None:
    NodeActivity(node="n", role="worker", clock=office.time).write(office.engine)
    browser = office.browser(Role.VIEWER)
    states.done(office)
    assert "All well" in browser.get(address("overview"))
    states.failed(office)
    states.done(office)
    html = browser.get(address("overview"))
    assert "All well" not in html
    assert "1 run</a> failed since yesterday" in html


def test_runs_are_cancelled_from_the_lists(office: Office) -> None:
    for page in ("runs", "overview"):
        run = states.applying(office)
        assert "Cancel" not in office.browser(Role.VIEWER).get(address(page))
        browser = office.browser(Role.APPROVER)
        assert "cancelling" not in browser.get(address(page))
        browser.send(address(page), address("cancel"))
        assert browser.status == 200
        assert office.runs.get(run.run_id).cancel_requested
        assert "cancelling" in browser.get(address(page))
        office.runs.move(run.run_id, RunStatus.APPLYING, RunStatus.CANCELLED, finished_at=office.time())


@pytest.mark.parametrize(
    ("verdicts", "tone", "words"),
    [
        (["complete", "complete"], "ok", "12:30:00 UTC</time>, revision 1 · times in <"),
        (["complete", "failed"], "warn", "12:30:00 UTC</time>, revision 1 · 1 source failed · times in <"),
        (["failed", "failed"], "warn", "12:30:00 UTC</time>, revision 1 · 2 sources failed · times in <"),
        (["partial", "failed"], "warn", "12:30:00 UTC</time>, revision 1 · 1 source failed, 1 partial · times in <"),
        (["partial", "partial"], "warn", "12:30:00 UTC</time>, revision 1 · 2 sources partial · times in <"),
    ],
)
def test_each_page_reports_the_last_read_and_the_incomplete_sources(
    office: Office, verdicts: list[str], tone: str, words: str
) -> None:
    table = DirectorySourceRow.__table__
    with writing(office.engine) as connection:
        row = dict(connection.execute(select(table)).mappings().one())
        half_an_hour = epoch_ms(office.time()) + 1_800_000
        connection.execute(table.update().values(last_verdict=verdicts[0], last_good_at=half_an_hour))
        other = {"source_id": row["source_id"] + 1, "name": "other", "last_verdict": verdicts[1], "last_good_at": 1}
        connection.execute(insert(table), row | other)
    top = office.browser(Role.VIEWER).get(address("runs"))
    top = top.partition('<div class="asof">')[2].partition("</div>")[0]
    assert f'class="state {tone}"' in top
    assert words in re.sub('" data-ago>[^<]*', "", top)
