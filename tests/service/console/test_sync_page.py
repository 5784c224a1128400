"""Tests of the page that starts a sync: its scope, its errors, its forecast, and the run that it starts."""

import re
from html import unescape
from pathlib import Path

import pytest
from sqlalchemy import update

from app.access.source_tables import DirectorySourceRow
from app.foundation.database.engine import writing
from app.service.console.settings import Role
from app.service.console.urls import address
from app.sync.plan.tables import PlanAccessRow
from app.sync.runs.run import RunStatus
from tests.service.console import states
from tests.service.console.conftest import Office, opened_office
from tests.service.console.test_pages import HOSTILE
from tests.service.console.visitors import add_rows

SYNC = address("sync")


def _button(html: str) -> str:
    """The label of the button that starts the run."""
    button = re.search(r'<button(?: class="primary")? name="go" value="1">(.*?)</button>', html)
    assert button is not None
    return unescape(button[1])


def _text(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html.partition("<main")[2])).split())


@pytest.mark.parametrize(
    ("query", "title", "label"),
    [
        ({}, "Sync everything", ""),
        ({"preview": 1}, "Preview everything", ""),
        ({"organizations": "acme"}, "Sync Acme", ""),
        ({"organizations": "acme\nelse"}, "Sync Acme, and 1 id that is not in the directory", "Sync 2 organizations"),
        ({"users": "bob", "organizations": "acme"}, "Sync Bob in Acme", "Sync Bob"),
        ({"users": "bob\ncleo\nada"}, "Sync 3 users", ""),
    ],
)
def test_the_button_names_the_scope(office: Office, query: dict[str, object], title: str, label: str) -> None:
    html = office.browser(Role.APPROVER).get(address("sync", **query))
    assert _button(html) == (label or title)
    assert f"<h1>{title}</h1>" in html


def test_a_scope_is_built_by_name_without_a_script(office: Office) -> None:
    browser = office.browser(Role.APPROVER)
    html = browser.send(SYNC, SYNC, organization="Acme", narrow="1", verify="1", reason="to see")
    assert (browser.status, _button(html)) == (200, "Sync Acme")
    assert 'name="verify" value="1" checked' in html
    assert 'value="to see"' in html
    # What was typed but not added is never synced without being shown.
    html = browser.post(SYNC, _form(html) | {"user": "CLEO@else.example", "go": "1"})
    assert "<h1>Sync Cleo in Acme</h1>" in html
    assert office.runs.recent() == []
    removed = browser.post(SYNC, _form(html) | {"remove": "organization acme"})
    assert _button(removed) == "Sync Cleo"
    browser.post(SYNC, _form(html) | {"go": "1"})
    [run] = office.runs.recent()
    assert (run.organization_ids, run.user_ids, run.dry_run) == (("acme",), ("cleo",), False)


def _form(html: str) -> dict[str, str]:
    hidden = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', html.partition("<main")[2])
    return {name: unescape(value) for name, value in hidden}


@pytest.mark.parametrize(
    ("field", "typed", "error"),
    [
        ("user", "nobody", "There is no such user."),
        ("organization", HOSTILE, "There is no such organization."),
        ("user", "a\0b", "There is no such user."),
        ("user", "x" * 600, "There is no such user."),
        ("organization", "Acme", ""),
    ],
)
def test_unknown_records_are_not_added(office: Office, field: str, typed: str, error: str) -> None:
    browser = office.browser(Role.APPROVER)
    html = browser.send(SYNC, SYNC, narrow="1", **{field: typed})
    assert browser.status == (400 if error else 200)
    assert error in html
    assert "<script>alert" not in html
    assert office.runs.recent() == []


def test_the_forecast_is_from_the_last_preview_of_the_same_scope(office: Office) -> None:
    browser = office.browser(Role.APPROVER)
    text = _text(browser.get(SYNC))
    assert "In scope: 1 organization, with 2 members, 0 folders, 2 documents and 1 grant." in text
    assert "Nothing has been synced yet." in text
    states.done(office)
    assert "The last sync ended" in _text(browser.get(SYNC))
    preview = states.previewed(office)
    html = browser.get(SYNC)
    assert address("run", id=preview.run_id) in html
    assert "found 4 changes and 2 deletes that would be held." in _text(html)
    # It is of another scope.
    assert "Not known yet" in browser.get(address("sync", organizations="acme"))
    states.done(office)
    assert "Not known yet" in browser.get(SYNC)


def test_the_page_states_what_happens_to_items_that_wait(office: Office) -> None:
    browser = office.browser(Role.APPROVER)
    html = browser.get(SYNC)
    assert "Held deletes are planned again and stay held while they exceed the limits." in html
    assert f'Parked items stay parked until they change or are <a href="{address("parked")}">retried' in html
    html = browser.get(address("sync", preview=1, organizations="acme"))
    assert "Held deletes" not in html.partition("<main")[2]
    assert "Not known yet" in html


def test_the_preview_of_a_file_is_not_what_a_sync_would_do(office: Office) -> None:
    made = states.planned(office, dry_run=True)
    values = {"finished_at": office.time(), "report": {"whatIf": ["next.yaml"]}}
    office.runs.move(made.run_id, RunStatus.PLANNING, RunStatus.DONE, **values)
    assert "Not known yet" in office.browser(Role.APPROVER).get(SYNC)


