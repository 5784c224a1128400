"""Three services and two workers over one PostgreSQL, under load, while parts of them fail or are replaced."""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from app.client.client import BackendClient
from app.client.settings import BackendSettings
from app.contract import operations
from app.contract.documents import GetDocumentsRequest
from app.contract.users import GetUsersRequest, User
from tests.conftest import POSTGRES
from tests.e2e.cluster import FOLDERS, ORGANIZATION, Caller, Editor, Node, Question, naive_role, running
from tests.e2e.conftest import Usher, serving, wait_for
from tests.e2e.test_upgrade import Newer
from tests.ports import HOST, free_port
from tests.worlds.postgres_server import PostgresServer, own_postgres

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.extended,
    pytest.mark.external,
    pytest.mark.postgres,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("e2e"),
    pytest.mark.skipif(not POSTGRES, reason="USHER_TEST_POSTGRES names no server"),
]

Start = Callable[..., Usher]

OUTAGE = 20.0
"""Seconds for which PostgreSQL is stopped."""


class Cluster:
    """The processes, and what happened to the calls."""

    def __init__(self, start: Start, folder: Path, server: PostgresServer) -> None:
        self.folder = folder
        self.server = server
        self.settings: dict[str, Any] = {
            "provider": {"auth_tokens": ["ask-me-for-tests"]},
            "admin": {"tokens": ["rule-me-for-tests"]},
            "directory": {
                "guard": {"count": 1000},
                "sources": [{"type": "file", "name": "hr", "path": str(folder / "directory.json")}],
            },
            "sync": {"schedule": "", "verify_schedule": "", "limits": {"delete_count": 1000, "delete_percent": 100}},
            "worker": {"poll": 0.2},
            "self_hosted_backend": {"database_url": f"sqlite:///{folder}/backend.db"},
        }
        backend_port = free_port()
        self.settings["backend"] = {"base_url": f"http://{HOST}:{backend_port}"}
        self._write()
        backend = start("backend", "serve", "--port", str(backend_port), "--config", "usher.yaml", forked=True)
        serving(backend, f"http://{HOST}:{backend_port}")
        self.run("db", "upgrade")
        created = json.loads(self.run("backend", "bootstrap", "--email", "owner@acme.example", "--json"))
        self.settings["backend"] |= {"api_key": created["apiKey"], "auth_token": created["authToken"]}
        self._write()
        self.nodes = [Node(folder / f"node{number}", server.port, self.settings) for number in range(3)]
        self.workers: list[Usher] = []
        self.editor = Editor(folder / "directory.json", self.nodes, server.port, Random(5))
        self.ended = self.editor.ended
        self.callers = [Caller(number, self.nodes, self.editor, self.ended) for number in range(3)]

    def _write(self) -> None:
        settings = {**self.settings, "database_url": self.server.url}
        (self.folder / "usher.yaml").write_text(yaml.safe_dump(settings))

    def run(self, *arguments: str) -> str:
        """Runs a command to its end, and returns its output."""
        folder = self.folder / "commands"
        folder.mkdir(exist_ok=True)
        (folder / "usher.yaml").write_text((self.folder / "usher.yaml").read_text())
        command = Usher(folder, *arguments, "--config", "usher.yaml", forked=True)
        assert command.process.wait(120) == 0, command.stdout() + command.stderr()
        return command.stdout()

    def start_worker(self, version: Path | None = None) -> Usher:
        folder = self.folder / f"worker{len(self.workers)}"
        folder.mkdir()
        (folder / "usher.yaml").write_text((self.folder / "usher.yaml").read_text())
        worker = Usher(folder, "worker", "--config", "usher.yaml", forked=version is None, version=version)
        self.workers.append(worker)
        wait_for("the worker", lambda: '"event":"started"' in worker.stderr())
        return worker

    def wait_until_current(self, *, edits: int = 2) -> None:
        """Waits for further edits, and until every node answers by the newest revision."""
        newest = self.editor.newest + edits
        wait_for("edits", lambda: self.editor.newest >= newest or self.editor.errors, within=60)
        assert not self.editor.errors
        for node in self.nodes:
            wait_until(node, newest)

    def end(self) -> None:
        processes = [*self.workers, *(node.usher for node in self.nodes if node.usher)]
        for usher in processes:
            if usher.process.poll() is None:
                usher.process.kill()
                usher.process.wait(20)
        for node in self.nodes:
            node.proxy.close()


@pytest.fixture
def cluster(start: Start, tmp_path: Path) -> Iterator[Cluster]:
    # A test that is run again has the folder of its first try.
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    with own_postgres() as server:
        cluster = Cluster(start, tmp_path, server)
        try:
            yield cluster
        finally:
            cluster.end()


def test_nodes_answer_whatever_happens(cluster: Cluster) -> None:
    editor = cluster.editor
    editor.write()
    cluster.run("directory", "refresh")
    editor.revisions[1] = editor.directory
    for node in cluster.nodes:
        node.start()
    for _ in range(2):
        cluster.start_worker()
    with running(editor.run, *(caller.run for caller in cluster.callers), ended=cluster.ended):
        cluster.wait_until_current()
        for step in (kill_services, kill_workers, stop_postgres, cut_a_node_off, roll_one_node):
            began, before = time.monotonic(), len(answers_of(cluster))
            step(cluster)
            cluster.wait_until_current()
            print(f"{step.__name__}: {time.monotonic() - began:.1f} s, {len(answers_of(cluster)) - before} calls")
            assert not failures_of(cluster), failures_of(cluster)[:5]
    assert not editor.errors
    assert not failures_of(cluster), failures_of(cluster)[:5]
    check_answers(cluster)
    check_backend(cluster)
    for usher in [*cluster.workers, *(node.usher for node in cluster.nodes if node.usher)]:
        assert "Traceback" not in usher.stderr()


