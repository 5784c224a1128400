"""The shipped alerts and dashboard, checked by promtool and against the metrics of a running service."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import yaml

from tests.forking import Forked, command
from tests.ports import free_port

CONFIG = Path(__file__).parents[2] / "config"
PROMTOOL = shutil.which("promtool")

wants_promtool = pytest.mark.skipif(
    PROMTOOL is None and not os.environ.get("USHER_TEST_PROMTOOL"),
    reason="there is no promtool here (Debian has it in the package prometheus)",
)

asks_a_node = pytest.mark.xdist_group("node")

DIRECTORY = (
    '{"kind": "organization", "organizationId": "acme", "organizationName": "Acme"}\n'
    '{"kind": "user", "userId": "ada", "name": "Ada", "email": "ada@acme.example"}\n'
)


def promtool(*arguments: str, given: str | None = None, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None, "USHER_TEST_PROMTOOL demands promtool, and it is not there"
    return subprocess.run(
        [PROMTOOL, *arguments], input=given, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.external
@wants_promtool
def test_alerts_are_valid() -> None:
    checked = promtool("check", "rules", str(CONFIG / "alerts.yaml"))
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.external
@wants_promtool
def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    shutil.copy(CONFIG / "alerts.yaml", tmp_path)
    shutil.copy(Path(__file__).parent / "rules.test.yaml", tmp_path)
    tested = promtool("test", "rules", "rules.test.yaml", folder=tmp_path)
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.fixture(scope="module")
def scrape(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The metrics of a service with a worker, after a permission call and a run without a reachable backend."""
    folder = tmp_path_factory.mktemp("node")
    port = free_port()
    (folder / "people.jsonl").write_text(DIRECTORY)
    settings = {
        "database_url": f"sqlite:///{folder}/usher.db",
        "directory": {"sources": [{"type": "file", "path": str(folder / "people.jsonl"), "name": "people"}]},
        "provider": {"auth_tokens": ["ask-me-for-tests"]},
        "server": {"port": port, "workers": 1},
        "backend": {"base_url": "http://127.0.0.1:1", "api_key": "k", "auth_token": "t", "timeout": 1},
    }
    (folder / "usher.yaml").write_text(yaml.safe_dump(settings))
    log = folder / "log"
    node = Forked(command, "serve", "--with-worker", "--config", "usher.yaml", folder=folder, out=log, err=log)
    url = f"http://127.0.0.1:{port}"
    resource = {"type": "organization", "id": "acme", "organizationId": "acme"}
    question = {"data": {"requests": [{"userId": "ada", "resource": resource}]}}
    text = ""
    try:
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline:
            assert node.poll() is None, log.read_text()
            try:
                headers = {"Authorization": "Bearer ask-me-for-tests"}
                requests.post(f"{url}/permissions/check", json=question, headers=headers, timeout=5)
                text = requests.get(f"{url}/metrics", timeout=5).text
            except requests.RequestException:
                text = ""
            if "usher_denials_total{" in text and "usher_backend_calls_total{" in text and "usher_last_run" in text:
                break
            # The run retries several times before it fails.
            time.sleep(0.5)
        yield text
    finally:
        node.send_signal(signal.SIGTERM)
        try:
            node.wait(40)
        except subprocess.TimeoutExpired:
            node.kill()
            node.wait()


def exported(scrape: str) -> set[str]:
    """The names of all series, and of families without one yet."""
    names = set(re.findall(r"^(usher_\w+)(?:\{| )", scrape, flags=re.MULTILINE))
    return names | set(re.findall(r"^# TYPE (usher_\w+) ", scrape, flags=re.MULTILINE))


def used(expressions: list[str]) -> set[str]:
    return {name for expression in expressions for name in re.findall(r"\busher_\w+", expression)}


@pytest.mark.extended
@pytest.mark.e2e
@pytest.mark.timeout(240)
@asks_a_node
def test_a_node_exports_every_metric_of_the_alerts_and_the_dashboard(scrape: str) -> None:
    groups = yaml.safe_load((CONFIG / "alerts.yaml").read_text())["groups"]
    alerts = used([rule["expr"] for group in groups for rule in group["rules"]])
    panels = json.loads((CONFIG / "grafana.json").read_text())["panels"]
    shown = used([target["expr"] for panel in panels for target in panel["targets"]])
    assert len(alerts) > 10
    assert len(shown) > 20
    assert (alerts | shown) - exported(scrape) - NOT_BEFORE_A_VERIFY == set()


NOT_BEFORE_A_VERIFY = {"usher_last_verify_items"}
"""They have no series before a verify."""


@pytest.mark.e2e
@pytest.mark.timeout(240)
@asks_a_node
@pytest.mark.external
@wants_promtool
def test_metrics_are_as_prometheus_wants_them(scrape: str) -> None:
    checked = promtool("check", "metrics", given=scrape)
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stderr


@pytest.mark.external
@wants_promtool
def test_dashboard_queries_are_valid(tmp_path: Path) -> None:
    panels = json.loads((CONFIG / "grafana.json").read_text())["panels"]
    rules = [
        {"record": f"panel:{panel['id']}:{number}", "expr": target["expr"]}
        for panel in panels
        for number, target in enumerate(panel["targets"])
    ]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    checked = promtool("check", "rules", "panels.yaml", folder=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
