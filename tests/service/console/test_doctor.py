"""The doctor at the console: one run at a time, findings as they arrive, and a timeout."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from app.commands.bootstrap import doctor_process
from app.commands.bootstrap.doctor_process import examiner
from app.commands.bootstrap.service import service_app
from app.foundation.audit import audit_page
from app.foundation.database.engine import reading
from app.service.console.examinations import (
    TIMEOUT,
    ExaminationError,
    ExaminationFinding,
    Examine,
    begin_examination,
    last_examination,
    run_examination,
)
from app.service.console.settings import Role
from app.service.console.urls import address
from tests.service.console.conftest import TOKENS, Browser, Office

FINE = ExaminationFinding("database", "ok", "it answers", "")
WRONG = ExaminationFinding("<b>\u202e", "problem", "<script>alert(1)</script>", "fix\tit")


def signed_in(office: Office, examine: Examine) -> Browser:
    """An admin's browser at a service with this doctor."""
    app = service_app(office.settings, office.engine, clock=office.time, new_id=lambda: "made", examine=examine)
    browser = Browser(app.test_client())
    browser.sign_in(TOKENS[Role.ADMIN])
    return browser


def outcome(office: Office) -> str:
    """The outcome of the last examination."""
    with reading(office.engine) as connection:
        last = last_examination(connection, office.time())
    return "" if last is None else last.outcome


def wait_for(office: Office, expected: str) -> None:
    """Waits until the last examination has this outcome."""
    for _ in range(500):
        if outcome(office) == expected:
            return
        Event().wait(0.01)
    raise AssertionError(outcome(office))


def test_findings_are_shown_as_they_arrive_and_one_examination_runs_at_a_time(office: Office) -> None:
    first, last = Event(), Event()

    def examine() -> Iterator[ExaminationFinding]:
        yield FINE
        first.set()
        assert last.wait(10)
        yield WRONG

    browser = signed_in(office, examine)
    assert "The doctor has not run yet" in browser.get(address("doctor"))
    browser.send(address("doctor"), address("doctor"))
    assert first.wait(10)
    html = browser.get(address("doctor"))
    assert 'data-live="/console/doctor"' in html
    assert "It answers" in html
    assert "Run the doctor" not in html
    token = html.partition('name="formToken" value="')[2].partition('"')[0]
    assert "already running" in browser.post(address("doctor"), {"formToken": token})
    assert browser.status == 409
    last.set()
    wait_for(office, "done")
    html = browser.get(address("doctor"), **{"x-fragment": "1"})
    assert "data-ended" in html
    assert "&lt;script&gt;alert(1)" in html
    assert "\u202e" not in html
    with reading(office.engine) as connection:
        assert [one.action for one in audit_page(connection, action="doctor run")] == ["doctor run"]


def test_findings_link_to_their_pages_the_worst_first(office: Office) -> None:
    directory = ExaminationFinding(
        "directory", "problem", "crm-db: it is away", "usher directory check shows the errors"
    )
    backend = ExaminationFinding("backend", "warning", "it is slow", "find out why")

    def examine() -> Iterator[ExaminationFinding]:
        yield from (FINE, backend, directory)

    browser = signed_in(office, examine)
    browser.send(address("doctor"), address("doctor"))
    wait_for(office, "done")
    html = browser.get(address("doctor"))
    assert "1 problem, 1 warning" in html
    assert ">done<" not in html
    assert (
        html.index('>source crm-db</th><td data-label="Finding" class="wide">It is away')
        < html.index("It is slow")
        < html.index("It answers")
    )
    assert f'<a href="{address("sources")}">Show the sources</a>' in html
    assert "usher directory check" not in html
    held = "3 deletes wait for approval until 2026-12-03 00:15 UTC: in acme, 3 users would be deleted"
    begun = begin_examination(office.engine, office.time, "mira", lambda _: None)
    run_examination(
        office.engine, office.time, begun or 0, lambda: iter([ExaminationFinding("held deletes", "warning", held, "")])
    ).join()
    words = browser.get(address("doctor"))
    assert "3 deletes wait for approval until 2026-12-03 00:15 UTC<" in words
    assert f'<a href="{address("held")}">Review the deletes</a>' in words
    assert f'Find out why. <a href="{address("settings", q="backend")}">Show its settings</a>' in html


@pytest.mark.parametrize("role", [Role.VIEWER, Role.APPROVER])
def test_only_admins_run_the_doctor(office: Office, role: Role) -> None:
    def examine() -> Iterator[ExaminationFinding]:
        yield FINE

    app = service_app(office.settings, office.engine, clock=office.time, new_id=lambda: "x", examine=examine)
    browser = Browser(app.test_client())
    browser.sign_in(TOKENS[role])
    html = browser.get(address("doctor"))
    assert "Run the doctor" not in html
    token = html.partition('name="formToken" value="')[2].partition('"')[0]
    browser.post(address("doctor"), {"formToken": token})
    assert browser.status == 403
    assert outcome(office) == ""


def test_an_examination_times_out(office: Office) -> None:
    stuck = begin_examination(office.engine, office.time, "mira", lambda _: None)
    assert stuck is not None
    office.time.move_on(seconds=TIMEOUT.total_seconds())
    assert begin_examination(office.engine, office.time, "mira", lambda _: None) is None
    office.time.move_on(seconds=1)
    assert outcome(office) == "given up after 10 minutes"
    other = begin_examination(office.engine, office.time, "lee", lambda _: None)
    assert other is not None
    # Its findings are ignored now.
    run_examination(office.engine, office.time, stuck, lambda: iter([WRONG])).join()
    assert outcome(office) == "running"
    run_examination(office.engine, office.time, other, lambda: iter([FINE])).join()
    assert outcome(office) == "done"


def test_a_failed_doctor_is_reported(office: Office) -> None:
    def fails(error: Exception) -> Examine:
        def examine() -> Iterator[ExaminationFinding]:
            yield FINE
            raise error

        return examine

    for error, expected in (
        (ExaminationError("it ended"), "it ended"),
        (RuntimeError("hunter2"), "it failed; see the"),
    ):
        examination_id = begin_examination(office.engine, office.time, "mira", lambda _: None)
        assert examination_id is not None
        run_examination(office.engine, office.time, examination_id, fails(error)).join()
        assert outcome(office).startswith(expected)
    browser = office.browser(Role.ADMIN)
    html = browser.get(address("doctor"))
    assert "It answers" in html
    assert "hunter2" not in html
    assert "Run the doctor" not in html  # this office cannot run the doctor


def test_the_output_of_the_command_is_parsed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def findings(code: str) -> list[ExaminationFinding]:
        script = tmp_path / "doctor.py"
        script.write_text(f"import sys, time\n{code}")
        popen = subprocess.Popen

        def fake(_command: Any, **given: Any) -> Any:
            return popen([sys.executable, str(script)], **given)

        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", fake)
            return list(examiner([])())

    assert findings(r"print('problem\ta b\tsays\tdo it'); print('ok\tdatabase\tfine'); sys.exit(1)") == [
        ExaminationFinding("a b", "problem", "says", "do it"),
        ExaminationFinding("database", "ok", "fine", ""),
    ]
    for code in ("sys.exit(2)", "print('usage')"):
        with pytest.raises(ExaminationError):
            findings(code)
    monkeypatch.setattr(doctor_process, "TIMEOUT", TIMEOUT * 0)
    with pytest.raises(ExaminationError, match="given up"):
        findings("time.sleep(30)")
