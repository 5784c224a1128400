"""The list of runs: kinds, filters, and what has changed, failed and waits since yesterday."""

import json
import re
from dataclasses import replace

import pytest
from sqlalchemy import update
from sqlmodel import col

from app.access.source_tables import DirectorySourceRow
from app.foundation.database.engine import writing
from app.service.console.settings import Role
from app.service.console.urls import address
from app.sync.ledger.tables import LedgerRow
from app.sync.plan.tables import PlanRow
from app.sync.runs.run import Run, RunRequest, RunStatus
from app.sync.runs.tables import RunRow
from tests.service.console import states
from tests.service.console.conftest import Browser, Office


def _row_of(html: str, run: Run) -> str:
    """The row of a run in the table."""
    rows = re.findall(r"<tr[ >].*?</tr>", html.partition('aria-label="Runs"')[2], re.DOTALL)
    return str(next(row for row in rows if run.run_id in row))


def _listed(browser: Browser, **filters: object) -> list[str]:
    """The ids of the runs in the table, in their order."""
    html = browser.get(address("runs", **filters))
    assert browser.status == 200
    return re.findall(r'<td[^>]*><a href="/console/run\?id=([^"]+)">', html.partition('aria-label="Runs"')[2])


def test_each_run_has_its_kind_its_result_and_who_started_it(office: Office) -> None:
    expected = [
        (states.done(office), ("Sync", "2 changed", "schedule")),
        (states.previewed(office), ("Preview", "4 to add", "schedule")),
        (states.queued(office, verify=True, asked_by="Mira <b>", trigger="console"), ("Verify", "", "Mira &lt;b&gt;")),
        (states.queued(office, trigger="changes", user_ids=("ada",)), ("Follow-up", ">ada<", "directory changes")),
        (states.queued(office, retry=True, trigger="resync"), ("Retry", "", "HTTP API")),
        (states.failed(office), ("Sync", "it refused the API key", "schedule")),
        (states.held(office), ("Sync", "2 held", "schedule")),
    ]
    html = office.browser(Role.VIEWER).get(address("runs"))
    for run, (kind, result, asker) in expected:
        row = _row_of(html, run)
        assert f"</svg>{kind}</span>" in row
        assert result in row
        assert asker in row
    assert "<b>" not in html


def test_runs_are_filtered_and_the_filters_stay_on_the_next_page(office: Office) -> None:
    mine = [states.queued(office, asked_by="mira (console)", trigger="console", verify=True) for _ in range(51)]
    preview = states.previewed(office)
    browser = office.browser(Role.VIEWER)
    assert _listed(browser, kind="preview") == [preview.run_id]
    assert _listed(browser, status="done") == [preview.run_id]
    assert _listed(browser, by="schedule") == [preview.run_id]
    newest_first = [run.run_id for run in reversed(mine)]
    filters = {"kind": "verify", "by": "mira (console)", "period": "yesterday"}
    assert _listed(browser, **filters) == newest_first[:50]
    html = browser.get(address("runs", **filters))
    assert '<option value="mira (console)" selected>' in html
    link = re.search(r'href="([^"]*before=[^"]*)">Next page', html)
    assert link is not None
    assert browser.get(link[1].replace("&amp;", "&")).count("/console/run?id=") == 1
    office.time.move_on(days=3)
    browser = office.browser(Role.VIEWER)
    html = browser.get(address("runs", period="day", kind="verify"))
    assert "No run matches" in html
    assert ">Kind: Verify, Requested: the last 24 hours</p>" in html
    assert "Clear filters" in html
    assert _listed(browser, period="week", kind="preview") == [preview.run_id]


@pytest.mark.parametrize("wanted", ["kind=odd", "status=odd", "period=odd", "busy=2", "scope=everything"])
def test_unknown_filters_are_refused(office: Office, wanted: str) -> None:
    browser = office.browser(Role.VIEWER)
    browser.get(f"/console/runs?{wanted}")
    assert browser.status == 400


def test_recap_lists_changes_failures_and_waiting_runs(office: Office) -> None:
    old = states.done(office)
    table = RunRow.__table__
    counts = json.dumps({"group": {"add": {"planned": 9, "done": 9}}})
    with writing(office.engine) as connection:
        of_old = table.c.run_id == old.run_id
        connection.execute(update(table).where(of_old).values(requested_at=1, counts=counts))
    states.done(office)
    states.partial(office)
    failed = [states.failed(office) for _ in range(4)]
    states.previewed(office)
    states.held(office)
    queued = states.queued(office)
    html = _recap(office, Role.APPROVER)
    text = " ".join(re.sub(r"<[^>]+>", " ", html).split())
    assert "9 items by 3 runs of 7" in text
    assert "folders 6 – –" in text
    assert "group" not in text
    assert "1 preview changed nothing" in text
    assert "4 runs" in text
    assert text.count("it refused the API key") == 3
    assert html.count(f'href="{address("run", id=failed[-1].run_id)}"') == 1
    assert "1 more" in text
    assert "1 failed attempt" in text
    assert "Nobody has the access that the 2 held deletes would remove" in text
    assert address("run", id=queued.run_id) in html


