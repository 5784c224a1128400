"""Tests of the form that previews an uploaded file: accepted files, required role, and errors."""

from dataclasses import replace
from io import BytesIO

import pytest
from sqlalchemy import select

from app.directory.settings import DirectorySettings
from app.foundation.audit import audit_page
from app.foundation.database.engine import reading
from app.service.console.settings import Role
from app.service.console.urls import address
from app.sync.runs.files import MAX_FILE_BYTES, MAX_FILES, plain_name
from app.sync.runs.run import RunStatus
from app.sync.runs.tables import RunFileRow
from tests.service.console import states
from tests.service.console.conftest import OURS, Browser, Office
from tests.service.console.test_pages import HOSTILE
from tests.service.console.visitors import token_of

CONTENT = b"users: []\n"


def upload(browser: Browser, name: str = "next.yaml", content: bytes = CONTENT, **fields: str) -> str:
    """Sends the form as a browser does."""
    form = {"formToken": token_of(browser), "source": "", "reason": "", **fields}
    data = {**form, "file": (BytesIO(content), name)}
    browser.answer = browser.client.post(
        address("preview_file"), data=data, headers=OURS, content_type="multipart/form-data", follow_redirects=True
    )
    return browser.answer.get_data(as_text=True)


def stored(office: Office) -> list[tuple[str, str, bytes]]:
    """Name, source and content of each stored file."""
    table = RunFileRow.__table__
    with reading(office.engine) as connection:
        return [(row.name, row.source, row.content) for row in connection.execute(select(table))]


@pytest.mark.parametrize("source", ["", "people"])
def test_a_file_is_stored_with_its_run(office: Office, source: str) -> None:
    browser = office.browser(Role.APPROVER)
    html = upload(browser, name="dir/Next week.yaml", source=source, reason="the merger")
    assert browser.status == 200
    assert "<h1>Preview of" in html
    [run] = office.runs.recent()
    instead = "source people" if source else "all sources"
    assert (run.dry_run, run.trigger, run.status) == (True, "console", RunStatus.QUEUED)
    assert run.asked_reason == f"Next week.yaml instead of {instead}: the merger"
    assert stored(office) == [("Next week.yaml", source, CONTENT)]
    with reading(office.engine) as connection:
        [entry] = [row for row in audit_page(connection, limit=10) if row.action == "preview asked for"]
    assert (entry.actor, entry.subject, entry.reason) == ("the approver", run.run_id, run.asked_reason)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"name": ""}, "Choose a file."),
        ({"name": "next.csv"}, "The name must end in .jsonl"),
        ({"content": b""}, "next.yaml is empty."),
        ({"content": b"x" * (MAX_FILE_BYTES + 1)}, "next.yaml is larger than 8 MiB."),
        ({"source": "nothing"}, "This source is not configured."),
        ({"reason": "x" * 1001}, "at most 1,000"),
    ],
)
def test_errors_in_the_form_are_shown(office: Office, changed: dict[str, str], error: str) -> None:
    browser = office.browser(Role.APPROVER)
    html = upload(browser, **changed)  # type: ignore[arg-type]
    if changed == {"source": "nothing"}:
        # The choice is shown if there are several sources.
        assert browser.status == 400
    else:
        assert (browser.status, error in html) == (400, True)
    assert office.runs.recent() == []
    assert stored(office) == []


def test_of_several_sources_one_has_to_be_chosen(office: Office) -> None:
    file = {"type": "file", "path": "else.yaml"}
    directory = {"sources": [{**file, "name": name} for name in ("people", "places")]}
    settings = office.settings.model_copy(update={"directory": DirectorySettings.model_validate(directory)})
    browser = replace(office, settings=settings).browser(Role.APPROVER)
    assert '<option value="" selected>Choose</option>' in browser.get(address("preview_file"))
    assert "Choose what the file replaces." in upload(browser)
    assert (browser.status, stored(office)) == (400, [])
    for chosen, source in (("*", ""), ("places", "places")):
        upload(browser, source=chosen)
        assert browser.status == 200
        assert stored(office)[-1][1] == source


def test_a_body_beyond_the_limit_is_not_read(office: Office) -> None:
    browser = office.browser(Role.APPROVER)
    upload(browser, content=b"x" * (MAX_FILE_BYTES + 200_000))
    assert browser.status == 413


def test_only_approvers_with_a_form_of_this_console_upload(office: Office) -> None:
    viewer, approver, stranger = office.browser(Role.VIEWER), office.browser(Role.APPROVER), office.browser()
    upload(viewer)
    assert viewer.status == 403
    upload(approver, formToken="x")
    assert approver.status == 403
    assert "Sign in" in upload(stranger, formToken="x")
    data = {"formToken": token_of(approver), "file": (BytesIO(CONTENT), "next.yaml")}
    for headers, kind, status in (
        ({"Sec-Fetch-Site": "cross-site"}, "multipart/form-data", 403),
        (OURS, "application/x-www-form-urlencoded", 415),
    ):
        sent = data if status == 403 else {"formToken": "x"}
        answer = approver.client.post(address("preview_file"), data=sent, headers=headers, content_type=kind)
        assert answer.status_code == status
    answer = approver.client.post(
        address("sync"), data={"formToken": token_of(approver)}, headers=OURS, content_type="multipart/form-data"
    )
    assert answer.status_code == 415
    assert office.runs.recent() == []


def test_too_many_waiting_files_are_refused(office: Office) -> None:
    browser = office.browser(Role.APPROVER)
    for _ in range(MAX_FILES):
        upload(browser)
        office.time.move_on(seconds=1)
    assert f"{MAX_FILES} previews of files are waiting already" in upload(browser)
    assert browser.status == 429
    assert len(office.runs.recent()) == MAX_FILES


def test_the_plan_of_a_file_cannot_be_applied(office: Office) -> None:
    run = states.previewed(office)
    browser = office.browser(Role.APPROVER)
    assert ">Apply " in browser.get(address("run", id=run.run_id))
    made = states.planned(office, dry_run=True)
    report = {"whatIf": [HOSTILE]}
    values = {"finished_at": office.time(), "report": report}
    office.runs.move(made.run_id, RunStatus.PLANNING, RunStatus.DONE, **values)
    html = browser.get(address("run", id=made.run_id))
    assert "was read for this preview, which changed nothing." in html
    assert ">Apply " not in html
    assert "<script>alert" not in html
    browser.post(address("apply"), {"formToken": token_of(browser), "run": made.run_id})
    assert browser.status == 409


def test_names_of_files_have_no_folders_and_no_odd_characters() -> None:
    for name, plain in (
        ("../../etc/passwd.yaml", "passwd.yaml"),
        ("a\\b.json", "b.json"),
        ("..", ""),
        ("x\0\u202ey.yaml", "x__y.yaml"),
        ("é (2).jsonl.gz", "é (2).jsonl.gz"),
        ("n" * 300 + ".yaml", "n" * 95 + ".yaml"),
    ):
        assert plain_name(name) == plain
