"""Nodes answer permission calls from their index while the database is away, and follow it when it is back."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import requests
import yaml
from sqlalchemy import make_url

from tests.conftest import POSTGRES
from tests.e2e.conftest import Usher, children_of, serving, wait_for
from tests.ports import HOST, free_port
from tests.worlds.tcp_proxy import TcpProxy

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.postgres,
    pytest.mark.timeout(180),
    pytest.mark.xdist_group("e2e"),
    pytest.mark.skipif(not POSTGRES, reason="USHER_TEST_POSTGRES names no server"),
]

Start = Callable[..., Usher]

IPTABLES = "/usr/sbin/iptables"
ASK = {"Authorization": "Bearer ask-me-for-tests"}
ADMIN = {"Authorization": "Bearer rule-me-for-tests"}
QUESTION = {"data": {"requests": [{"userId": "ada", "resource": {"type": "organization", "id": "acme"}}]}}


class Node:
    """A service whose connection to the database can be cut."""

    def __init__(self, start: Start, folder: Path, database_url: str) -> None:
        self._start = start
        self._folder = folder
        self._url = make_url(database_url)
        assert self._url.host is not None
        self.proxy = TcpProxy(self._url.host, self._url.port or 5432)
        self._proxy_port = self.proxy.port
        self.port = free_port()
        self._write("behind.yaml", self._url.set(host=HOST, port=self._proxy_port))
        self._write("direct.yaml", self._url)
        self.set_members("ada")
        for command in (("db", "upgrade"), ("directory", "refresh")):
            assert start(*command, "--config", "direct.yaml", forked=True).process.wait(60) == 0
        self.service = self.serve()

    def _write(self, name: str, url: Any) -> None:
        settings = {
            "database_url": url.render_as_string(hide_password=False),
            "server": {"port": self.port, "workers": 2},
            "provider": {"auth_tokens": ["ask-me-for-tests"]},
            "admin": {"tokens": ["rule-me-for-tests"]},
            "index": {"path": str(self._folder / "index")},
            "directory": {"sources": [{"type": "file", "path": str(self._folder / "directory.yaml")}]},
            "sync": {"schedule": "", "verify_schedule": ""},
        }
        (self._folder / name).write_text(yaml.safe_dump(settings))

    def set_members(self, *users: str) -> None:
        directory = {
            "organizations": [{"organizationId": "acme", "organizationName": "Acme"}],
            "users": [{"userId": "ada", "name": "Ada", "email": "ada@acme.example"}],
            "memberships": [{"organizationId": "acme", "userId": user} for user in users],
        }
        (self._folder / "directory.yaml").write_text(yaml.safe_dump(directory))

    def refresh(self) -> None:
        arguments = ("directory", "refresh", "--accept-shrink", str(self._folder / "directory.yaml"))
        assert self._start(*arguments, "--config", "direct.yaml", forked=True).process.wait(60) == 0

    def serve(self) -> Usher:
        service = self._start("serve", "--config", "behind.yaml")
        serving(service, f"http://{HOST}:{self.port}")
        return service

    def restart(self) -> None:
        assert self.service.end() == 0
        self.service = self.serve()

    def cut(self) -> None:
        self.proxy.close()

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Drops all packets between the node and the database within the block, as a pulled cable does."""
        port = str(self.proxy.port)
        rules = [("INPUT", "-i", "lo", "-p", "tcp", way, port, "-j", "DROP") for way in ("--sport", "--dport")]
        try:
            for rule in rules:
                subprocess.run([IPTABLES, "-I", *rule], check=True)
            yield
        finally:
            for rule in rules:
                subprocess.run([IPTABLES, "-D", *rule], check=False)

    def heal(self) -> None:
        self.proxy = TcpProxy(self._url.host or "", self._url.port or 5432, at=self._proxy_port)

    def configure(self, **sections: dict[str, Any]) -> None:
        """Adds to sections of the service's settings."""
        settings = yaml.safe_load((self._folder / "behind.yaml").read_text())
        for name, values in sections.items():
            settings[name] |= values
        (self._folder / "behind.yaml").write_text(yaml.safe_dump(settings))

    def in_index(self, name: str) -> Path:
        """A file in the folder of the index."""
        (folder,) = (self._folder / "index").iterdir()
        return folder / name

    def ask(self, **headers: str) -> requests.Response:
        url = f"http://{HOST}:{self.port}/permissions/check"
        return requests.post(url, json=QUESTION, headers={**ASK, **headers}, timeout=10)

    def answer(self, **headers: str) -> tuple[int, bool]:
        """The revision, and whether Ada has access."""
        response = self.ask(**headers)
        assert response.status_code == 200, response.text
        return int(response.headers["x-usher-revision"]), response.json()["data"][0]["hasAccess"]

    def checks(self) -> dict[str, str]:
        """The states of the checks of a node that is ready."""
        response = requests.get(f"http://{HOST}:{self.port}/readyz", timeout=10)
        assert response.status_code == 200, response.text
        return {name: check["state"] for name, check in response.json()["checks"].items()}

    def wait_for_all_processes(self) -> None:
        """Waits until each process answers from the index. Twenty requests reach both of them."""
        wait_for("the index", lambda: all(set(self.checks().values()) == {"ok"} for _ in range(20)))

    def kill_processes(self) -> None:
        """Kills all processes that answer requests; the service starts others."""
        for pid in children_of(self.service.process.pid):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def node(start: Start, tmp_path: Path, postgres: str) -> Iterator[Node]:
    node = Node(start, tmp_path, postgres)
    yield node
    node.proxy.close()


