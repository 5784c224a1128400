"""The doctor at the console: one at a time over all nodes, findings as they come, given up after a while."""

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
from app.service.console.console import address
from app.service.console.examinations import (
    LONGEST,
    ExaminationError,
    ExaminationFinding,
    Examinations,
    Examine,
    begun,
    run_beside,
)
from app.service.console.settings import Role
from tests.service.console.conftest import TOKENS, Browser, Office

FINE = ExaminationFinding("database", "ok", "it answers", "")
WRONG = ExaminationFinding("<b>\u202e", "problem", "<script>alert(1)</script>", "mend\tit")


def examined(office: Office, examine: Examine) -> Browser:
    """An admin's browser at a service with this doctor."""
    app = service_app(office.settings, office.engine, clock=office.time, new_id=lambda: "made", examine=examine)
    browser = Browser(app.test_client())
    browser.sign_in(TOKENS[Role.ADMIN])
    return browser


def outcome(office: Office) -> str:
    """Of the last examination."""
    with reading(office.engine) as connection:
        last = Examinations(office.time).last(connection)
    return "" if last is None else last.outcome


def waited_for(office: Office, word: str) -> None:
    """Waits until the last one came to this."""
    for _ in range(500):
        if outcome(office) == word:
            return
        Event().wait(0.01)
    raise AssertionError(outcome(office))


def test_findings_are_shown_as_they_come_and_there_is_one_at_a_time(office: Office) -> None:
    first, last = Event(), Event()

    def examine() -> Iterator[ExaminationFinding]:
        yield FINE
        first.set()
        assert last.wait(10)
        yield WRONG

    browser = examined(office, examine)
    assert "The doctor has not run yet" in browser.get(address("doctor"))
    browser.send(address("doctor"), address("doctor"))
    assert first.wait(10)
    html = browser.get(address("doctor"))
    assert 'data-live="/console/doctor"' in html
    assert "it answers" in html
    assert "Run the doctor" not in html
    token = html.partition('name="formToken" value="')[2].partition('"')[0]
    assert "already under way" in browser.post(address("doctor"), {"formToken": token})
    assert browser.status == 409
    last.set()
    waited_for(office, "done")
    html = browser.get(address("doctor"), **{"x-fragment": "1"})
    assert "data-ended" in html
    assert "&lt;script&gt;alert(1)" in html
    assert "\u202e" not in html
    with reading(office.engine) as connection:
        assert [one.action for one in audit_page(connection, action="doctor run")] == ["doctor run"]


@pytest.mark.parametrize("role", [Role.VIEWER, Role.APPROVER])
def test_admins_alone_run_it(office: Office, role: Role) -> None:
    def look() -> Iterator[ExaminationFinding]:
        yield FINE

    app = service_app(office.settings, office.engine, clock=office.time, new_id=lambda: "x", examine=look)
    browser = Browser(app.test_client())
    browser.sign_in(TOKENS[role])
    html = browser.get(address("doctor"))
    assert "Run the doctor" not in html
    token = html.partition('name="formToken" value="')[2].partition('"')[0]
    browser.post(address("doctor"), {"formToken": token})
    assert browser.status == 403
    assert outcome(office) == ""


def test_one_that_ends_nowhere_is_given_up(office: Office) -> None:
    examinations = Examinations(office.time)
    stuck = begun(office.engine, examinations, "mira", lambda _: None)
    assert stuck is not None
    office.time.move_on(seconds=LONGEST.total_seconds())
    assert begun(office.engine, examinations, "mira", lambda _: None) is None
    office.time.move_on(seconds=1)
    assert outcome(office) == "given up after 10 minutes"
    other = begun(office.engine, examinations, "lee", lambda _: None)
    assert other is not None
    # What comes of the first one now is nobody's any more.
    run_beside(office.engine, examinations, stuck, lambda: iter([WRONG])).join()
    assert outcome(office) == "running"
    run_beside(office.engine, examinations, other, lambda: iter([FINE])).join()
    assert outcome(office) == "done"


def test_a_doctor_that_fails_says_so(office: Office) -> None:
    def fails(error: Exception) -> Examine:
        def examine() -> Iterator[ExaminationFinding]:
            yield FINE
            raise error

        return examine

    examinations = Examinations(office.time)
    for error, says in (
        (ExaminationError("it ended"), "it ended"),
        (RuntimeError("hunter2"), "it failed; see the"),
    ):
        made = begun(office.engine, examinations, "mira", lambda _: None)
        assert made is not None
        run_beside(office.engine, examinations, made, fails(error)).join()
        assert outcome(office).startswith(says)
    browser = office.browser(Role.ADMIN)
    html = browser.get(address("doctor"))
    assert "it answers" in html
    assert "hunter2" not in html
    assert "Run the doctor" not in html  # nobody can examine from here


def test_the_command_is_heard_line_by_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def says(code: str) -> list[ExaminationFinding]:
        script = tmp_path / "doctor.py"
        script.write_text(f"import sys, time\n{code}")
        popen = subprocess.Popen

        def instead(_command: Any, **given: Any) -> Any:
            return popen([sys.executable, str(script)], **given)

        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", instead)
            return list(examiner([])())

    assert says(r"print('problem\ta b\tsays\tdo it'); print('ok\tdatabase\tfine'); sys.exit(1)") == [
        ExaminationFinding("a b", "problem", "says", "do it"),
        ExaminationFinding("database", "ok", "fine", ""),
    ]
    for code in ("sys.exit(2)", "print('usage')"):
        with pytest.raises(ExaminationError):
            says(code)
    monkeypatch.setattr(doctor_process, "LONGEST", LONGEST * 0)
    with pytest.raises(ExaminationError, match="given up"):
        says("time.sleep(30)")
