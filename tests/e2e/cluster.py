"""Several nodes over one PostgreSQL: services, their callers, and an editor of the directory."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import psycopg
import requests
import yaml

from tests.e2e.conftest import Usher, children_of, wait_for
from tests.ports import HOST, free_port
from tests.worlds.tcp_proxy import TcpProxy

ASK = {"Authorization": "Bearer ask-me-for-tests"}
ADMIN = {"Authorization": "Bearer rule-me-for-tests"}
ORGANIZATION = "acme"
USERS = [f"user{number}" for number in range(12)]
GROUPS = [f"group{number}" for number in range(4)]
FOLDERS = [f"folder{number}" for number in range(6)]
DOCUMENTS = [f"document{number}" for number in range(12)]

Directory = dict[str, list[dict[str, str]]]
"""The content of a directory file."""


class Question(NamedTuple):
    user: str
    type: str
    resource: str


def new_directory() -> Directory:
    """Everything is restricted, so that only memberships and grants give access."""
    here = {"organizationId": ORGANIZATION}
    folders = [
        {**here, "folderId": folder, "folderName": folder} | ({"parentFolderId": FOLDERS[(at - 1) // 2]} if at else {})
        for at, folder in enumerate(FOLDERS)
    ]
    return {
        "organizations": [{**here, "organizationName": "Acme", "accessType": "restricted"}],
        "users": [{"userId": user, "name": user, "email": f"{user}@acme.example"} for user in USERS],
        "groups": [{**here, "organizationUserGroupId": group, "groupName": group} for group in GROUPS],
        "folders": folders,
        "documents": [
            {**here, "documentId": document, "documentName": document, "folderId": FOLDERS[at % len(FOLDERS)]}
            for at, document in enumerate(DOCUMENTS)
        ],
        "memberships": [{**here, "userId": user} for user in USERS[:6]],
        "groupMembers": [{**here, "organizationUserGroupId": GROUPS[0], "memberGroupId": GROUPS[1]}],
        "grants": [{**here, "folderId": FOLDERS[0], "organizationUserGroupId": GROUPS[0], "accessRole": "viewer"}],
    }


def edited(directory: Directory, random: Random) -> Directory:
    """The directory with a few changes. They never cancel each other."""
    directory = deepcopy(directory)
    here = {"organizationId": ORGANIZATION}
    user = random.choice(USERS)
    _toggle(directory["memberships"], {**here, "userId": user})
    _toggle(directory["groupMembers"], {**here, "organizationUserGroupId": random.choice(GROUPS), "userId": user})
    resource = random.choice([{"folderId": random.choice(FOLDERS)}, {"documentId": random.choice(DOCUMENTS)}])
    who = random.choice([{"userId": random.choice(USERS)}, {"organizationUserGroupId": random.choice(GROUPS)}])
    _toggle(directory["grants"], {**here, **resource, **who}, accessRole=random.choice(["viewer", "editor"]))
    random.choice(directory["documents"])["folderId"] = random.choice(FOLDERS)
    return directory


def _toggle(records: list[dict[str, str]], key: dict[str, str], **further: str) -> None:
    there = [record for record in records if {k: v for k, v in record.items() if k != "accessRole"} == key]
    if there:
        records.remove(there[0])
    else:
        records.append({**key, **further})


def naive_role(directory: Directory, question: Question) -> str | None:
    """The role in a directory of ``new_directory``, written from the rules. None: no access."""
    user = question.user
    if question.type == "organization":
        return "editor" if any(one["userId"] == user for one in directory["memberships"]) else None
    groups: set[str] = set()
    for _ in GROUPS:
        for member in directory["groupMembers"]:
            if member.get("userId") == user or member.get("memberGroupId") in groups:
                groups.add(member["organizationUserGroupId"])
    levels, folder = [], question.resource if question.type == "folder" else None
    if question.type == "document":
        levels.append(("documentId", question.resource))
        folder = next(one for one in directory["documents"] if one["documentId"] == question.resource)["folderId"]
    while folder is not None:
        levels.append(("folderId", folder))
        folder = next(one for one in directory["folders"] if one["folderId"] == folder).get("parentFolderId")
    for name, resource in levels:
        grants = [grant for grant in directory["grants"] if grant.get(name) == resource]
        own = [grant for grant in grants if grant.get("userId") == user]
        of_groups = [grant for grant in grants if grant.get("organizationUserGroupId") in groups]
        if decisive := own or of_groups:
            return min(grant["accessRole"] for grant in decisive)  # "editor" comes before "viewer"
    return None


class Node:
    """A service with an index of its own, whose connection to the database can be cut."""

    def __init__(self, folder: Path, database_port: int, settings: dict[str, Any]) -> None:
        folder.mkdir()
        self.folder = folder
        self._database_port = database_port
        self.proxy = TcpProxy(HOST, database_port)
        self._proxy_port = self.proxy.port
        self.port = free_port()
        self.url = f"http://{HOST}:{self.port}"
        settings = {
            **settings,
            "database_url": f"postgresql+psycopg://postgres@{HOST}:{self._proxy_port}/postgres",
            "server": {"port": self.port, "workers": 2},
            "index": {"path": str(folder / "index")},
        }
        (folder / "usher.yaml").write_text(yaml.safe_dump(settings))
        self.usher: Usher | None = None
        self.is_serving = False
        """Whether callers use it."""
        self.is_killed = False
        """Whether calls to it may fail."""
        self.is_cut = False
        """Whether it may refuse calls that require a newer revision."""
        self._calls = 0
        """Calls that are in progress."""
        self._lock = threading.Lock()
        self.starts = 0

    def start(self, version: Path | None = None) -> None:
        self.usher = Usher(self.folder, "serve", "--config", "usher.yaml", forked=version is None, version=version)
        wait_for("the node", lambda: self.look("readyz").status_code == 200, within=60)
        self.starts += 1
        self.is_killed = False
        self.is_serving = True

    def look(self, path: str) -> requests.Response:
        assert self.usher is not None
        assert self.usher.process.poll() is None, self.usher.stderr()
        return requests.get(f"{self.url}/{path}", timeout=10)

    @contextmanager
    def called(self) -> Iterator[bool]:
        """Counts a call. False: the node takes none."""
        with self._lock:
            self._calls += self.is_serving
            is_called = self.is_serving
        try:
            yield is_called
        finally:
            with self._lock:
                self._calls -= is_called

    def kill(self) -> None:
        """As if its machine lost power. Callers do not notice."""
        assert self.usher is not None
        self.is_killed = True
        for pid in [self.usher.process.pid, *children_of(self.usher.process.pid)]:
            os.kill(pid, signal.SIGKILL)
        self.usher.process.wait(20)

    def stop(self) -> None:
        """Ends it as a load balancer does: first the calls, then the process."""
        assert self.usher is not None
        with self._lock:
            self.is_serving = False
        wait_for("the last calls", lambda: self._calls == 0)
        assert self.usher.end() == 0, self.usher.stderr()

    def cut(self) -> None:
        """PostgreSQL closes its connections, and refuses others."""
        self.is_cut = True
        self.proxy.close()

    def heal(self) -> None:
        self.proxy.close()
        self.proxy = TcpProxy(HOST, self._database_port, at=self._proxy_port)

    def ask(
        self, questions: Iterable[Question], min_revision: int = 0, session: requests.Session | None = None
    ) -> requests.Response:
        """A permission call. ``min_revision``: 0 for any revision."""
        body = {"data": {"requests": [_wire(question) for question in questions]}}
        headers = {**ASK, "x-usher-min-revision": str(min_revision)} if min_revision else ASK
        url = f"{self.url}/permissions/check"
        return (session or requests).post(url, json=body, headers=headers, timeout=20)

    def revision(self) -> int:
        """The revision by which it answers."""
        response = self.ask([])
        assert response.status_code == 200, response.text
        return int(response.headers["x-usher-revision"])


@dataclass
class Editor:
    """Edits the directory file, requests a run after each edit, and records the content of each revision."""

    file: Path
    nodes: list[Node]
    database_port: int
    random: Random
    directory: Directory = field(default_factory=new_directory)
    revisions: dict[int, Directory] = field(default_factory=dict)
    pause: threading.Lock = field(default_factory=threading.Lock)
    """Prevents further edits while it is held."""
    ended: threading.Event = field(default_factory=threading.Event)
    errors: list[str] = field(default_factory=list)

    def write(self) -> None:
        temporary = self.file.with_suffix(".new")
        temporary.write_text(json.dumps(self.directory))
        temporary.rename(self.file)

    @property
    def newest(self) -> int:
        return max(self.revisions)

    def run(self) -> None:
        try:
            while not self.ended.wait(0.2):
                with self.pause:
                    self.directory = edited(self.directory, self.random)
                    self.write()
                    self._read()
        except Exception as error:  # noqa: BLE001 - the test shows it
            self.errors.append(repr(error))

    def _read(self) -> None:
        """Requests runs until a new revision has the edit."""
        end = time.monotonic() + 60
        asked_at = 0.0
        while time.monotonic() < end:
            if time.monotonic() - asked_at > 1:
                asked_at = time.monotonic()
                self._request_run()
            if (revision := self._current()) > self.newest:
                assert revision == self.newest + 1, (revision, self.newest)
                self.revisions[revision] = self.directory
                return
            time.sleep(0.05)
        raise AssertionError("no run read the directory within 60 seconds")

    def _request_run(self) -> None:
        for node in self.nodes:
            if node.is_serving and not node.is_cut:
                try:
                    response = requests.post(f"{node.url}/resync", headers=ADMIN, json={}, timeout=10)
                except requests.RequestException:
                    continue
                if response.status_code == 202:
                    return

    def _current(self) -> int:
        url = f"postgresql://postgres@{HOST}:{self.database_port}/postgres"
        try:
            with psycopg.connect(url, connect_timeout=2) as connection:
                row = connection.execute("SELECT max(revision) FROM access_revision").fetchone()
        except psycopg.OperationalError:
            return 0
        return row[0] or 0 if row else 0


class Answer(NamedTuple):
    node: str
    revision: int
    min_revision: int
    roles: dict[Question, str | None]


class Caller:
    """Calls the nodes in turn, on connections that it keeps. Most calls have ten questions."""

    def __init__(self, number: int, nodes: list[Node], editor: Editor, ended: threading.Event) -> None:
        self._random = Random(number)
        self._nodes = nodes
        self._editor = editor
        self._ended = ended
        self.answers: list[Answer] = []
        self.failures: list[str] = []
        self.failed_on_killed = 0
        self.refused_on_cut = 0
        self._sessions: dict[tuple[str, int], requests.Session] = {}

    def run(self) -> None:
        for number in count():
            if self._ended.wait(0.01):
                return
            node = self._nodes[number % len(self._nodes)]
            with node.called() as is_called:
                if is_called:
                    self._call(node)

    def _call(self, node: Node) -> None:
        min_revision = self._editor.newest if self._random.random() < 0.3 else 0
        questions = [self._question() for _ in range(10)]
        session = self._sessions.setdefault((node.url, node.starts), requests.Session())
        was_cut = node.is_cut
        try:
            response = node.ask(questions, min_revision, session)
        except requests.RequestException as error:
            if node.is_killed:
                self.failed_on_killed += 1
            else:
                self.failures.append(f"{node.folder.name}: {error!r}")
            return
        if response.status_code == 503 and min_revision and was_cut:
            self.refused_on_cut += 1
        elif response.status_code != 200:
            self.failures.append(f"{node.folder.name}: {response.status_code} {response.text[:200]} {min_revision}")
        else:
            results = [item.get("accessRole") for item in response.json()["data"]]
            revision = int(response.headers["x-usher-revision"])
            roles = dict(zip(questions, results, strict=True))
            self.answers.append(Answer(node.folder.name, revision, min_revision, roles))

    def _question(self) -> Question:
        kind, ids = self._random.choice(
            [("document", DOCUMENTS), ("document", DOCUMENTS), ("folder", FOLDERS), ("organization", [ORGANIZATION])]
        )
        return Question(self._random.choice(USERS), kind, self._random.choice(ids))


def _wire(question: Question) -> dict[str, Any]:
    resource = {"type": question.type, "id": question.resource, "organizationId": ORGANIZATION}
    return {"userId": question.user, "resource": resource}


@contextmanager
def running(*functions: Callable[[], None], ended: threading.Event) -> Iterator[None]:
    """Runs the functions in threads, which end after ``ended``."""
    threads = [threading.Thread(target=function, daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(90)
