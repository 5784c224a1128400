"""A running installation: backend, service and worker as processes, on the sample directory and a folder of old
documents. Each role has an operator."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml
from click.testing import CliRunner
from sqlalchemy import Engine

from app.cli import usher
from app.commands.bootstrap.outgoing import backend_client
from app.commands.demo.environment import (
    DemoEnvironment,
    create_workspace,
    prepare,
    register_service,
    start,
    wait_for,
)
from app.contract import operations
from app.contract.documents import GetDocumentsRequest
from app.foundation.database.engine import open_engine, reading
from app.foundation.files import write_file
from app.foundation.outbound.session import bare_session
from app.foundation.processes import Children
from app.service.console.settings import Role
from app.settings import Settings
from app.sync.runs.status import held_runs
from tests.ports import free_port
from tests.service.console import issuer as issuers
from tests.service.console.issuer import FakeIssuer

CLIENT_ID, CLIENT_SECRET = "usher", "the-secret-of-the-client"
"""The credentials of the console at the issuer."""
PEOPLE = {"vera": ["readers"], "adele": ["readers", "deciders"], "max": ["deciders", "keepers"], "nils": ["others"]}
"""The users of the issuer, and their groups."""
PASSWORD = "the password of everybody at the issuer"
TOKENS = {role: f"the token of the {role} is long" for role in Role}
OLD = tuple(f"minutes-{number:02}" for number in range(40))
"""The documents of the folder ``archive``."""
GONE = OLD[:34]
"""Those that ``without_old_documents`` removes from the directory."""
ISSUER = Path(sys.prefix) / "issuer"
"""The installation of canaille. It is separate, because it contains a package ``tests``."""
_TOKENS = [{"name": f"The {role}", "role": str(role), "token": token} for role, token in TOKENS.items()]
_WITHIN = 60.0
_ENDED = {"done", "partial", "held", "failed", "cancelled"}


class Company:
    """The processes, the directory file, and the documents of the backend."""

    def __init__(self, demo: DemoEnvironment, children: Children) -> None:
        self.demo = demo
        self.children = children
        self.url = demo.service_url
        self.settings: Settings = demo.settings()
        self.engine: Engine = open_engine(self.settings.database_url)
        self.issuer = self.settings.console.oidc.issuer
        self._session = bare_session()
        self._session.headers["Authorization"] = f"Bearer {demo.token_file.read_text('utf-8').strip()}"
        self._whole = demo.directory.read_text("utf-8")

    def edit(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Changes the directory file."""
        directory = yaml.safe_load(self._whole)
        change(directory)
        write_file(self.demo.directory, yaml.safe_dump(directory, sort_keys=False, allow_unicode=True))

    def restore(self) -> None:
        """Restores the original directory file."""
        write_file(self.demo.directory, self._whole)

    def sync(self, **body: Any) -> dict[str, Any]:
        """Requests a run, and waits for its end."""
        return self.ended(self.ask(**body))

    def ask(self, **body: Any) -> str:
        """Requests a run. Returns its id."""
        answer = self._session.post(f"{self.url}/resync", json=body, timeout=30)
        answer.raise_for_status()
        found: str = answer.json()["runId"]
        return found

    def run(self, run_id: str) -> dict[str, Any]:
        """The current state of a run."""
        found: dict[str, Any] = self._session.get(f"{self.url}/resync/{run_id}", timeout=30).json()
        return found

    def ended(self, run_id: str) -> dict[str, Any]:
        """Waits for the end of a run."""
        end = time.monotonic() + _WITHIN
        while time.monotonic() < end:
            found = self.run(run_id)
            if found["status"] in _ENDED:
                return found
            self.children.check()
            time.sleep(0.05)
        raise AssertionError(f"{run_id} has not ended within {_WITHIN:.0f} s")

    def back_in_step(self) -> None:
        """Discards held deletes, and syncs the original directory."""
        with reading(self.engine) as connection:
            held = [run.run_id for run in held_runs(connection, 0)]
        for run_id in held:
            self._session.post(f"{self.url}/resync/{run_id}/cancel", json={}, timeout=30).raise_for_status()
        self.restore()
        run = self.sync(allowDeletes=True)
        assert run["status"] == "done", run

    def checked(self, *question: str) -> dict[str, Any]:
        """The JSON of ``usher check`` for this question."""
        arguments = ["check", *question, "--explain", "--json", "--config", str(self.demo.settings_file)]
        found: dict[str, Any] = json.loads(CliRunner().invoke(usher, arguments, prog_name="usher").stdout)
        return found

    def documents(self) -> set[str]:
        """The documents of ``OLD`` in the backend."""
        return set(self._documents(folder_id="archive"))

    def document_name(self, document_id: str) -> str | None:
        """The name of a document of Northwind in the backend."""
        return self._documents(document_ids=[document_id])[document_id]

    def _documents(self, **which: Any) -> dict[str, str | None]:
        request = GetDocumentsRequest(organization_id="northwind", page_size=100, **which)
        with backend_client(self.settings) as client:
            return {
                document.id: document.document_name for document in client.call(operations.GET_DOCUMENTS, request).data
            }

    @contextmanager
    def standing_still(self, name: str) -> Iterator[Callable[[float], None]]:
        """Suspends the processes of ``backend``, ``serve`` or ``worker``. The yielded function resumes them for some
        seconds."""
        first = next(one for one in psutil.Process().children() if name in one.cmdline())
        family = [first, *first.children(recursive=True)]

        def send(what: signal.Signals) -> None:
            for process in family:
                os.kill(process.pid, what)

        def let_go(seconds: float) -> None:
            send(signal.SIGCONT)
            time.sleep(seconds)
            send(signal.SIGSTOP)

        send(signal.SIGSTOP)
        try:
            yield let_go
        finally:
            send(signal.SIGCONT)


