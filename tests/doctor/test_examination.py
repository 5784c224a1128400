"""What the doctor finds in an installation that is well, and in one that is not."""

from collections.abc import Callable
from datetime import timedelta
from random import Random

import pytest
from sqlalchemy import text

from app.bootstrap import utc_now
from app.database.engine import writing
from app.doctor.backend import look_at_backend
from app.doctor.examination import examine
from app.doctor.finding import State
from app.store.runs import RunRequest, Runs, RunStatus
from tests.doctor.conftest import Installation


def test_healthy_installation_has_nothing_to_do(installation: Installation) -> None:
    findings = installation.findings()
    assert [finding for finding in findings if finding.state is not State.OK or finding.advice] == []
    assert [finding.name for finding in findings] == [
        "settings",
        "database",
        "schema",
        "access model",
        "runs",
        "directory",
        "backend",
        "clock",
        "registration",
        "service",
    ]


def test_no_finding_holds_a_secret(installation: Installation) -> None:
    installation.register(installation.service_url, "another-SECRET")
    told = str(installation.findings())
    for secret in (installation.api_key, installation.auth_token, "another-SECRET", "QSBzZWNyZXQ"):
        assert secret not in told


Illness = Callable[[Installation], object]


def _set(**values: object) -> Illness:
    return lambda one: one.settings.update({key.replace("__", "."): value for key, value in values.items()})


def _told(*texts: str) -> Illness:
    def carry_out(one: Installation) -> None:
        engine = one.engine()
        with writing(engine) as connection:
            for sql in texts:
                connection.execute(text(sql))
        engine.dispose()

    return carry_out


def _late_clock(seconds: float) -> Illness:
    return lambda one: setattr(one.adapter, "off", timedelta(seconds=seconds))


def _failed_run(one: Installation) -> None:
    engine = one.engine()
    runs = Runs(engine, utc_now, Random(2))
    run, _ = runs.enqueue(RunRequest(trigger="schedule"))
    runs.move(run.run_id, RunStatus.READING, started_at=utc_now())
    later = utc_now() + timedelta(seconds=1)
    runs.move(run.run_id, RunStatus.FAILED, finished_at=later, error="the backend: down")
    engine.dispose()


