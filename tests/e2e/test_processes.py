"""Start, stop and recovery of service and worker processes."""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random

import psutil
import pytest
import requests
import yaml
from sqlalchemy import create_engine, make_url, text

from app import __version__
from app.foundation.database.engine import open_engine
from app.sync.runs.lifecycle import Runs
from app.sync.runs.lock import sync_lock
from app.sync.runs.queue import CONTINUATION
from app.sync.runs.run import Run, RunRequest, RunStatus
from tests.conftest import DATABASES, POSTGRES
from tests.e2e.conftest import Usher, alive, children_of, serving, wait_for
from tests.ports import HOST, free_port

WORKER_STARTED = '"program":"worker"'
"""Part of the first line of a worker's log."""

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180), pytest.mark.xdist_group("e2e")]

Start = Callable[..., Usher]

DIRECTORY = {
    "organizations": [{"organizationId": "acme", "organizationName": "Acme"}],
    "users": [{"userId": "ada", "name": "Ada", "email": "ada@acme.example"}],
    "memberships": [{"organizationId": "acme", "userId": "ada"}],
}
TOKENS = {"provider": {"auth_tokens": ["ask-me-for-tests"]}, "admin": {"tokens": ["rule-me-for-tests"]}}
ADMIN = {"Authorization": "Bearer rule-me-for-tests"}


@contextmanager
def tar_pit() -> Iterator[int]:
    """The port of a server that accepts connections and never answers."""
    taken: list[socket.socket] = []
    with socket.create_server((HOST, 0)) as listener:

        def take() -> None:
            try:
                while True:
                    taken.append(listener.accept()[0])
            except OSError:
                return

        threading.Thread(target=take, daemon=True).start()
        yield listener.getsockname()[1]
    for one in taken:
        one.close()


def write_settings(folder: Path, database_url: str, **sections: object) -> str:
    (folder / "directory.yaml").write_text(yaml.safe_dump(DIRECTORY))
    settings = {
        "database_url": database_url,
        "directory": {"sources": [{"type": "file", "path": str(folder / "directory.yaml")}]},
        "sync": {"schedule": "", "verify_schedule": ""},
        **TOKENS,
        **sections,
    }
    (folder / "usher.yaml").write_text(yaml.safe_dump(settings))
    return "usher.yaml"


def runs_in(database_url: str) -> Runs:
    return Runs(open_engine(database_url), lambda: datetime.now(UTC), Random(5))


def backend_at(port: int, **further: object) -> dict[str, object]:
    return {"base_url": f"http://{HOST}:{port}", "api_key": "k", "auth_token": "t", **further}


def test_service_answers_and_stops(start: Start, tmp_path: Path) -> None:
    port = free_port()
    config = write_settings(tmp_path, f"sqlite:///{tmp_path}/usher.db", server={"port": port, "workers": 2})
    service = start("serve", "--config", config)
    url = f"http://{HOST}:{port}"
    serving(service, url)
    unread = requests.get(f"{url}/readyz", timeout=5)
    assert unread.status_code == 503
    assert unread.json()["checks"]["accessModel"]["state"] == "failed"
    question = {"data": {"requests": [{"userId": "ada", "resource": {"type": "organization", "id": "acme"}}]}}
    ask = {"Authorization": "Bearer ask-me-for-tests"}
    assert requests.post(f"{url}/permissions/check", json=question, headers=ask, timeout=5).status_code == 503
    assert start("directory", "refresh", "--config", config, forked=True).process.wait(30) == 0
    assert requests.get(f"{url}/readyz", timeout=5).status_code == 200
    answer = requests.post(f"{url}/permissions/check", json=question, headers=ask, timeout=5)
    assert answer.json()["data"][0]["hasAccess"] is True
    assert answer.headers["x-request-id"]
    assert requests.post(f"{url}/permissions/check", json=question, timeout=5).status_code == 401
    explained = requests.post(f"{url}/permissions/explain", json=question, headers=ADMIN, timeout=5).json()["data"][0]
    assert explained["reason"].startswith("Allowed as editor")
    assert explained["path"][0]["kind"] == "membership"
    assert requests.post(f"{url}/permissions/explain", json=question, headers=ask, timeout=5).status_code == 401
    assert requests.get(f"{url}/nowhere", timeout=5).json()["error"]["status"] == "NOT_FOUND"
    processes = children_of(service.process.pid)
    assert service.end() == 0
    assert alive(processes) == []
    assert any(json.loads(line)["event"] == "request" for line in service.stderr().splitlines())