def without_old_documents(directory: dict[str, Any]) -> None:
    """Removes the documents in ``GONE`` from the directory."""
    directory["documents"] = [one for one in directory["documents"] if one["documentId"] not in GONE]


def _furnished(folder: Path, issuer: str) -> DemoEnvironment:
    demo = prepare(folder, None)
    directory = yaml.safe_load(demo.directory.read_text("utf-8"))
    directory["folders"].append({"organizationId": "northwind", "folderId": "archive", "folderName": "Archive"})
    directory["documents"] += [
        {"organizationId": "northwind", "documentId": one, "documentName": f"Minutes {one[-2:]}", "folderId": "archive"}
        for one in OLD
    ]
    write_file(demo.directory, yaml.safe_dump(directory, sort_keys=False, allow_unicode=True))
    values = yaml.safe_load(demo.settings_file.read_text("utf-8"))
    values["console"] = {
        "name": "trial",
        "public_url": demo.service_url,
        "tokens": _TOKENS,
        "oidc": {
            "issuer": issuer,
            "name": "Canaille",
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "roles": {"readers": "viewer", "deciders": "approver", "keepers": "admin"},
        },
    }
    # The guard would refuse a read whose deletes the limits are to hold.
    values["directory"]["guard"] = {"count": 1000, "percent": 100}
    values["sync"] = {"schedule": "", "verify_schedule": "", "jitter": 0}
    values["worker"] = {"poll": 0.1}
    # Small calls make a run slow enough to be observed.
    values["backend"].update(batch_size=1, max_in_flight=1)
    write_file(demo.settings_file, yaml.safe_dump(values, sort_keys=False, allow_unicode=True))
    return demo


class Newborn:
    """A service with an empty database, and a simulated issuer."""

    def __init__(self, demo: DemoEnvironment, issuer: FakeIssuer) -> None:
        self.url = demo.service_url
        self.engine: Engine = open_engine(demo.settings().database_url)
        self.issuer = issuer


@contextmanager
def newborn(folder: Path) -> Iterator[Newborn]:
    """Runs such a service during the block."""
    children = Children()
    with issuers.running_issuer() as issuer:
        demo = prepare(folder, None)
        values = yaml.safe_load(demo.settings_file.read_text("utf-8"))
        roles = {"ops": "approver"}
        client = {"client_id": issuers.CLIENT_ID, "client_secret": issuers.CLIENT_SECRET}
        values["console"] = {
            "public_url": demo.service_url,
            "tokens": _TOKENS,
            "oidc": {"issuer": issuer.url, "name": "Acme SSO", "roles": roles, **client},
        }
        write_file(demo.settings_file, yaml.safe_dump(values))
        try:
            start("service", demo, children)
            wait_for(demo.service_url, children)
            one = Newborn(demo, issuer)
            try:
                yield one
            finally:
                one.engine.dispose()
        finally:
            children.end(quickly=True)


@contextmanager
def running(folder: Path) -> Iterator[Company]:
    """Runs a company that is in step, during the block."""
    port = free_port()
    demo = _furnished(folder, f"http://localhost:{port}")
    children = Children()
    issuer = _issuer(port, f"{demo.service_url}/console/oidc/back", folder / "issuer.log")
    try:
        start("backend", demo, children)
        wait_for(demo.backend_url, children)
        create_workspace(demo)
        start("service", demo, children)
        wait_for(demo.service_url, children)
        register_service(demo)
        company = Company(demo, children)
        first = company.ask()
        start("worker", demo, children)
        run = company.ended(first)
        assert run["status"] == "done", run
        try:
            yield company
        finally:
            company.engine.dispose()
    finally:
        children.end(quickly=True)
        issuer.kill()
        issuer.wait()


def _issuer(port: int, redirect_uri: str, log: Path) -> subprocess.Popen[bytes]:
    program = Path(__file__).with_name("canaille_server.py")
    wanted = {
        "port": port,
        "redirect_uri": redirect_uri,
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "people": PEOPLE,
        "password": PASSWORD,
    }
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-P", str(program), json.dumps(wanted)],
            cwd=log.parent,
            env=os.environ | {"PYTHONPATH": str(ISSUER)},
            stdout=output,
            stderr=output,
        )
