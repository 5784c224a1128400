"""Pushes in metrics, readiness, the doctor and the log, and warnings about short tokens."""

from pathlib import Path

import pytest

from app.access.source_states import source_states
from app.commands.bootstrap.requirements import short_tokens
from app.commands.doctor.finding import State
from app.commands.doctor.sources import check_sources
from app.directory.configured import sources_from_settings
from app.directory.settings import DirectorySettings
from app.directory.source_settings import GuardSettings
from app.foundation.database.engine import reading
from app.foundation.logs import LogSettings, configure_logs
from app.settings import Settings
from app.sync.runs.directory_reads import read_directory
from tests.service.push.conftest import PUSH, SOURCES, Service, document, organization


def test_metrics_contain_pushes_and_waiting_changes(service: Service) -> None:
    service.pushed(1, upsert=[organization()])
    service.clock.move_on(seconds=3)
    service.pushed(2, upsert=[document("d1")])
    service.pushed(2, upsert=[document("d1")])
    text = service.client.get("/metrics").get_data(as_text=True)
    assert 'usher_directory_pushes_total{source="app"} 2.0' in text
    (line,) = [line for line in text.splitlines() if line.startswith("usher_directory_push_timestamp_seconds{")]
    assert float(line.rpartition(" ")[2]) == service.clock().timestamp()
    assert "usher_changes_waiting_seconds 3.0" in text


def test_readiness_contains_the_time_of_the_last_push(service: Service) -> None:
    service.pushed(1, upsert=[organization()])
    service.clock.move_on(seconds=30)
    checks = service.client.get("/readyz").get_json()["checks"]
    assert checks["directory"]["detail"] == "read successfully 30 s ago; last push 30 s ago"


def test_the_doctor_reports_sources_with_pushes(service: Service) -> None:
    service.pushed(1, upsert=[organization()])
    settings = DirectorySettings.model_validate({"sources": [one for one in SOURCES if one["type"] == "push"]})
    with reading(service.engine) as connection:
        kept = {state.name: state for state in source_states(connection)}
    found = list(check_sources(sources_from_settings(settings), kept, GuardSettings(), service.clock))
    assert [(one.state, one.message) for one in found[:2]] == [
        (State.OK, "app: 1 record, pushed to it"),
        (State.WARNING, "small app: it has never received a push"),
    ]


def test_a_refresh_keeps_pushed_records_and_their_age(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "hr.jsonl"
    file.write_text('{"kind": "user", "userId": "ann", "name": "Ann", "email": ""}\n')
    settings = DirectorySettings.model_validate(
        {
            "sources": [
                {"type": "file", "path": str(file), "name": "hr"},
                {"type": "push", "name": "app", "changes": {"tokens": [PUSH]}},
                {"type": "push", "name": "never", "changes": {"tokens": [PUSH + "x"]}},
            ]
        }
    )
    service.pushed(1, upsert=[organization(), document("d1")])
    service.clock.move_on(days=3)
    report = read_directory(service.engine, sources_from_settings(settings), clock=service.clock)
    assert [(one.name, one.records) for one in report.sources] == [("hr", 1)]
    assert report.retained_sources == ()
    assert len(service.records()) == 3
    with reading(service.engine) as connection:
        states = {state.name: state for state in source_states(connection)}
    assert states["app"].last_good_at == round(service.clock().timestamp() * 1000)
    assert states["app"].records == 2
    assert (states["never"].last_verdict, states["never"].last_good_at) == ("complete", None)


def test_the_log_contains_pushes_and_no_token(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(LogSettings(format="json"))
    service.pushed(1, upsert=[organization(), document("d1")])
    service.push({"sequence": 2}, token="wrong-token-of-somebody")
    output = "".join(capsys.readouterr())
    assert '"sequence":1' in output.replace(" ", "")
    assert PUSH not in output
    assert "wrong-token-of-somebody" not in output


def test_tokens_that_could_be_guessed_are_named() -> None:
    sources = [{"type": "push", "name": "app", "changes": {"tokens": ["short", "x" * 16]}}]
    settings = Settings.model_validate({"directory": {"sources": sources}})
    assert short_tokens(settings) == ["directory.sources[0].changes.tokens[0]"]