def wait_until(node: Node, revision: int) -> None:
    wait_for(f"{node.folder.name} to follow", lambda: node.revision() >= revision, within=30)


def answers_of(cluster: Cluster) -> list[Any]:
    return [answer for caller in cluster.callers for answer in caller.answers]


def failures_of(cluster: Cluster) -> list[str]:
    return [failure for caller in cluster.callers for failure in caller.failures]


def kill_services(cluster: Cluster) -> None:
    for node in cluster.nodes:
        failed = failed_on_killed(cluster)
        node.kill()
        wait_for("calls to fail", partial(has_failed, cluster, failed + 5))
        node.start()
        node.stop()
        node.start()


def failed_on_killed(cluster: Cluster) -> int:
    return sum(caller.failed_on_killed for caller in cluster.callers)


def has_failed(cluster: Cluster, times: int) -> bool:
    return failed_on_killed(cluster) >= times


def kill_workers(cluster: Cluster) -> None:
    for worker in list(cluster.workers):
        worker.process.kill()
        worker.process.wait(20)
        cluster.start_worker()
        cluster.wait_until_current(edits=1)


def stop_postgres(cluster: Cluster) -> None:
    # A revision that no node has seen may be the newest one only while PostgreSQL runs.
    with cluster.editor.pause:
        for node in cluster.nodes:
            wait_until(node, cluster.editor.newest)
        # By then each process of each node has it: a call that reads the database when it stops gets 503.
        time.sleep(3)
        cluster.server.stop("fast")
    revision, before = cluster.editor.newest, len(answers_of(cluster))
    time.sleep(OUTAGE)
    assert cluster.editor.newest == revision
    assert len(answers_of(cluster)) > before + 100
    cluster.server.start()


def cut_a_node_off(cluster: Cluster) -> None:
    node = cluster.nodes[1]
    with cluster.editor.pause:
        wait_until(node, cluster.editor.newest)
        # As above.
        time.sleep(3)
        node.cut()
    revision = node.revision()
    newest = cluster.editor.newest + 5
    wait_for("edits", lambda: cluster.editor.newest >= newest or cluster.editor.errors, within=60)
    assert node.revision() <= revision + 1
    assert node.ask([], newest).status_code == 503
    node.heal()
    wait_until(node, newest)
    node.is_cut = False
    assert sum(caller.refused_on_cut for caller in cluster.callers) > 0


def roll_one_node(cluster: Cluster) -> None:
    """The next version has another migration, and another format of the index."""
    newer = Newer(cluster.folder)
    newer.add("9001")
    layout = newer.folder / "app" / "access" / "index" / "layout.py"
    text, changes = re.subn(r"^LAYOUT = \d+$", "LAYOUT = 9001", layout.read_text(), flags=re.MULTILINE)
    assert changes == 1
    layout.write_text(text)
    assert "keep answering" in newer.run("db", "upgrade", "--config", "usher.yaml")
    node, worker = cluster.nodes[2], cluster.workers[-1]
    node.stop()
    node.start(newer.folder)
    assert worker.end() == 0
    cluster.start_worker(newer.folder)
    cluster.wait_until_current(edits=5)
    details = [node.look("readyz").json()["checks"]["migrations"].get("detail") for node in cluster.nodes]
    assert details[:2] == ["newer than this version, which can still use it"] * 2
    assert details[2] != details[0]


def check_answers(cluster: Cluster) -> None:
    """Compares every answer with a naive evaluation of the revision that it names."""
    revisions = cluster.editor.revisions

    @cache
    def expected(revision: int, question: Question) -> str | None:
        return naive_role(revisions[revision], question)

    answers = answers_of(cluster)
    wrong = [
        (answer.node, answer.revision, question, role)
        for answer in answers
        for question, role in answer.roles.items()
        if role != expected(answer.revision, question)
    ]
    assert not wrong, wrong[:5]
    assert not [answer for answer in answers if answer.revision < answer.min_revision]
    # The comparison proves something: there are many revisions, they differ from the ones before, and users with and
    # without access are asked about.
    assert len({answer.revision for answer in answers}) > 20
    assert any(
        role != expected(answer.revision - 1, question)
        for answer in answers
        if answer.revision > 1
        for question, role in answer.roles.items()
    )
    roles = [role for answer in answers for role in answer.roles.values()]
    assert 0.1 < sum(role is not None for role in roles) / len(roles) < 0.9
    print(f"{len(answers)} calls, {len(revisions)} revisions, {failed_on_killed(cluster)} failed on killed nodes")


def check_backend(cluster: Cluster) -> None:
    """A verify finds nothing to do, and the backend has the users and documents of the last directory."""
    cluster.run("sync", "--verify")
    cluster.run("plan")
    directory = cluster.editor.directory
    settings = BackendSettings(**cluster.settings["backend"])
    with BackendClient(settings) as client:
        found = client.call(operations.GET_USERS, GetUsersRequest(organization_id=ORGANIZATION)).data
        members = {user.user_id for user in found if isinstance(user, User)}
        assert members == {one["userId"] for one in directory["memberships"]}
        for folder in FOLDERS:
            request = GetDocumentsRequest(organization_id=ORGANIZATION, folder_id=folder)
            documents = {document.id for document in client.call(operations.GET_DOCUMENTS, request).data}
            assert documents == {one["documentId"] for one in directory["documents"] if one["folderId"] == folder}
