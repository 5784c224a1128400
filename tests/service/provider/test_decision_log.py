"""The decision log: what is written, also by several processes, and around rotations and errors."""

import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from subprocess import PIPE, STDOUT, Popen
from threading import Thread
from typing import Any

import orjson
import pytest
from flask import Flask
from sqlalchemy import Engine
from structlog.testing import capture_logs

from app.access.decision.decide import Decision, Rule
from app.access.records import AccessRole
from app.access.sql_view import opened_sql_view
from app.contract.permission_call import Question
from app.foundation.database.engine import open_engine
from app.http.errors import install_error_handlers
from app.http.request_id import install_request_ids
from app.http.throttle import FailedCredentials
from app.service.provider.blueprint import provider_blueprint
from app.service.provider.decision_log import DecisionLog
from app.service.provider.parts import ProviderParts
from app.service.provider.settings import DecisionLogSettings, ProviderSettings
from tests.worlds.access_model import StoredDirectory, records_from_wire

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
TOKEN = "the-backend-s-token"
DIRECTORY: Any = {
    "organizations": [{"organizationId": "acme"}],
    "users": [{"userId": "ada"}, {"userId": "bob"}],
    "documents": [
        {"organizationId": "acme", "documentId": "roadmap", "accessType": "restricted"},
    ],
    "grants": [{"organizationId": "acme", "documentId": "roadmap", "userId": "ada", "accessRole": "editor"}],
    "contextGrants": [{"organizationId": "acme", "userId": "ada", "field": "page", "value": "7"}],
}
DENY = Decision(False, Rule.RESTRICTED)
ALLOW = Decision(True, Rule.OWN_GRANT, access_role=AccessRole.EDITOR)
ENTRY = Question("ada", "document", "roadmap", "acme")


def make_log(path: Path | str, number: float = 0.5, **settings: Any) -> DecisionLog:
    return DecisionLog(DecisionLogSettings(path=str(path), **settings), random=lambda: number)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    StoredDirectory(engine).write(records_from_wire(DIRECTORY))
    yield engine
    engine.dispose()


@pytest.fixture
def ask(engine: Engine) -> Callable[..., None]:
    def ask(log: DecisionLog, questions: list[Any], *, timeout: float = 30) -> None:
        app = Flask("test")
        install_request_ids(app, lambda: "new")
        install_error_handlers(app)
        app.register_blueprint(
            provider_blueprint(
                ProviderParts(
                    settings=ProviderSettings.model_validate({"auth_tokens": [TOKEN]}),
                    open_view=partial(opened_sql_view, engine),
                    open_view_with_names=partial(opened_sql_view, engine),
                    load_origins=lambda _: {},
                    require_admin=lambda: None,
                    clock=lambda: NOW,
                    instance=str,
                    observers=(),
                    failures=FailedCredentials(),
                    log=log,
                )
            )
        )
        headers = {"Authorization": f"Bearer {TOKEN}", "x-request-id": "call-1"}
        body = {"data": {"requests": questions}}
        with app.test_client().post("/permissions/check", json=body, headers=headers) as response:
            assert response.status_code == 200
        log.flush(timeout)

    return ask


def question(user: str, **resource: Any) -> dict[str, Any]:
    return {"userId": user, "resource": {"type": "document", "id": "roadmap", "organizationId": "acme", **resource}}


def test_each_decision_is_a_line(ask: Any, tmp_path: Path) -> None:
    path = tmp_path / "new" / "decisions.jsonl"
    about_page = question("ada", type="context", context={"access": {"page": 7}})
    ask(make_log(path), [question("ada"), question("bob"), {"userId": ""}, about_page])
    common = {"time": "2026-11-20T10:00:00.000Z", "requestId": "call-1", "revision": 1}
    asked = {"type": "document", "resourceId": "roadmap", "organizationId": "acme"}
    allowed = {"hasAccess": True, "accessRole": "editor", "expiresAt": "2026-11-20T10:10:00.000Z"}
    assert lines_of(path) == [
        {**common, "userId": "ada", **asked, **allowed, "rule": "own_grant"},
        {**common, "userId": "bob", **asked, "hasAccess": False, "rule": "restricted"},
        {**common, "userId": "ada", **asked, **allowed, "rule": "context_grants"}
        | {"type": "context", "context": {"page": "7"}},
    ]
    assert TOKEN not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


