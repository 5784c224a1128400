"""The doctor's findings in healthy and faulty installations."""

import re
import shutil
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from sqlalchemy import text

from app.commands.doctor.backend import check_backend
from app.commands.doctor.checks import run_checks
from app.commands.doctor.finding import State
from app.foundation.clock import utc_now
from app.foundation.database.engine import writing
from app.sync.ledger.ledger import open_ledger
from app.sync.runs.lifecycle import Runs
from app.sync.runs.run import RunRequest, RunStatus
from tests.commands.doctor.conftest import Installation


def test_healthy_installation_has_only_ok_findings(installation: Installation) -> None:
    findings = installation.findings()
    assert [finding for finding in findings if finding.state is not State.OK or finding.advice] == []
    assert [finding.name for finding in findings] == [
        "settings",
        "database",
        "schema",
        "access model",
        "runs",
        "index",
        "directory",
        "backend",
        "clock",
        "registration",
        "service",
    ]
    [of_source] = [finding.message for finding in findings if finding.name == "directory"]
    assert re.fullmatch(
        r"people: 151 records; 151 records in force, last read \S+ \S+ ago \(everything, complete, \S+ s\)", of_source
    )


def test_findings_contain_no_secrets(installation: Installation) -> None:
    installation.register(installation.service_url, "another-SECRET")
    output = str(installation.findings())
    for secret in (installation.api_key, installation.auth_token, "another-SECRET", "QSBzZWNyZXQ"):
        assert secret not in output


Fault = Callable[[Installation], object]


def _set(**values: object) -> Fault:
    return lambda site: site.settings.update({key.replace("__", "."): value for key, value in values.items()})


def _used_with_another_key(site: Installation) -> None:
    engine = site.engine()
    open_ledger(engine, site.configuration().settings.backend.base_url, "key_of_another_workspace", utc_now)
    engine.dispose()


def _with_a_database_of_another_usher(site: Installation) -> None:
    shutil.copy(site.folder / "usher.db", site.folder / "other.db")
    site.settings["database_url"] = f"sqlite:///{site.folder}/other.db"
    _sql("UPDATE access_revision SET created_at = created_at - 1")(site)


def _opened_to_others(site: Installation) -> None:
    Path(str(site.engine().url.database)).chmod(0o644)


def _sql(*texts: str) -> Fault:
    def carry_out(site: Installation) -> None:
        engine = site.engine()
        with writing(engine) as connection:
            for sql in texts:
                connection.execute(text(sql))
        engine.dispose()

    return carry_out


_RETRIED = (
    "INSERT INTO item_failure (ledger_id, kind, organization_id, container_id, item_id, deleting, fingerprint,"
    " failures, retry_at, parked, message) VALUES (7, 'folder', 'acme', '', 'one', FALSE, '', 1, 0, FALSE, 'too long')"
)


def _refused(parked: str, *further: str) -> Fault:
    return _sql(
        "INSERT INTO ledger (ledger_id, base_url, api_key_digest, ledger_revision, created_at)"
        " VALUES (7, '', '', 0, 0)",
        "UPDATE run SET ledger_id = 7",
        "INSERT INTO item_failure (ledger_id, kind, organization_id, container_id, item_id, deleting, fingerprint,"
        f" failures, retry_at, parked, message) VALUES (7, 'document', 'acme', '', 'doc', FALSE, '', 10, 0, {parked},"
        " 'too long')",
        *further,
    )


def _move(site: Installation, content: str) -> None:
    other = site.people.with_name("other.jsonl")
    other.write_text(content)
    site.settings["directory.sources"] = [{"type": "file", "path": str(other)}]


def _empty_from_the_start(site: Installation) -> None:
    site.people.write_text("")
    _sql("DELETE FROM directory_source")(site)


def _late_clock(seconds: float) -> Fault:
    return lambda site: setattr(site.adapter, "off", timedelta(seconds=seconds))


def _failed_run(site: Installation) -> None:
    engine = site.engine()
    runs = Runs(engine, utc_now, Random(2))
    run, _ = runs.enqueue(RunRequest(trigger="schedule"))
    runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, started_at=utc_now())
    later = utc_now() + timedelta(seconds=1)
    runs.move(run.run_id, RunStatus.READING, RunStatus.FAILED, finished_at=later, error="the backend: down")
    engine.dispose()