def test_stopped_worker_ends_its_run(start: Start, tmp_path: Path, database_url: str) -> None:
    with tar_pit() as port:
        config = write_settings(tmp_path, database_url, backend=backend_at(port, timeout=2), worker={"poll": 0.1})
        run, runs, worker = _run_that_hangs(start, config, database_url)
        began = time.monotonic()
        assert worker.end() == 0
        assert time.monotonic() - began < 20
    ended = runs.get(run.run_id)
    assert ended.status in {RunStatus.CANCELLED, RunStatus.FAILED}, ended
    assert ended.finished_at is not None
    assert "Traceback" not in worker.stderr()


@pytest.mark.extended
def test_stop_timeout_leaves_the_run_to_the_next_worker(start: Start, tmp_path: Path, database_url: str) -> None:
    with tar_pit() as port:
        patience = {"poll": 0.1, "stop_timeout": 0.5}
        config = write_settings(tmp_path, database_url, backend=backend_at(port, timeout=60), worker=patience)
        run, runs, worker = _run_that_hangs(start, config, database_url)
        assert worker.end(within=20) == 1
        assert runs.get(run.run_id).is_running
        start("worker", "--config", config, forked=True)
        orphan = wait_for("the orphan's end", lambda: _unless_running(runs, run), within=40)
    assert orphan.status is RunStatus.FAILED
    assert "ended unexpectedly" in (orphan.error or "")


def test_next_worker_continues_after_a_kill(start: Start, tmp_path: Path, database_url: str) -> None:
    with tar_pit() as port:
        patience = {"poll": 0.1, "stop_timeout": 0.5}
        config = write_settings(tmp_path, database_url, backend=backend_at(port, timeout=60), worker=patience)
        run, runs, worker = _run_that_hangs(start, config, database_url)
        follower = start("worker", "--config", config, forked=True)
        worker.process.kill()
        worker.process.wait()
        assert wait_for("the orphan's end", lambda: _unless_running(runs, run), within=40).status is RunStatus.FAILED
        # The next goes on with the work, and so hangs in the same call.
        again = wait_for("the run that goes on", lambda: _first_running(runs), within=20)
        assert again.trigger == CONTINUATION
        follower.end()


def _run_that_hangs(start: Start, config: str, database_url: str) -> tuple[Run, Runs, Usher]:
    assert start("db", "upgrade", "--config", config, forked=True).process.wait(60) == 0
    runs = runs_in(database_url)
    run, _ = runs.enqueue(RunRequest(trigger="resync"))
    worker = start("worker", "--config", config, forked=True)
    # The ledger is new, so the run begins with reading the backend back.
    wait_for(
        "the run's call",
        lambda: runs.get(run.run_id).status in {RunStatus.VERIFYING, RunStatus.PLANNING, RunStatus.APPLYING},
    )
    time.sleep(0.5)
    assert worker.process.poll() is None, worker.stderr()
    return run, runs, worker


def _unless_running(runs: Runs, run: Run) -> Run | None:
    found = runs.get(run.run_id)
    return None if found.is_running else found


def _first_running(runs: Runs) -> Run | None:
    return next((run for run in runs.recent() if run.is_running), None)


@pytest.mark.extended
def test_service_and_worker_end_together(start: Start, tmp_path: Path) -> None:
    port, nowhere = free_port(), free_port()
    config = write_settings(
        tmp_path,
        f"sqlite:///{tmp_path}/usher.db",
        server={"port": port, "workers": 1},
        backend=backend_at(nowhere),
        sync={"verify_schedule": "0 3 * * 0"},
    )
    both = start("serve", "--with-worker", "--config", config)
    serving(both, f"http://{HOST}:{port}")
    wait_for("the worker", lambda: WORKER_STARTED in both.stderr())
    ready = next(json.loads(line) for line in both.stderr().splitlines() if WORKER_STARTED in line)
    assert ready["event"] == "started"
    assert ready["version"] == __version__
    assert ready["database"] == str((tmp_path / "usher.db").resolve())
    assert ready["settings"] == str((tmp_path / "usher.yaml").resolve())
    assert ready["next_run"] > ready["timestamp"]
    served = next(json.loads(line) for line in both.stderr().splitlines() if '"program":"service"' in line)
    assert served.pop("console") == f"http://{HOST}:{port}/console/"
    assert {**ready, **served, "program": "worker", "timestamp": ready["timestamp"]} == ready
    processes = children_of(both.process.pid)
    assert both.end() == 0
    assert alive(processes) == []