def test_a_node_answers_while_the_database_is_away(node: Node) -> None:
    node.wait_for_all_processes()
    assert node.answer() == (1, True)
    assert set(node.checks().values()) == {"ok"}
    node.cut()
    for _ in range(20):
        assert node.answer() == (1, True)
    wait_for("the outage to be noticed", lambda: node.checks()["database"] == "degraded")
    node.kill_processes()
    wait_for("other processes", lambda: node.answer() == (1, True))
    node.restart()
    assert node.answer() == (1, True)
    assert node.checks() == {
        "database": "degraded",
        "migrations": "degraded",
        "accessModel": "degraded",
        "directory": "degraded",
        "index": "ok",
    }
    node.set_members()
    node.refresh()
    node.heal()
    wait_for("the next revision", lambda: node.answer() == (2, False), within=20)
    wait_for("the checks", lambda: set(node.checks().values()) == {"ok"}, within=20)
    assert "Traceback" not in node.service.stderr()


@pytest.mark.extended
@pytest.mark.external
@pytest.mark.skipif(os.getuid() != 0 or not shutil.which(IPTABLES), reason="only root can drop packets, with iptables")
def test_a_node_answers_while_the_network_drops_packets(node: Node) -> None:
    wait_for("the index in each process", lambda: all(node.checks()["index"] == "ok" for _ in range(20)))
    with node.silence():
        # An error follows after 14 seconds. Meanwhile no call waits for it.
        until = time.monotonic() + 18
        while time.monotonic() < until:
            began = time.monotonic()
            assert node.answer() == (1, True)
            assert time.monotonic() - began < 2
            time.sleep(0.1)
        node.set_members()
        node.refresh()
        assert node.answer() == (1, True)
    wait_for("the next revision", lambda: node.answer() == (2, False), within=30)


