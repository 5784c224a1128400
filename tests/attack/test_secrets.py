"""Runs all commands with unique secrets, and searches all output and files for them."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
import yaml

from app.contract.operations import by_name
from tests.attack.conftest import BODY, DIRECTORY
from tests.e2e.conftest import wait_for
from tests.forking import Forked, command, without_settings
from tests.ports import HOST, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240), pytest.mark.xdist_group("attack")]

PROVIDER, ADMIN, KEY = "prvdr-7Hq2-token", "admin-9Xw4-token", "key-of-the-vault-3Zk8-secret"
PASSWORD, GUESS, MISPLACED = "pssw-5Rt6-word", "gss-1Lm0-wrong", "mspl-8Yv3-placed"


@dataclass
class Stage:
    """A folder for commands, and all of their output."""

    folder: Path
    beside: Path
    """The folder of the output of commands, which ``seen`` contains."""
    secrets: dict[str, str] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)
    running: list[Forked] = field(default_factory=list)
    number: int = 0

    def _environment(self, further: Mapping[str, str]) -> dict[str, str]:
        return {**without_settings(), "TMPDIR": str(self.folder / "tmp"), **further}

    def command(self, *arguments: str, config: str = "usher.yaml", **environment: str) -> str:
        """Runs a command; its standard output."""
        out, err = self.beside / "out", self.beside / "err"
        self._forked(arguments, config, environment, out, err).wait(90)
        self.number += 1
        self.seen[f"{self.number} {' '.join(arguments)}: stdout"] = out.read_text("utf-8")
        self.seen[f"{self.number} {' '.join(arguments)}: stderr"] = err.read_text("utf-8")
        return out.read_text("utf-8")

    def start(self, *arguments: str, config: str = "usher.yaml") -> None:
        log = self.folder / f"{len(self.running)}-{arguments[0]}.log"
        self.running.append(self._forked(arguments, config, {}, log, log))

    def _forked(
        self, arguments: Sequence[str], config: str, environment: Mapping[str, str], out: Path, err: Path
    ) -> Forked:
        values = self._environment(environment)
        return Forked(command, *arguments, "--config", config, folder=self.folder, out=out, err=err, environment=values)

    def note(self, what: str, answer: requests.Response) -> requests.Response:
        self.seen[f"{what}: answer"] = f"{answer.headers} {answer.text}"
        return answer

    def note_processes(self) -> None:
        for parent in self.running:
            if parent.poll() is None:
                family = [psutil.Process(parent.pid), *psutil.Process(parent.pid).children(recursive=True)]
                for one in family:
                    self.seen[f"process {one.pid}"] = f"{one.name()} {one.cmdline()}"

    def end(self) -> None:
        for process in reversed(self.running):
            process.terminate()
        for process in self.running:
            process.wait(60)

    def leaks(self) -> list[str]:
        """The places that contain a secret."""
        found = [
            f"{name} in {place}"
            for place, text in self.seen.items()
            for name, secret in self.secrets.items()
            if secret in text
        ]
        for file in self.folder.rglob("*"):
            if file.is_file() and file.parent.name != "secrets" and file.suffix != ".yaml":
                content = file.read_bytes()
                found += [
                    f"{name} in {file.name}" for name, secret in self.secrets.items() if secret.encode() in content
                ]
        return found


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path / "stage", tmp_path / "beside")
    for folder in (stage.folder / "tmp", stage.folder / "secrets", stage.beside):
        folder.mkdir(parents=True)
    yield stage
    for process in stage.running:
        if process.poll() is None:
            process.kill()
            process.wait()


def write(folder: Path, name: str, settings: Mapping[str, object]) -> None:
    (folder / name).write_text(yaml.safe_dump(dict(settings)))


def configured(stage: Stage, port: int, backend_port: int) -> dict[str, Any]:
    (stage.folder / "directory.yaml").write_text(yaml.safe_dump(DIRECTORY))
    (stage.folder / "secrets" / "provider").write_text(PROVIDER)
    return {
        "database_url": f"sqlite:///{stage.folder}/usher.db",
        "server": {"port": port, "workers": 1, "threads": 2},
        "provider": {"auth_tokens_file": "secrets/provider"},
        "admin": {"tokens": [ADMIN]},
        "backend": {"base_url": f"http://{HOST}:{backend_port}", "timeout": 5},
        "directory": {"sources": [{"type": "file", "path": "directory.yaml"}]},
        "sync": {"schedule": "", "verify_schedule": ""},
        "log": {"level": "debug"},
        "self_hosted_backend": {
            "database_url": f"sqlite:///{stage.folder}/backend.db",
            "secret_key": KEY,
            "allow_private_urls": True,
            "provider_tries": 1,
        },
    }


def answers(url: str) -> Callable[[], bool]:
    return lambda: requests.get(f"{url}/healthz", timeout=5).ok


def post(url: str, data: object, **headers: str) -> requests.Response:
    return requests.post(url, json={"data": data}, headers=headers, timeout=30)


def bad_settings(stage: Stage, settings: Mapping[str, Any]) -> None:
    """Settings with misplaced secrets, and the commands that could print them."""
    wrong: dict[str, Mapping[str, Any]] = {
        "a token as a map": {"provider": {"auth_tokens": {"token": MISPLACED}}},
        "a token as a number of lists": {"admin": {"tokens": [[MISPLACED]]}},
        "a token with a control character": {"provider": {"auth_tokens": [f"{MISPLACED}\n\x07"]}},
        "a token with a space": {"backend": {"auth_token": f"{MISPLACED} x"}},
        "a key as a list": {"self_hosted_backend": {"secret_key": [MISPLACED]}},
        "a password in a wrong address": {"database_url": f"mysql://u:{PASSWORD}@{HOST}/x"},
        "a password in an address with spaces": {"backend": {"base_url": f"http://u:{PASSWORD}@h ost/"}},
        "a password in the backend's address": {"backend": {"base_url": f"http://u:{PASSWORD}@{HOST}/"}},
    }
    for number, further in enumerate(wrong.values()):
        write(stage.folder, f"wrong{number}.yaml", {**settings, **further})
        stage.command("serve" if number % 2 else "doctor", "-v", config=f"wrong{number}.yaml")
    nowhere = {**settings, "database_url": f"postgresql+psycopg://u:{PASSWORD}@{HOST}:1/x"}
    write(stage.folder, "nowhere.yaml", nowhere)
    for arguments in (["config", "show"], ["db", "upgrade", "-vv"], ["doctor", "-v"]):
        stage.command(*arguments, config="nowhere.yaml")
    stage.command("config", "show", USHER_PROVIDER__AUTH_TOKENS=f'["{MISPLACED}"', USHER_ADMIN__TOKENS=f"{{{MISPLACED}")


@pytest.mark.extended
def test_no_secret_shows_anywhere(stage: Stage) -> None:
    port, backend_port = free_port(), free_port()
    url, backend_url = f"http://{HOST}:{port}", f"http://{HOST}:{backend_port}"
    settings = configured(stage, port, backend_port)
    write(stage.folder, "usher.yaml", settings)
    stage.start("backend", "serve", "--port", str(backend_port), "-vv")
    wait_for("the backend", answers(backend_url))
    created = json.loads(stage.command("backend", "bootstrap", "--email", "owner@acme.example", "--json"))
    # Credentials are shown this once, to who asked for them.
    del stage.seen[next(place for place in stage.seen if "bootstrap" in place and place.endswith("stdout"))]
    stage.secrets = {
        "provider token": PROVIDER,
        "admin token": ADMIN,
        "secret key": KEY,
        "password": PASSWORD,
        "guess": GUESS,
        "misplaced": MISPLACED,
        "auth token": created["authToken"],
        "workspace token": created["workspaceAuthToken"],
    }
    settings["backend"] |= {"api_key": created["apiKey"], "auth_token": created["authToken"]}
    write(stage.folder, "usher.yaml", settings)
    credentials = {"x-service-api-key": created["apiKey"], "x-service-auth-token": created["authToken"]}
    provider = {"permissionProviderUrl": f"{url}/permissions/check", "authToken": PROVIDER}
    configure = backend_url + by_name("update_permission_provider_config").path
    reported = {"usePermissionProvider": True, "permissionProviderConfig": provider}
    assert post(configure, reported, **credentials).ok
    stage.start("serve", "-vv")
    stage.start("worker", "-vv")
    wait_for("the service", answers(url))
    _use_it_well(stage, url, backend_url, credentials)
    _use_it_badly(stage, url, backend_url, created)
    bad_settings(stage, settings)
    stage.note_processes()
    stage.end()
    assert len(stage.seen) > 70
    assert (stage.folder / "backend.db").stat().st_size > 0
    assert stage.leaks() == []


def _use_it_well(stage: Stage, url: str, backend_url: str, credentials: Mapping[str, str]) -> None:
    ruler = {"Authorization": f"Bearer {ADMIN}"}
    run = stage.note("resync", requests.post(f"{url}/resync", headers=ruler, timeout=10)).json()["runId"]

    def ended() -> bool:
        found = stage.note("run", requests.get(f"{url}/resync/{run}", headers=ruler, timeout=10)).json()
        return found["status"] in {"done", "partial", "failed"}

    wait_for("the run", ended, 60)
    assert '"done"' in stage.seen["run: answer"]
    stage.note("changes", requests.get(f"{url}/resync/{run}/changes", headers=ruler, timeout=10))
    asker = {"Authorization": f"Bearer {PROVIDER}", "Content-Type": "application/json"}
    assert stage.note("check", requests.post(f"{url}/permissions/check", data=BODY, headers=asker, timeout=10)).ok
    ask = {"organizationId": "acme", "userId": "ada", "documentIds": ["plan"]}
    stage.note("permissions", post(backend_url + by_name("get_permissions").path, ask, **credentials))
    stage.note_processes()
    for path in ("/metrics", "/readyz", "/", "/openapi.json"):
        stage.note(path, requests.get(url + path, timeout=10))
    stage.note("backend openapi", requests.get(f"{backend_url}/openapi.json", timeout=10))
    for arguments in (
        ["config", "show"],
        ["directory", "check", "-vv"],
        ["plan", "-vv"],
        ["sync", "-vv"],
        ["sync", "--verify", "--json", "-v"],
        ["runs"],
        ["runs", run],
        ["doctor", "-vv"],
        ["check", "ada", "document", "plan", "--organization", "acme", "--explain"],
    ):
        stage.command(*arguments)


def _use_it_badly(stage: Stage, url: str, backend_url: str, made: Mapping[str, str]) -> None:
    """Uses wrong and misplaced credentials, and a backend that is down."""
    paths = {"/permissions/check", "/permissions/explain", "/resync"}
    displayed = [f"Bearer {GUESS}", GUESS, f"Basic {GUESS}", f"Bearer  {GUESS} x", f"bearer {GUESS}\u00e9"]
    for number in range(5):
        for path in paths:
            for authorization in displayed:
                headers: dict[str, str | bytes] = {
                    "Authorization": authorization.encode("latin-1"),
                    "Content-Type": "application/json",
                }
                answer = requests.post(url + path, data=BODY, headers=headers, timeout=10)
                stage.note(f"{number} {path} {authorization[:6]}", answer)
    wrong = {"x-service-api-key": made["apiKey"], "x-service-auth-token": GUESS}
    for _ in range(30):
        stage.note("wrong token", post(backend_url + by_name("get_permissions").path, {}, **wrong))
    swapped = {"x-service-api-key": made["authToken"], "x-service-auth-token": made["apiKey"]}
    stage.note("swapped", post(backend_url + by_name("get_permissions").path, {}, **swapped))
    workspace = {"x-service-workspace-id": "w", "x-service-workspace-auth-token": made["workspaceAuthToken"]}
    stage.note("workspace", post(backend_url + by_name("get_auth_tokens").path, {"apiKey": "k"}, **workspace))
    headers = {"Authorization": f"Bearer {PROVIDER}", "Content-Type": "application/json"}
    for body in (b"{", b'{"data": 1}', b'{"data":{"requests":[{}]}}', b"\xff"):
        stage.note(f"body {body!r}", requests.post(f"{url}/permissions/check", data=body, headers=headers, timeout=10))
    stage.command("sync", "-vv", USHER_BACKEND__AUTH_TOKEN=GUESS)
    stage.command("doctor", "-v", USHER_BACKEND__AUTH_TOKEN=GUESS)
    stage.command("sync", "-vv", USHER_BACKEND__BASE_URL=f"http://{HOST}:1", USHER_BACKEND__TIMEOUT="1")
    stage.running[0].terminate()
    stage.running[0].wait(60)
    ruler = {"Authorization": f"Bearer {ADMIN}"}
    requests.post(f"{url}/resync", headers=ruler, timeout=10)
    time.sleep(2)
    stage.note("metrics after", requests.get(f"{url}/metrics", timeout=10))