@pytest.mark.extended
def test_dead_worker_is_restarted(start: Start, tmp_path: Path) -> None:
    port, nowhere = free_port(), free_port()
    config = write_settings(
        tmp_path, f"sqlite:///{tmp_path}/usher.db", server={"port": port, "workers": 1}, backend=backend_at(nowhere)
    )
    both = start("serve", "--with-worker", "--config", config)

    def worker() -> int | None:
        running = alive(children_of(both.process.pid))
        return next((pid for pid in running if "worker" in psutil.Process(pid).cmdline()), None)

    def has_complained(of: str, times: int) -> bool:
        return both.stderr().count(of) == times

    serving(both, f"http://{HOST}:{port}")
    for times in (1, 2):
        wait_for("the worker", partial(has_complained, WORKER_STARTED, times))
        killed = worker()
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        wait_for("word of it", partial(has_complained, "process_ended", times))
        assert requests.get(f"http://{HOST}:{port}/healthz", timeout=5).ok
    wait_for("the third one", lambda: both.stderr().count(WORKER_STARTED) == 3)
    events = [json.loads(line) for line in both.stderr().splitlines() if "process_ended" in line]
    assert [(line["how"], line["again_in"]) for line in events] == [
        ("by signal SIGKILL", 1.0),
        ("by signal SIGKILL", 2.0),
    ]
    processes = children_of(both.process.pid)
    assert both.end() == 0
    assert alive(processes) == []


