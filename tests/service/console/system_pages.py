"""Visits the doctor, sessions, settings, the sign-in, and error pages."""

import re
import sqlite3
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from app.access.index.index import AccessIndex
from app.commands.bootstrap.service import service_app
from app.foundation.audit import Actor, Audit, AuditAction
from app.foundation.database.engine import writing
from app.service.admin.settings import AdminSettings
from app.service.console.examinations import ExaminationError, ExaminationFinding, begin_examination, run_examination
from app.service.console.settings import ConsoleSettings, OidcSettings, Role
from app.service.console.urls import address
from app.sync.runs.run import RunRequest
from tests.service.console.conftest import TOKENS, Browser, Office
from tests.service.console.issuer import running_issuer
from tests.service.console.test_oidc import settings_of, sign_in
from tests.service.console.visitors import Visitors

FINDINGS = [
    *(ExaminationFinding(state, state, "so it is", "do it") for state in ("ok", "warning", "problem")),
    ExaminationFinding("directory", "problem", "it is away", "usher directory check shows the errors"),
    ExaminationFinding("directory", "warning", "crm: it is slow", "wait"),
    ExaminationFinding("runs", "warning", "there was none yet", "begin one"),
    ExaminationFinding("held deletes", "warning", "3 deletes wait for approval: many", "approve them"),
    ExaminationFinding("backend", "problem", "it is away", "start it"),
]


def visit_doctor(visitors: Visitors) -> None:
    """Never, under way without and with findings, done, and failed; where it can be run and where it cannot."""
    office = visitors.office

    def well() -> Iterator[ExaminationFinding]:
        yield from FINDINGS

    def badly() -> Iterator[ExaminationFinding]:
        raise ExaminationError("it ended")

    app = service_app(office.settings, office.engine, clock=office.time, new_id=lambda: "made", examine=well)
    admin = Browser(app.test_client())
    admin.sign_in(TOKENS[Role.ADMIN])

    def show() -> None:
        admin.get(address("doctor"))
        assert admin.status == 200
        admin.get(address("doctor"), **{"x-fragment": "1"})
        assert admin.status == 200
        visitors.show("doctor")

    show()
    for look in (well, lambda: iter(FINDINGS[:2]), lambda: iter(FINDINGS[:1]), badly):
        examination_id = begin_examination(office.engine, office.time, "mira", lambda _: None)
        assert examination_id is not None
        show()
        visitors.send(Role.ADMIN, "doctor", 409)
        run_examination(office.engine, office.time, examination_id, look).join()
        show()
    visitors.send(Role.ADMIN, "doctor", 409)


def visit_system(visitors: Visitors) -> None:
    """The audit log, the settings, the sessions, the sync form, and each look of a page."""
    office, show = visitors.office, visitors.show
    show("audit")
    show("audit", actor="nobody")
    show("audit", 400, since="soon", until="late")
    show("audit", since="2100-01-01", until="2100-01-02")
    run = office.held_run()
    verify, _ = office.runs.enqueue(RunRequest(trigger="console", verify=True, organization_ids=("acme",)))
    with writing(office.engine) as connection:
        audit = Audit(office.time)
        for _ in range(60):
            audit.record(connection, Actor(name="mira", role="admin", way="api", address="192.0.2.1"), AuditAction.SYNC)
        for outcome in ("done; there may be more", "begun", "no change: registered", "the outcome is unknown", "no"):
            audit.record(connection, Actor(name="", way="api"), AuditAction.REGISTER, outcome=outcome)
        for subject in ("sign-in", "/resync", f"approved: {run.run_id}"):
            audit.record(connection, Actor(name="", way="api"), AuditAction.REFUSE, subject=subject, outcome="no")
        actor = Actor(name="", way="command")
        audit.record(connection, actor, AuditAction.SYNC, subject=verify.run_id)
        audit.record(connection, actor, AuditAction.APPROVE, subject=run.run_id, reason="intended")
    show("audit")
    show("audit", actor="mira")
    for action in ("approved", "of another version"):
        show("audit", action=action)
    show("audit", before=1)
    for page in ("sessions", "settings", "keys"):
        show(page)
    for look in ({"theme": "dark"}, {"times": "utc"}, {"keys": "off"}, {"theme": "system"}):
        visitors.send(Role.VIEWER, "look", 200, **look)
        visitors.browsers[Role.VIEWER].get(address("keys"))
    origins = {"console.name": "environment variable USHER_CONSOLE__NAME"}
    app = service_app(office.settings, office.engine, clock=office.time, new_id=lambda: "x", origins=origins)
    browser = Browser(app.test_client())
    browser.sign_in(TOKENS[Role.VIEWER])
    for query in ({}, {"all": 1}, {"q": "console"}, {"q": "nothing like it"}):
        browser.get(address("settings", **query))
        assert browser.status == 200
    fields = {"organizations": "x" * 600, "users": "x" * 600, "reason": "y" * 1_001}
    visitors.send(Role.ADMIN, "sync", 400, verify="1", deletes="1", preview="1", **fields)
    visitors.send(Role.APPROVER, "sync", 400, **fields)