def test_a_silent_database_holds_no_permission_call(node: Node) -> None:
    """The database accepts connections and responds to nothing, while others ask for what only the database has."""
    node.wait_for_all_processes()
    speaks, ended = Event(), Event()
    node.proxy.delay = speaks.wait
    statuses: list[int] = []

    def ask() -> None:
        url = f"http://{HOST}:{node.port}"
        headers = {"x-usher-min-revision": "99"}
        while not ended.is_set():
            for path in ("readyz", "permissions/check", "permissions/list-resources", "metrics"):
                with suppress(requests.RequestException):
                    method = "GET" if path in {"readyz", "metrics"} else "POST"
                    auth = {**ASK, **headers} if path == "permissions/check" else ADMIN
                    body = {"userId": "ada", "organizationId": "acme"} if "list" in path else QUESTION
                    statuses.append(requests.request(method, f"{url}/{path}", json=body, headers=auth).status_code)

    callers = [Thread(target=ask, daemon=True) for _ in range(16)]
    for caller in callers:
        caller.start()
    slowest, until = 0.0, time.monotonic() + 25
    while time.monotonic() < until:
        began = time.monotonic()
        assert node.answer() == (1, True)
        slowest = max(slowest, time.monotonic() - began)
        time.sleep(0.05)
    ended.set()
    # Until the silence is noticed, calls may wait behind others for their turn.
    assert slowest < 4
    node.set_members()
    node.refresh()
    node.proxy.delay = lambda: None
    speaks.set()
    wait_for("the next revision", lambda: node.answer() == (2, False), within=30)
    wait_for("the checks", lambda: set(node.checks().values()) == {"ok"}, within=30)
    for caller in callers:
        caller.join(30)
    assert {200, 503} >= set(statuses) > {200}
    assert "Traceback" not in node.service.stderr()


@pytest.mark.extended
@pytest.mark.parametrize("size", [0, 8192])
def test_processes_that_a_truncated_file_kills_are_replaced(node: Node, size: int) -> None:
    node.wait_for_all_processes()
    before = set(children_of(node.service.process.pid))
    damaged = node.in_index("current").read_text()
    os.truncate(node.in_index(damaged), size)
    statuses: list[int] = []

    def is_repaired() -> bool:
        # A killed process answers nothing.
        with suppress(requests.ConnectionError):
            response = node.ask()
            statuses.append(response.status_code)
            if response.status_code == 200:
                assert response.headers["x-usher-revision"] == "1"
                assert response.json()["data"][0]["hasAccess"]
        return node.in_index("current").read_text() != damaged

    wait_for("another file", is_repaired, within=20)
    node.set_members()
    node.refresh()
    wait_for("the next revision", lambda: all(node.answer() == (2, False) for _ in range(20)), within=20)
    wait_for("the checks", lambda: set(node.checks().values()) == {"ok"}, within=20)
    assert set(statuses) <= {200, 503}
    assert before - set(children_of(node.service.process.pid))
    assert "SIGBUS" in node.service.stderr()


@pytest.mark.extended
def test_answers_end_at_the_maximum_age_of_the_directory(node: Node) -> None:
    node.wait_for_all_processes()
    node.configure(directory={"max_age": 12})
    node.restart()
    restarted = time.time()
    wait_for("a confirmation", lambda: node.in_index("confirmed").stat().st_mtime > restarted)
    began = time.monotonic()
    node.cut()
    while node.ask().status_code == 200:
        assert time.monotonic() < began + 30
        time.sleep(0.1)
    assert time.monotonic() > began + 11
    assert node.ask().status_code == 503
    node.heal()
    wait_for("an answer", lambda: node.ask().status_code == 200, within=20)


def test_changes_end_access_within_a_second(node: Node) -> None:
    node.wait_for_all_processes()
    for revision in range(2, 6):
        has_access = revision % 2 == 1
        node.set_members(*(["ada"] if has_access else []))
        node.refresh()
        assert node.answer(**{"x-usher-min-revision": str(revision)}) == (revision, has_access)
        until = time.monotonic() + 1
        while node.answer()[0] != revision:
            assert time.monotonic() < until
        assert node.answer() == (revision, has_access)
    metrics = requests.get(f"http://{HOST}:{node.port}/metrics", timeout=10).text
    assert "\nusher_index_revision 5.0\n" in metrics
    assert "\nusher_index_used 1.0\n" in metrics
    assert "\nusher_index_delay_seconds_count 4.0\n" in metrics
    (delays,) = re.findall(r"^usher_index_delay_seconds_sum (\S+)$", metrics, re.MULTILINE)
    assert 0 < float(delays) < 4
    assert re.search(r"^usher_index_staleness_seconds \S+$", metrics, re.MULTILINE)
    lines = [json.loads(line) for line in node.service.stderr().splitlines() if line.startswith("{")]
    assert not [line for line in lines if line["event"].startswith("index_")]