@pytest.mark.extended
def test_worker_that_cannot_start_ends_the_service(start: Start, tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        config = write_settings(
            tmp_path,
            f"sqlite:///{tmp_path}/usher.db",
            server={"port": free_port(), "workers": 1},
            backend=backend_at(free_port()),
            metrics={"worker_port": taken.getsockname()[1]},
        )
        both = start("serve", "--with-worker", "--config", config)
        assert both.process.wait(60) == 1
    assert "error: metrics.worker_port: cannot listen on" in both.stderr()
    assert both.stderr().splitlines()[-1].startswith("error: the worker ended with exit code 1")


@pytest.mark.extended
def test_worker_serves_its_counters(start: Start, tmp_path: Path) -> None:
    port, nowhere = free_port(), free_port()
    config = write_settings(
        tmp_path,
        f"sqlite:///{tmp_path}/usher.db",
        backend=backend_at(nowhere, timeout=1),
        metrics={"worker_port": port},
    )
    worker = start("worker", "--config", config)
    wait_for("the worker", lambda: WORKER_STARTED in worker.stderr())
    runs_in(f"sqlite:///{tmp_path}/usher.db").enqueue(RunRequest(trigger="resync"))

    def shown() -> requests.Response:
        return requests.get(f"http://{HOST}:{port}/metrics", timeout=5)

    wait_for("a call to be counted", lambda: 'outcome="failed"' in shown().text, within=60)
    assert "usher_build_info" in shown().text
    # A client that connects and sends nothing does not delay others.
    with socket.create_connection((HOST, port)):
        answer = shown()
    assert "Werkzeug" not in answer.headers.get("Server", "")
    processes = children_of(worker.process.pid)
    assert worker.end() == 0
    assert alive(processes) == []
    assert "Traceback" not in worker.stderr()


@pytest.mark.extended
def test_children_end_with_their_parent(start: Start, tmp_path: Path) -> None:
    port = free_port()
    config = write_settings(
        tmp_path, f"sqlite:///{tmp_path}/usher.db", server={"port": port, "workers": 1}, backend=backend_at(free_port())
    )
    both = start("serve", "--with-worker", "--config", config)
    serving(both, f"http://{HOST}:{port}")
    wait_for("the worker", lambda: WORKER_STARTED in both.stderr())
    processes = children_of(both.process.pid)
    assert len(processes) >= 2
    both.process.kill()
    both.process.wait()
    assert wait_for("their end", lambda: not alive(processes), within=40)


@pytest.mark.parametrize("database_url", DATABASES[1:], indirect=True)
def test_service_recovers_from_a_database_outage(start: Start, tmp_path: Path, database_url: str) -> None:
    port = free_port()
    config = write_settings(tmp_path, database_url, server={"port": port, "workers": 1})
    assert start("db", "upgrade", "--config", config, forked=True).process.wait(60) == 0
    assert start("directory", "refresh", "--config", config, forked=True).process.wait(60) == 0
    service, url = start("serve", "--config", config), f"http://{HOST}:{port}"
    serving(service, url)
    question = {"data": {"requests": [{"userId": "ada", "resource": {"type": "organization", "id": "acme"}}]}}

    def codes() -> tuple[int, int, int]:
        ask = {"Authorization": "Bearer ask-me-for-tests"}
        return (
            requests.get(f"{url}/readyz", timeout=20).status_code,
            requests.post(f"{url}/permissions/check", json=question, headers=ask, timeout=20).status_code,
            requests.post(f"{url}/resync", headers=ADMIN, timeout=20).status_code,
        )

    wait_for("the index", lambda: list(tmp_path.glob("var/index/*/confirmed")))
    assert codes() == (200, 200, 202)
    name = make_url(database_url).database
    with create_engine(POSTGRES, isolation_level="AUTOCOMMIT").connect() as server:
        server.execute(text(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'))
        server.execute(text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :n"), {"n": name})
        try:
            assert codes() == (200, 200, 503)  # the index answers
            assert requests.get(f"{url}/healthz", timeout=5).status_code == 200
            assert "usher_database_up 0.0" in requests.get(f"{url}/metrics", timeout=20).text
        finally:
            server.execute(text(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true'))
    assert wait_for("the service to recover", lambda: codes() == (200, 200, 202))


@pytest.mark.parametrize("database_url", DATABASES[1:], indirect=True)
@pytest.mark.parametrize("command", [("serve",), ("worker",), ("runs",)])
def test_commands_require_tables_on_postgresql(
    start: Start, tmp_path: Path, database_url: str, command: tuple[str, ...]
) -> None:
    config = write_settings(tmp_path, database_url, backend=backend_at(free_port()))
    behind = start(*command, "--config", config, forked=True)
    assert behind.process.wait(60) == 1
    assert behind.stderr().splitlines()[-1] == (
        "error: the database is empty: run usher db upgrade to create its tables"
    )


def test_command_waits_for_another_run(start: Start, tmp_path: Path) -> None:
    database_url = f"sqlite:///{tmp_path}/usher.db"
    config = write_settings(tmp_path, database_url, backend=backend_at(free_port()))
    assert start("db", "upgrade", "--config", config, forked=True).process.wait(60) == 0
    lock = sync_lock(open_engine(database_url))
    assert lock.acquire()
    waiting = start("plan", "--config", config, forked=True)
    wait_for("the word", lambda: "another process is synchronizing" in waiting.stderr())
    assert waiting.process.poll() is None
    assert waiting.end(signal.SIGINT) == 130
    assert "Traceback" not in waiting.stderr()
    for options, message in (
        (["--no-wait"], "error: another process is synchronizing\n"),
        (
            ["--timeout", "0.3"],
            (
                "another process is synchronizing; waiting for it to end\n"
                "error: another process is synchronizing; it did not end within 0.3 s\n"
            ),
        ),
    ):
        for command in ("sync", "plan"):
            impatient = start(command, *options, "--config", config, forked=True)
            assert impatient.process.wait(60) == 5, impatient.stderr()
            assert impatient.stderr() == message
    again = start("plan", "--config", config, forked=True)
    wait_for("the word", lambda: "another process is synchronizing" in again.stderr())
    lock.release()
    wait_for("its turn", lambda: "reading" in again.stderr())