def test_recap_counts_the_runs_that_it_does_not_list(office: Office) -> None:
    office.time.move_on(hours=1)
    for number in range(1, 6):
        run = states.done(office)
        counts = json.dumps({"documentUser": {"delete": {"planned": number, "done": number}}})
        with writing(office.engine) as connection:
            connection.execute(update(RunRow).where(col(RunRow.run_id) == run.run_id).values(counts=counts))
    text = _text(_recap(office, Role.VIEWER))
    assert "5 lost, 0 gained" in text
    assert "2 lost, 0 gained" not in text
    assert "3 lost, 0 gained 2 more runs" in text


def test_recap_shows_that_a_later_run_did_not_fail(office: Office) -> None:
    states.failed(office)
    assert "did not fail" not in _recap(office, Role.VIEWER)
    last = states.done(office)
    html = _recap(office, Role.VIEWER)
    assert "The last full run , 7 s ago , did not fail." in _text(html)
    assert f'href="{address("run", id=last.run_id)}">last full run' in html
    states.failed(office)
    assert "did not fail" not in _recap(office, Role.VIEWER)


def test_recap_includes_what_the_run_in_progress_has_sent(office: Office) -> None:
    run = states.applying(office)
    text = _text(_recap(office, Role.VIEWER))
    assert "0 ended runs changed nothing 3 items so far in the run in progress" in text
    assert "Failed runs None Not ended Sync of" in text
    counts = states.counted(folders=2, documents=1, failed=1)
    office.runs.update(run.run_id, RunStatus.APPLYING, counts=counts)
    assert "Failed runs None 1 item so far in the run in progress Not ended" in _text(_recap(office, Role.VIEWER))


def test_an_unreadable_source_comes_before_held_deletes(office: Office) -> None:
    states.held(office)
    with writing(office.engine) as connection:
        connection.execute(update(DirectorySourceRow).values(last_verdict="failed", last_reason="away"))
    text = _text(office.browser(Role.VIEWER).get(address("overview")))
    assert 0 < text.index("Source people cannot be read: away") < text.index("2 deletes wait for approval")


def _text(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def _recap(office: Office, role: Role) -> str:
    return office.browser(role).get(address("overview")).partition("Since yesterday")[2].partition("</section>")[0]


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        (
            "source hr takes away 1 of 9 folder records and 897 of 5,036 document records; a read is refused above 20",
            "source hr lost 897 of its 5,036 documents.",
        ),
        (
            "source a takes away b takes away 3 document records; a read is refused above 9",
            "source a takes away b lost 3 documents.",
        ),
        ("a sentence of another version", "a sentence of another version."),
    ],
)
def test_recap_begins_with_reads_that_lost_records(office: Office, sentence: str, shown: str) -> None:
    run = states.held(office)
    table = RunRow.__table__
    with writing(office.engine) as connection:
        report = json.dumps({**run.report, "losses": [sentence]})
        connection.execute(update(table).where(table.c.run_id == run.run_id).values(report=report))
    html = office.browser(Role.VIEWER).get(address("overview"))
    assert shown in html
    assert "The run held 2 deletes." in html
    assert html.index("Since yesterday") < html.index(shown) < html.index(">Changed<")


def test_held_deletes_are_emphasized_only_while_they_wait(office: Office) -> None:
    superseded, current = states.held(office), states.held(office)
    html = office.browser(Role.VIEWER).get(address("runs"))
    tones = [re.findall(r'class="state (\w+)"', _row_of(html, run)) for run in (superseded, current)]
    # Its status, the held deletes, and the source that it could not read.
    assert tones == [["idle", "idle", "bad"], ["warn", "warn", "bad"]]


def test_failed_items_and_sources_are_red_in_every_run(office: Office) -> None:
    runs = [states.partial(office), states.partial(office), states.unread(office), states.unread(office)]
    html = office.browser(Role.VIEWER).get(address("runs"))
    for run in runs:
        tones = re.findall(r'class="state (\w+)"', _row_of(html, run))
        assert "bad" in tones
        assert "ok" not in tones


