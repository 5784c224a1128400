"""``usher demo``, and the commands that it suggests."""

import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from app.client.client import BackendClient
from app.contract import operations
from app.contract.permissions import GetPermissionsRequest
from app.contract.users import GetUsersRequest, User
from app.settings import load_settings
from tests.e2e.conftest import Usher, alive, children_of, wait_for
from tests.ports import HOST, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180), pytest.mark.xdist_group("e2e")]

Start = Callable[..., Usher]

EXPECTED = {
    ("dario", "organization northwind"): ("allowed", "editor", "–"),
    ("liam", "document welcome"): ("allowed", "viewer", "–"),
    ("xavier", "document welcome"): ("denied", "–", "–"),
    ("xavier", "document press-kit"): ("allowed", "viewer", "–"),
    ("chiyo", "document project-aurora"): ("allowed", "editor", "–"),
    ("farah", "document project-aurora"): ("allowed", "viewer", "–"),
    ("goran", "document project-aurora"): ("allowed", "editor", "–"),
    ("jun", "document project-aurora"): ("denied", "–", "–"),
    ("xavier", "document project-aurora"): ("denied", "–", "–"),
    ("wanda", "document q3-report"): ("allowed", "viewer", "2099-12-31"),
    ("wanda", "document salaries"): ("denied", "–", "–"),
    ("oskar", "document welcome"): ("denied", "–", "–"),
    ("sven", "folder laser"): ("allowed", "editor", "–"),
}
"""Derived by hand from config/demo/directory.yaml and ``app/access/decision/README.md``, "The decision"."""


def test_demo_once_shows_answers_and_exits(start: Start) -> None:
    demo = start("demo", "--once")
    assert demo.process.wait(150) == 0, demo.stderr()
    rows = [line.split("\t") for line in demo.stdout().splitlines() if line.count("\t") == 5]
    assert {(who, what): (answer, role, until) for who, what, answer, role, until, _ in rows} == EXPECTED
    for _, _, answer, _, _, reason in rows:
        assert reason.startswith("Allowed" if answer == "allowed" else "Denied")
    assert "Traceback" not in demo.stderr()
    folder = next(line.split()[-1] for line in demo.stdout().splitlines() if line.startswith("  data"))
    assert not Path(folder).exists()


@pytest.mark.extended
@pytest.mark.parametrize("taken", ["service", "backend"])
def test_demo_refuses_a_used_port(start: Start, tmp_path: Path, taken: str) -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        demo = start("demo", "--once", "--port", str(port - (taken == "backend")), "--data", str(tmp_path / "data"))
        assert demo.process.wait(60) == 1
        # The other port of the pair may be in use as well: the message then names that one.
        assert re.search(
            rf"cannot listen on {HOST}:({port - 1}|{port}|{port + 1}): Address already in use; choose another port",
            demo.stderr(),
        )
        other.settimeout(0)
        with pytest.raises(BlockingIOError):
            other.accept()


@pytest.mark.extended
def test_demo_follows_an_edited_directory(start: Start, tmp_path: Path) -> None:
    data, port = tmp_path / "data", free_port()
    demo = start("demo", "--data", str(data), "--port", str(port))
    wait_for("the demo", lambda: "Ctrl-C" in demo.stdout() or demo.process.poll() is not None, within=150)
    assert demo.process.poll() is None, demo.stderr()
    # This is no terminal, so the output contains no secret.
    last = [line.split()[:2] for line in demo.stdout().splitlines()[-3:]]
    url = f"http://{HOST}:{port}/console/"
    assert last == [["console", f"{url},"], ["edit", f"{data}/directory.yaml,"], ["stop", "Ctrl-C;"]]
    assert f"console={url}" in (data / "service.log").read_text()
    settings = load_settings(data / "usher.yaml", environment={}).settings
    service = f"http://{HOST}:{port}"
    admin = {"Authorization": f"Bearer {(data / 'admin-token').read_text().strip()}"}

    def may_open(client: BackendClient, user: str) -> bool:
        request = GetPermissionsRequest(organization_id="northwind", user_ids=[user], document_ids=["salaries"])
        return client.call(operations.GET_PERMISSIONS, request).data[user].documents["salaries"].error_code is None

    def members(client: BackendClient) -> set[str]:
        answer = client.call(operations.GET_USERS, GetUsersRequest(organization_id="northwind"))
        return {user.user_id for user in answer.data if isinstance(user, User)}

    with BackendClient(settings.backend) as client:
        assert requests.get(f"{service}/readyz", timeout=60).status_code == 200
        assert (may_open(client, "hanna"), may_open(client, "xavier")) == (True, False)
        assert "xavier" not in members(client)
        text = (data / "directory.yaml").read_text("utf-8")
        text = text.replace("memberships:\n", "memberships:\n  - { organizationId: northwind, userId: xavier }\n", 1)
        text = text.replace(
            "groupMembers:\n",
            "groupMembers:\n  - { organizationId: northwind, organizationUserGroupId: finance, userId: xavier }\n",
            1,
        )
        for group in ("finance", "leadership"):
            text = text.replace(
                f"  - {{ organizationId: northwind, organizationUserGroupId: {group}, userId: hanna }}\n", ""
            )
        (data / "directory.yaml").write_text(text, "utf-8")

        answer = requests.post(f"{service}/resync", headers=admin, timeout=60)
        assert answer.status_code == 202
        run = _ended(service + answer.headers["Location"], admin)
        assert run["status"] == "done", run
        changes = requests.get(f"{service}{answer.headers['Location']}/changes", headers=admin, timeout=60).json()
        assert {"add", "delete"} <= {change["action"] for change in changes["changes"]}
        # On SQLite, the index checks for a new revision twice a second.
        wait_for("the change", lambda: not may_open(client, "hanna") and may_open(client, "xavier"), within=2)
        assert "xavier" in members(client)
    metrics = requests.get(f"{service}/metrics", timeout=60).text
    assert 'usher_runs{status="done"} 2.0' in metrics
    assert 'usher_decisions_total{outcome="allowed"}' in metrics

    processes = children_of(demo.process.pid)
    assert len(processes) >= 5  # three, and the workers of the two servers
    assert demo.end(signal.SIGINT) == 0
    assert alive(processes) == []


def _ended(url: str, headers: dict[str, str]) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        run: dict[str, Any] = requests.get(url, headers=headers, timeout=60).json()
        return run if run["status"] in {"done", "partial", "held", "failed", "cancelled"} else None

    found: dict[str, Any] = wait_for("the run", look)
    return found


@pytest.mark.extended
def test_demo_prints_the_log_of_a_failed_child(start: Start, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "usher.db").write_text("this is no database")
    demo = start("demo", "--once", "--port", str(free_port()), "--data", str(data))
    assert demo.process.wait(100) == 1
    assert demo.stderr().splitlines()[-1].startswith("error: service ended with exit code 1")
    assert "the database cannot be used: " in demo.stderr()
    assert "usher.db is not a SQLite database" in demo.stderr()
    assert "Traceback" not in demo.stderr()