def test_a_preview_before_the_last_sync_is_named_as_older(office: Office) -> None:
    preview = states.previewed(office)
    states.done(office)
    html = office.browser(Role.APPROVER).get(SYNC)
    assert "is older than that sync" in _text(html)
    assert address("run", id=preview.run_id) in html


def test_ids_that_are_not_in_the_directory_are_marked(office: Office) -> None:
    text = _text(office.browser(Role.APPROVER).get(address("sync", users="bob\nnobody")))
    assert "Sync Bob, and 1 id that is not in the directory" in text
    assert "Bob bob ×" in text
    assert "nobody not in the directory: a sync deletes what the backend still has of it ×" in text
    assert "only for Bob, and 1 id that is not in the directory." in text


def test_a_record_with_an_empty_name_is_in_the_directory(database_url: str, tmp_path: Path) -> None:
    directory = 'users: [{userId: ann, name: "", email: ""}]'
    with opened_office(database_url, tmp_path, directory) as office:
        text = _text(office.browser(Role.APPROVER).get(address("sync", users="ann\nnobody")))
    assert "ann ×" in text
    assert "nobody not in the directory: a sync" in text


def test_held_deletes_are_known_before_a_preview_and_deleted_without_limits(office: Office) -> None:
    browser = office.browser(Role.ADMIN)
    assert "regardless of the number. It cannot be undone." in _text(browser.get(SYNC))
    states.held(office)
    text = _text(browser.get(SYNC))
    assert "Known already: 2 held deletes, 0 items retrying, 0 items parked. The rest needs a preview." in text
    assert "This includes the 2 held deletes. It cannot be undone." in text
    of_one = _text(browser.get(address("sync", organizations="acme")))
    assert "Not known yet" in of_one
    assert "This includes" not in of_one


def test_held_deletes_of_the_preview_have_a_column(office: Office) -> None:
    states.held(office)
    states.previewed(office)
    text = _text(office.browser(Role.ADMIN).get(SYNC))
    assert "This includes the 2 deletes that the preview would hold. It cannot be undone." in text
    assert "Kind Add Update Delete Held folders 2 0 0 0 documents 2 0 2 2" in text


def test_preview_first_is_the_main_button_if_the_sync_would_remove_access(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = office.browser(Role.APPROVER)
    main, beside = '<button class="primary" name="go" value="preview">', '<button name="go" value="preview">'
    html = browser.get(SYNC)
    assert main in html
    assert "Not known yet" in html
    preview = states.previewed(office)
    html = browser.get(SYNC)
    link = f'<a class="button primary" href="{address("run", id=preview.run_id)}">'
    assert f"{link}Open the preview of&nbsp;<time" in html
    assert f"{beside}Preview again</button>" in html
    assert main not in html
    # The directory has changed since.
    with monkeypatch.context() as patched:
        patched.setattr("app.service.console.pages.sync.plan_problem", lambda *_: "outdated")
        assert f"{beside}Preview first</button>" in browser.get(SYNC)
    row = {"plan_id": preview.plan_id, "ordinal": 1, "organization_id": "acme", "kind": "document", "names": "{}"}
    row |= {"users": 1, "resources": 1, "pairs": 1, "user_ids": '["bob"]', "resource_ids": '["handbook"]'}
    add_rows(office, PlanAccessRow, [row | {"before": "viewer", "after": ""}])
    monkeypatch.setattr("app.service.console.pages.sync.plan_problem", lambda *_: "outdated")
    html = browser.get(SYNC)
    assert main in html
    assert beside not in html
    assert '<button name="go" value="1">Sync everything</button>' in html
    # A preview removes nothing.
    assert _button(browser.get(address("sync", preview=1))) == "Preview everything"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"last_verdict": "failed", "last_reason": "no such file"},
            "Source people cannot be read: no such file. Until it can, a sync uses its records of",
        ),
        ({"last_verdict": "failed", "last_reason": "away", "last_good_at": None}, "away. It was never read before."),
        ({"last_verdict": "partial"}, "Source people was last read partially. A sync removes none of its records"),
    ],
)
def test_a_source_that_cannot_be_read_is_named_before_the_form(
    office: Office, values: dict[str, str | None], sentence: str
) -> None:
    states.previewed(office)
    browser = office.browser(Role.APPROVER)
    assert "Source people" not in browser.get(SYNC)
    with writing(office.engine) as connection:
        connection.execute(update(DirectorySourceRow.__table__).values(**values))
    html = browser.get(SYNC)
    assert sentence in _text(html)
    assert html.index("Source <strong>people") < html.index('<button name="go" value="1">Sync everything</button>')


def test_preview_first_starts_a_preview_of_the_same_scope(office: Office) -> None:
    browser = office.browser(Role.APPROVER)
    browser.send(address("sync", organizations="acme"), SYNC, go="preview")
    [run] = office.runs.recent()
    assert (run.dry_run, run.organization_ids) == (True, ("acme",))