def visit_problems(visitors: Visitors, monkeypatch: pytest.MonkeyPatch) -> None:
    """Error pages: unknown, forbidden, conflict, unavailable; with and without a session."""
    show = visitors.show
    show("nowhere", 404)
    show("run", 404, id="nobody")
    show("runs", 400, status="odd")
    visitors.browsers[Role.VIEWER].get(address("sync"))
    stranger = visitors.office.browser()
    stranger.get("/console/nowhere")
    assert stranger.status == 404
    run = visitors.office.runs.recent()[0]
    visitors.send(Role.APPROVER, "apply", 409, run=run.run_id)
    away = OperationalError("SELECT 1", {}, sqlite3.OperationalError("unable to open database file"))

    def fails(*_: object) -> None:
        raise away

    with monkeypatch.context() as patched:
        patched.setattr("app.service.console.gate.page_reading", fails)
        show("overview", 503)


def visit_sign_in(office: Office) -> None:
    """By token, by an issuer, by both, by neither, with errors, and without a role."""
    for name, url, tokens in product(("", "Test"), ("", "http://127.0.0.1:9"), (office.settings.console.tokens, ())):
        oidc = settings_of(url) if url else OidcSettings()
        browser = _with_console(office, name=name, oidc=oidc, tokens=tokens).browser()
        for query in ({}, {"to": "/console/runs"}, {"lost": "1"}):
            browser.get(address("sign_in", **query))
            assert browser.status == 200
        browser.sign_in("another")
        assert browser.status == 403
        if tokens:
            browser.sign_in(TOKENS[Role.ADMIN])
            assert browser.status == 200
    with running_issuer() as issuer:
        issuer.now = lambda: office.time().timestamp()
        front = _with_console(office, oidc=settings_of(issuer.url), tokens=office.settings.console.tokens)
        assert "Overview" in sign_in(front.browser(), issuer)
        front.browser(Role.ADMIN).get(address("sessions"))
        issuer.user["groups"] = ["sales"]
        assert "None of your groups" in sign_in(front.browser(), issuer)


def visit_index(office: Office, folder: Path) -> None:
    """The overview while the index is built, and after."""
    index = AccessIndex(office.engine, folder, clock=office.time)
    browser = office.browser(Role.VIEWER, index)
    assert "the index is not available" in browser.get(address("overview"))
    index.update()
    overview = browser.get(address("overview"))
    assert "from the index" in overview
    assert re.search(r"current [0-9.]+ s ago", overview)
    index.close()


def _with_console(office: Office, **given: Any) -> Office:
    """The office with these settings of the console, and no token of an admin of the HTTP API."""
    console = ConsoleSettings(public_url="http://localhost", **given)
    settings = office.settings.model_copy(update={"console": console, "admin": AdminSettings()})
    return Office(settings, office.engine, office.time, office.runs)