def _queued_run(site: Installation) -> None:
    engine = site.engine()
    Runs(engine, lambda: utc_now() - timedelta(minutes=3), Random(2)).enqueue(RunRequest(trigger="continuation"))
    engine.dispose()


@pytest.mark.parametrize(
    ("fault", "name", "state", "message"),
    [
        (_queued_run, "runs", State.WARNING, "1 run is queued, the first since "),
        (_set(provider__auth_tokens=[]), "provider", State.PROBLEM, "usher serve refuses to start"),
        (_set(provider__allow_anonymous=True), "provider", State.WARNING, "anyone who reaches the service"),
        (
            _set(admin__tokens=["15-letters-long"]),
            "tokens",
            State.PROBLEM,
            "admin.tokens[0]: shorter than 16 characters",
        ),
        (_set(admin__tokens=[]), "admin", State.WARNING, "nobody can use /resync"),
        (_set(sync__schedule=""), "schedule", State.WARNING, "there are no scheduled syncs"),
        (_set(notifications__webhook__url=""), "notifications", State.WARNING, "nobody is notified"),
        (_set(database_url="sqlite:////nowhere/usher.db"), "database", State.PROBLEM, "there is no directory /nowhere"),
        (
            _set(database_url="postgresql+psycopg://me:TOPSECRET@127.0.0.1:1/n"),
            "database",
            State.PROBLEM,
            "onnection",
        ),
        (_sql("DELETE FROM usher_version"), "schema", State.PROBLEM, "older than this version"),
        (
            _sql("UPDATE usher_version SET version_num = '9999'"),
            "schema",
            State.WARNING,
            "newer than this version, which can still use it",
        ),
        (
            _sql(
                "UPDATE usher_version SET version_num = '9999'",
                "UPDATE schema_compatibility SET oldest_revision = '9999'",
            ),
            "schema",
            State.PROBLEM,
            "cannot use it any more",
        ),
        (
            lambda site: Path(str(site.engine().url.database)).chmod(0o644),
            "database",
            State.WARNING,
            "every user of this machine can read",
        ),
        (_sql("DELETE FROM access_revision"), "access model", State.PROBLEM, "never read"),
        (
            _sql("UPDATE directory_source SET last_good_at = last_good_at - 7200000"),
            "access model",
            State.OK,
            "read 2 hours ago",
        ),
        (_failed_run, "runs", State.PROBLEM, "the last run failed: the backend: down"),
        (
            _sql("UPDATE run SET started_at = started_at - 86400000, finished_at = finished_at - 86400000"),
            "runs",
            State.PROBLEM,
            "no run has begun since",
        ),
        (_sql("DELETE FROM run"), "runs", State.WARNING, "there was none yet"),
        (
            _refused("FALSE"),
            "failing items",
            State.WARNING,
            "1 item failed and is retrying, such as document doc of Acme: too long",
        ),
        (
            _refused("TRUE"),
            "failing items",
            State.WARNING,
            "1 item was parked after 10 tries, such as document doc of Acme: too long",
        ),
        (
            _refused("TRUE", _RETRIED),
            "failing items",
            State.WARNING,
            "2 items: 1 item was parked after 10 tries, such as document doc of Acme: too long; 1 item failed and is",
        ),
        (
            _sql('UPDATE run SET status = \'partial\', counts = \'{"document": {"add": {"failed": 120}}}\''),
            "runs",
            State.PROBLEM,
            "every item of the last run failed: 120 items",
        ),
        (
            _sql(
                "INSERT INTO worker (worker_id, name, started_at, seen_at, leads) VALUES ('x', 'node:1', 1, 1, FALSE)"
            ),
            "worker",
            State.PROBLEM,
            "no worker is running: the last heartbeat, of node:1, was at",
        ),
        (lambda site: site.people.unlink(), "directory", State.PROBLEM, "people: "),
        (lambda site: site.people.write_text(""), "directory", State.PROBLEM, "is empty, but provided 151 records"),
        (
            lambda site: _move(site, ""),
            "directory",
            State.PROBLEM,
            "is read for the first time and is empty, while 151",
        ),
        (
            lambda site: _move(site, site.people.read_text()),
            "directory",
            State.WARNING,
            "people: is no longer among directory.sources, and 151 records of it are still in force",
        ),
        (_empty_from_the_start, "directory", State.WARNING, "is empty: nobody gets access"),
        (
            lambda site: site.people.write_text('{"kind": "user"}\n'),
            "directory",
            State.WARNING,
            "people: was read partially: 0 records, but 1 malformed",
        ),
        (
            lambda site: site.people.write_text(site.people.read_text()[:100].rpartition("\n")[0] + "\n"),
            "directory",
            State.PROBLEM,
            "would take away at least 150 of 150 user records, more than 20 and more than 20 %",
        ),
        (_set(backend__api_key=""), "backend", State.PROBLEM, "is empty: nothing can be synced"),
        (_set(backend__auth_token="wrong"), "backend", State.PROBLEM, "refuses the credentials"),
        (_set(backend__header_prefix="x-other-"), "backend", State.PROBLEM, "refuses the credentials"),
        (_set(backend__base_url="http://backend.acme.example"), "backend", State.WARNING, "without encryption"),
        (_set(backend__proxy="http://proxy.acme.example:3128"), "backend", State.WARNING, "without encryption"),
        (_late_clock(-60), "clock", State.WARNING, "ahead of the backend's"),
        (_late_clock(3600), "clock", State.PROBLEM, "behind the backend's"),
        (
            lambda site: site.register(site.service_url, "ask-me-for-tests", in_use=False),
            "registration",
            State.WARNING,
            "does not call the service",
        ),
        (
            lambda site: site.register(site.service_url, "else"),
            "registration",
            State.PROBLEM,
            "not among provider.auth",
        ),
        (lambda site: site.register(site.service_url, ""), "registration", State.PROBLEM, "without a token"),
        (
            lambda site: site.register(site.service_url + "/old", "ask-me-for-tests"),
            "registration",
            State.WARNING,
            "but provider.path is /permissions/check",
        ),
        (lambda site: site.register(site.service_url, "else"), "service", State.PROBLEM, "answers with 401"),
        (
            lambda site: site.register("http://127.0.0.1:1/permissions/check", "ask-me-for-tests"),
            "service",
            State.PROBLEM,
            "nothing listens at 127.0.0.1:1 (connection refused)",
        ),
    ],
)
def test_faults_are_found_with_advice(
    installation: Installation, fault: Fault, name: str, state: State, message: str
) -> None:
    fault(installation)
    found = [finding for finding in installation.of(name) if message in finding.message]
    assert [finding.state for finding in found] == [state], installation.of(name)
    assert bool(found[0].advice) is (state is not State.OK)
    assert "TOPSECRET" not in str(found)
    assert "\n" not in found[0].message