def test_a_preview_lists_its_changes_in_order_and_the_failed_source_in_its_status(office: Office) -> None:
    run = states.planned(office, dry_run=True)
    counts = {"group": {"delete": {"planned": 3}, "update": {"planned": 2}, "add": {"planned": 1}}}
    values = {"counts": counts, "report": {"sources": [states.UNREAD]}, "finished_at": office.time()}
    office.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.DONE, **values)
    row = _row_of(office.browser(Role.VIEWER).get(address("runs")), run)
    text = " ".join(re.sub(r"<[^>]+>", " ", row).split())
    assert "1 to add, 2 to update, 3 to delete" in text
    assert "done, 1 source failed" in text


def test_discarded_deletes_have_one_word_in_the_list_and_on_the_page(office: Office) -> None:
    run = states.discarded(office)
    browser = office.browser(Role.VIEWER)
    assert "discarded</span></td>" in _row_of(browser.get(address("runs")), run)
    assert "discarded</span></span></div>" in browser.get(address("run", id=run.run_id))


def test_recap_of_a_quiet_day_contains_nothing(office: Office) -> None:
    office.runs.cancel(states.queued(office).run_id)
    html = _recap(office, Role.VIEWER)
    assert re.sub(r"<[^>]+>", " ", html).split().count("Nothing") == 2


def test_the_user_of_a_run_has_a_name(office: Office) -> None:
    run = states.queued(office, user_ids=("bob",))
    browser = office.browser(Role.VIEWER)
    for page in (address("runs"), address("overview"), address("run", id=run.run_id)):
        assert "Bob" in browser.get(page).partition("<main")[2]
    states.queued(office, user_ids=("ada", "bob"))
    assert "of 2 users" in browser.get(address("runs"))


@pytest.mark.parametrize(
    ("schedule", "verify", "shown"),
    [
        ("", "", "Next run not scheduled"),
        ("every 15m", "", "Next run in 15 min every 15 min"),
        ("", "every 1d", "Next run in 12 h a verify, every 24 h, no other sync is scheduled"),
        ("every 3h", "every 12h", "Next run in 3 h every 3 h"),
        ("every 12h", "every 12h", "Next run in 12 h a verify, every 12 h, no other sync is scheduled"),
    ],
)
def test_the_next_run_is_a_verify_or_not(office: Office, schedule: str, verify: str, shown: str) -> None:
    states.done(office)
    sync = office.settings.sync.model_copy(update={"schedule": schedule, "verify_schedule": verify})
    scheduled = replace(office, settings=office.settings.model_copy(update={"sync": sync}))
    html = scheduled.browser(Role.VIEWER).get(address("overview"))
    text = " ".join(re.sub(r"<[^>]+>", " ", html).split())
    assert shown in text
    assert f'href="{address("sync")}"><time' not in html
    leads = f'href="{address("sync")}"><time' in scheduled.browser(Role.APPROVER).get(address("overview"))
    assert leads == ("not scheduled" not in shown)


def test_previews_whose_plan_cannot_be_applied_any_more_are_outdated_or_applied(office: Office) -> None:
    outdated, applied, fresh = [states.previewed(office) for _ in range(3)]
    ledger, plan = LedgerRow.__table__, PlanRow.__table__
    with writing(office.engine) as connection:
        connection.execute(ledger.update().values(verified_at=1, ledger_revision=2))
        connection.execute(plan.update().where(plan.c.plan_id == fresh.plan_id).values(ledger_revision=2))
    run, _ = office.runs.enqueue(RunRequest(trigger="console", plan_id=applied.plan_id))
    with writing(office.engine) as connection:
        connection.execute(update(RunRow).where(col(RunRow.run_id) == run.run_id).values(plan_id=applied.plan_id))
    for page in ("runs", "overview"):
        html = office.browser(Role.VIEWER).get(address(page))
        for run, state, word in ((outdated, "idle", "outdated"), (applied, "idle", "applied"), (fresh, "ok", "done")):
            assert re.search(rf'class="state {state}"><svg.*?</svg>{word}</span>', _row_of(html, run)), (page, word)


def test_previews_show_how_many_users_would_lose_access(office: Office) -> None:
    run = states.planned(office, dry_run=True)
    impact = {"gain": 2, "lose": 49, "change": 0, "usersWhoLose": 7}
    values = {"finished_at": office.time(), "report": {"impact": impact}}
    office.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.DONE, **values)
    for page in ("runs", "overview"):
        assert "7 users would lose access" in _row_of(office.browser(Role.VIEWER).get(address(page)), run)