@pytest.mark.parametrize(
    ("illness", "name", "state", "says"),
    [
        (_set(provider__auth_tokens=[]), "provider", State.PROBLEM, "usher serve refuses to start"),
        (_set(provider__allow_anonymous=True), "provider", State.WARNING, "anyone who reaches the service"),
        (_set(admin__tokens=[]), "admin", State.WARNING, "nobody can use /resync"),
        (_set(sync__schedule=""), "schedule", State.WARNING, "nothing syncs by itself"),
        (_set(notifications__webhook__url=""), "notifications", State.WARNING, "nobody is told"),
        (_set(database_url="sqlite:////nowhere/usher.db"), "database", State.WARNING, "there is no /nowhere/usher.db"),
        (
            _set(database_url="postgresql+psycopg://me:TOPSECRET@127.0.0.1:1/n"),
            "database",
            State.PROBLEM,
            "onnection",
        ),
        (_told("DELETE FROM alembic_version"), "schema", State.PROBLEM, "older than this version"),
        (_told("UPDATE alembic_version SET version_num = '9999'"), "schema", State.PROBLEM, "newer version"),
        (_told("DELETE FROM access_revision"), "access model", State.PROBLEM, "never read"),
        (
            _told("UPDATE directory_source SET last_good_at = last_good_at - 7200000"),
            "access model",
            State.OK,
            "read 2 hours ago",
        ),
        (_failed_run, "runs", State.PROBLEM, "the last run failed: the backend: down"),
        (
            _told("UPDATE run SET started_at = started_at - 86400000, finished_at = finished_at - 86400000"),
            "runs",
            State.PROBLEM,
            "no run has begun since",
        ),
        (_told("DELETE FROM run"), "runs", State.WARNING, "there was none yet"),
        (lambda one: one.people.unlink(), "directory", State.PROBLEM, "people: "),
        (lambda one: one.people.write_text(""), "directory", State.PROBLEM, "is empty, but gave 151 records"),
        (
            lambda one: one.people.write_text('{"kind": "user"}\n'),
            "directory",
            State.WARNING,
            "people: 0 records, but 1 malformed",
        ),
        (
            lambda one: one.people.write_text(one.people.read_text()[:100].rpartition("\n")[0] + "\n"),
            "directory",
            State.WARNING,
            "where 151 are in force",
        ),
        (_set(backend__api_key=""), "backend", State.PROBLEM, "is empty: nothing can be synced"),
        (_set(backend__auth_token="wrong"), "backend", State.PROBLEM, "refuses the credentials"),
        (_set(backend__header_prefix="x-other-"), "backend", State.PROBLEM, "refuses the credentials"),
        (_set(backend__base_url="http://backend.acme.example"), "backend", State.WARNING, "in the clear"),
        (_late_clock(-60), "clock", State.WARNING, "ahead of the backend's"),
        (_late_clock(3600), "clock", State.PROBLEM, "behind the backend's"),
        (
            lambda one: one.register(one.service_url, "ask", in_use=False),
            "registration",
            State.WARNING,
            "does not ask the service",
        ),
        (lambda one: one.register(one.service_url, "else"), "registration", State.PROBLEM, "none of provider.auth"),
        (lambda one: one.register(one.service_url, ""), "registration", State.PROBLEM, "with no token"),
        (
            lambda one: one.register(one.service_url + "/old", "ask"),
            "registration",
            State.WARNING,
            "and provider.path is /permissions/check",
        ),
        (lambda one: one.register(one.service_url, "else"), "service", State.PROBLEM, "answers with 401"),
        (
            lambda one: one.register("http://127.0.0.1:1/permissions/check", "ask"),
            "service",
            State.WARNING,
            "does not answer from here (ConnectionError)",
        ),
    ],
)
def test_illness_is_found_with_what_to_do(
    installation: Installation, illness: Illness, name: str, state: State, says: str
) -> None:
    illness(installation)
    found = [finding for finding in installation.of(name) if says in finding.says]
    assert [finding.state for finding in found] == [state], installation.of(name)
    assert bool(found[0].advice) is (state is not State.OK)
    assert "TOPSECRET" not in str(found)
    assert "\n" not in found[0].says


def test_looking_changes_nothing(installation: Installation) -> None:
    installation.settings["database_url"] = f"sqlite:///{installation.folder}/new/usher.db"
    installation.findings()
    assert not (installation.folder / "new").exists()


def test_backend_that_is_not_there_is_told_in_time(installation: Installation) -> None:
    installation.settings["backend.base_url"] = "http://127.0.0.1:1"
    [found] = look_at_backend(installation.configuration().settings, clock=utc_now)
    assert (found.name, found.state) == ("backend", State.PROBLEM)
    assert "no connection to the backend" in found.says


def test_backend_without_the_extended_operations_is_no_problem(installation: Installation) -> None:
    real = installation.adapter.send

    def send(request: object, *arguments: object, **keywords: object) -> object:
        answer = real(request, *arguments, **keywords)
        if "permissionprovider" in request.url:  # type: ignore[attr-defined] # a prepared request
            answer.status_code = 404
        return answer

    installation.adapter.send = send  # type: ignore[method-assign,assignment] # this one instance
    [found] = installation.of("registration")
    assert found.state is State.WARNING
    assert "does not tell where it asks" in found.says


def test_messages_are_sent_only_when_asked_for(installation: Installation) -> None:
    installation.settings["notifications.webhook.url"] = "http://127.0.0.1:1/"
    configuration = installation.configuration()
    assert installation.of("notifications") == []
    found = list(examine(configuration, clock=utc_now, notify=True, transport=installation.adapter))
    assert [one.says for one in found if one.name == "notifications"] == ["webhook: no answer (ConnectionError)"]