def test_doctor_changes_nothing(installation: Installation) -> None:
    installation.settings["database_url"] = f"sqlite:///{installation.folder}/new/usher.db"
    installation.findings()
    assert not (installation.folder / "new").exists()


def test_unreachable_backend_is_reported_in_time(installation: Installation) -> None:
    installation.settings["backend.base_url"] = "http://127.0.0.1:1"
    [found] = check_backend(installation.configuration().settings, clock=utc_now)
    assert (found.name, found.state) == ("backend", State.PROBLEM)
    assert "nothing listens at 127.0.0.1:1 (connection refused)" in found.message


def test_core_backend_has_only_warnings(installation: Installation) -> None:
    real = installation.adapter.send

    def send(request: object, *arguments: object, **keywords: object) -> object:
        answer = real(request, *arguments, **keywords)
        if "permissionprovider" in request.url:  # type: ignore[attr-defined] # a prepared request
            answer.status_code = 404
        return answer

    installation.adapter.send = send  # type: ignore[method-assign,assignment] # this one instance
    [found] = installation.of("registration")
    assert found.state is State.WARNING
    assert "cannot return its registration" in found.message


def test_messages_are_sent_only_with_notify(installation: Installation) -> None:
    installation.settings["notifications.webhook.url"] = "http://127.0.0.1:1/"
    configuration = installation.configuration()
    assert installation.of("notifications") == []
    found = list(run_checks(configuration, clock=utc_now, notify=True, transport=installation.adapter))
    assert [site.message for site in found if site.name == "notifications"] == [
        "webhook: nothing listens at 127.0.0.1:1 (connection refused)"
    ]


def test_missing_driver_names_its_extra(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    installation.settings["database_url"] = "postgres://me:TOPSECRET@127.0.0.1:1/n"
    [found] = installation.of("database")
    assert (found.state, found.advice) == (State.PROBLEM, "install it, or let database_url name a SQLite file")
    assert "pip install 'usher[postgres]'" in found.message
