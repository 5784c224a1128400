"""A real worker process notifies a real receiver."""

import json
import signal
import time
from pathlib import Path

import pytest
from sqlalchemy import insert
from standardwebhooks import Webhook as Receiving

from app.commands.bootstrap.databases import STORE_MIGRATIONS
from app.foundation.database.engine import open_engine, writing
from app.foundation.database.migrations import upgrade
from app.sync.runs.tables import WorkerRow
from tests.forking import Forked, command
from tests.monitoring.notify.conftest import Receiver

SECRET = "whsec_QSBzZWNyZXQgb2YgdGhpcnR5LXR3byBieXRlcyAxMjM="


@pytest.mark.extended
@pytest.mark.e2e
def test_service_reports_that_no_worker_lives(receiver: Receiver, tmp_path: Path, closed_port: int) -> None:
    (tmp_path / "usher.yaml").write_text(
        "database_url: sqlite:///usher.db\n"
        "provider: {auth_tokens: [ask-me-for-tests]}\n"
        "directory: {sources: [{type: file, path: nowhere.jsonl, name: people}]}\n"
        f"server: {{port: {closed_port}, workers: 1}}\n"
        f"notifications: {{webhook: {{url: '{receiver.url}', secret: '{SECRET}'}}}}\n"
    )
    engine = open_engine(f"sqlite:///{tmp_path}/usher.db")
    upgrade(engine, STORE_MIGRATIONS)
    with writing(engine) as connection:
        connection.execute(insert(WorkerRow).values(worker_id="1", name="node:1", started_at=0, seen_at=0, leads=True))
    engine.dispose()
    _run_until_notified("serve", receiver, tmp_path)
    event = Receiving(SECRET).verify(receiver.posted[0].body, receiver.posted[0].headers)
    assert event["data"]["cause"] == "worker"
    assert event["data"]["summary"].startswith("no worker is running: the last heartbeat, of node:1, was at 1970")


@pytest.mark.extended
@pytest.mark.e2e
def test_worker_reports_a_source_that_cannot_be_read(receiver: Receiver, tmp_path: Path, closed_port: int) -> None:
    (tmp_path / "usher.yaml").write_text(
        "database_url: sqlite:///usher.db\n"
        "directory: {sources: [{type: file, path: nowhere.jsonl, name: people}]}\n"
        f"backend: {{base_url: 'http://127.0.0.1:{closed_port}', api_key: key, auth_token: TOPSECRET}}\n"
        f"notifications: {{webhook: {{url: '{receiver.url}', secret: '{SECRET}'}}}}\n"
        "log: {format: json}\n"
    )
    _run_until_notified("worker", receiver, tmp_path)
    log = (tmp_path / "log").read_text()
    event = Receiving(SECRET).verify(receiver.posted[0].body, receiver.posted[0].headers)
    assert event["type"] == "attention.began"
    assert event["data"]["cause"] == "source"
    assert event["data"]["about"] == "people"
    lines = [json.loads(line) for line in log.splitlines()]
    [needed] = [line for line in lines if line["event"] == "attention_needed" and line["cause"] == "source"]
    assert needed["level"] == "warning"
    assert "TOPSECRET" not in log
    assert SECRET.removeprefix("whsec_") not in log


def _run_until_notified(name: str, receiver: Receiver, folder: Path) -> None:
    """Runs a command until the receiver has a message, and stops it with SIGTERM. The file ``log`` has its output."""
    log = folder / "log"
    process = Forked(command, name, "--config", "usher.yaml", folder=folder, out=log, err=log)
    try:
        deadline = time.monotonic() + 120
        while not receiver.posted and time.monotonic() < deadline:
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0
    finally:
        process.kill()
        process.wait()