def test_denials_alone(ask: Any, tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    ask(make_log(path, denies_only=True), [question("ada"), question("bob")])
    assert [line["userId"] for line in lines_of(path)] == ["bob"]
    ask(make_log(path, denies_only=True), [question("ada")])
    assert len(lines_of(path)) == 1


def test_a_sample_has_its_share() -> None:
    log = DecisionLog(DecisionLogSettings(path="-", sample=0.25), random=Random(1).random)
    assert 900 < sum(log.picks(DENY) for _ in range(4000)) < 1100
    assert [make_log("-", number, sample=0.25).picks(ALLOW) for number in (0, 0.24, 0.25, 0.99)] == [
        True,
        True,
        False,
        False,
    ]


def test_a_renamed_file_is_created_again(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    log = make_log(path)
    log.write([(ENTRY, DENY)], NOW, 1, "first")
    assert log.flush()
    path.rename(tmp_path / "decisions.jsonl.1")
    log.write([(ENTRY, DENY)], NOW, 1, "second")
    assert log.flush()
    path.write_bytes(b"")  # as copytruncate does
    log.write([(ENTRY, DENY)], NOW, 1, "third")
    assert log.flush()
    assert [line["requestId"] for line in lines_of(tmp_path / "decisions.jsonl.1")] == ["first"]
    assert [line["requestId"] for line in lines_of(path)] == ["third"]


def test_several_writers_do_not_mix_lines(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    logs = [make_log(path), make_log(path)]
    threads = [
        Thread(target=lambda log=log: [log.write([(ENTRY, DENY)] * 50, NOW, 1, "x" * 100) for _ in range(20)])
        for log in logs * 2
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(log.flush() for log in logs)
    assert len(lines_of(path)) == 4 * 20 * 50


def test_a_log_that_cannot_be_written_is_reported_once_a_minute(tmp_path: Path) -> None:
    (tmp_path / "decisions").mkdir()
    log = make_log(tmp_path / "decisions")
    with capture_logs() as logged:
        for second in (0, 1, 59, 60):
            log.write([(ENTRY, DENY)], datetime(2026, 11, 20, 10, second // 60, second % 60, tzinfo=UTC), 1, None)
            assert log.flush()
    assert [line["event"] for line in logged] == ["decision_log_not_written"] * 2
    assert logged[0]["cause"] == os.strerror(21)
    assert [line["lines"] for line in logged] == [1, 3]


def test_any_error_of_a_write_is_reported_and_leaves_the_writer_running(tmp_path: Path) -> None:
    log = make_log(tmp_path / "decisions-\ud800")  # No file can have this name.
    with capture_logs() as logged:
        log.write([(ENTRY, DENY)], NOW, 1, None)
        assert log.flush(30)
    assert [(line["lines"], line["cause"]) for line in logged] == [(1, "UnicodeEncodeError")]
    log._path = tmp_path / "decisions"
    log.write([(ENTRY, DENY)], NOW, 1, None)
    assert log.flush(30)
    assert len(lines_of(tmp_path / "decisions")) == 1


def test_a_pipe_without_a_reader_does_not_hold_a_request(ask: Any, tmp_path: Path) -> None:
    path = tmp_path / "decisions"
    os.mkfifo(path)
    log, batch, calls = make_log(path), [(ENTRY, DENY)] * 1000, 100

    def write() -> None:
        for _ in range(calls):
            log.write(batch, NOW, 1, "call")

    with capture_logs() as logged:
        caller = Thread(target=write, daemon=True)
        caller.start()
        caller.join(30)
        assert not caller.is_alive()
        assert not log.flush(0)  # The writer is blocked.
        ask(log, [question("ada")], timeout=0)
    read: list[bytes] = []
    with path.open("rb") as pipe:
        reader = Thread(target=lambda: read.extend(pipe), daemon=True)
        reader.start()
        assert log.flush(30)
        log.write([(ENTRY, ALLOW)], NOW, 1, "after")
        assert log.flush(30)
        os.close(log._descriptor)
        log._descriptor = -1
        reader.join(30)
    lines = [orjson.loads(line) for line in read]
    assert 0 < len(lines) < calls * len(batch)
    assert lines[-1]["requestId"] == "after"
    warnings = [line["lines"] for line in logged if line["event"] == "decision_log_not_written"]
    assert warnings == [len(batch)]
    assert warnings[0] + log._lost + len(lines) == calls * len(batch) + 1 + 1
    log._lost = 0  # No warning at the end of the tests.


PROCESS = """
import os, resource, sys
from datetime import UTC, datetime
from app.access.decision.decide import Decision, Rule
from app.contract.permission_call import Question
from app.service.provider.decision_log import DecisionLog
from app.service.provider.parts import ProviderParts
from app.service.provider.settings import DecisionLogSettings
from app.foundation.logs import LogSettings, configure_logs

configure_logs(LogSettings(format="text"))
log = DecisionLog(DecisionLogSettings(path=sys.argv[1]), random=lambda: 0)
def write(count, request_id):
    decision = (Question("ada", "document", "roadmap", "acme"), Decision(False, Rule.RESTRICTED))
    log.write([decision] * count, datetime(2026, 11, 20, tzinfo=UTC), 1, request_id)
"""


def start_process(path: Path | str, script: str) -> Popen[bytes]:
    return Popen([sys.executable, "-c", PROCESS + script, str(path)], stdout=PIPE, stderr=STDOUT)


def test_the_end_of_the_process_writes_the_queue(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    process = start_process(path, "for number in range(500): write(10, str(number))")
    assert (process.communicate(timeout=30)[0], process.returncode) == (b"", 0)
    assert [line["requestId"] for line in lines_of(path)] == [str(number) for number in range(500) for _ in range(10)]


def test_a_blocked_log_does_not_hold_the_end_of_the_process(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "decisions")
    process = start_process(tmp_path / "decisions", "write(7, None); write(5, None)")
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 0
    assert b"decision_log_not_written" in output
    assert b"lines=12" in output


def test_standard_output_that_is_not_read_does_not_hold_the_process() -> None:
    command = [sys.executable, "-c", PROCESS + "write(5000, None); write(1, None); sys.stderr.write('done')", "-"]
    with Popen(command, stdout=PIPE, stderr=PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.read(4) == b"done"
        assert process.wait(30) == 0


def test_a_line_after_a_failed_write_is_not_glued_to_a_part_of_a_line(tmp_path: Path) -> None:
    """The size limit of files stops a write in the middle, as a full disk does."""
    path = tmp_path / "decisions.jsonl"
    process = start_process(
        path,
        """
limit = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
write(10, "before")
assert log.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, limit)
write(2, "after")
""",
    )
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 0
    *whole, torn, first, second = path.read_bytes().splitlines()
    assert len(b"\n".join([*whole, torn])) == 1000
    assert [orjson.loads(line)["requestId"] for line in whole] == ["before"] * len(whole)
    assert [orjson.loads(line)["requestId"] for line in (first, second)] == ["after"] * 2
    assert f"lines={10 - len(whole)}".encode() in output
