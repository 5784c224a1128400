"""Runs the commands of the documents. Only hosts, ports and paths are replaced."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import app
from tests.forking import without_settings
from tests.ports import HOST, free_port

ROOT = Path(app.__file__).parent.parent

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

TOKEN = "push-to-me-for-tests"

PRELUDE = """set -e
usher() {{ {python} -P -m app "$@"; }}
curl() {{ command curl "$@"; echo; }}
"""

WAIT = (
    "for _ in $(seq 400); do command curl -fs http://127.0.0.1:{port}/healthz > answer && break; sleep 0.1; done;"
    " cat answer > /dev/null"
)


def typed(document: str, heading: str) -> str:
    """The commands of a section's console block, without their output."""
    section = (ROOT / document).read_text().split(f" {heading}\n", 1)[1]
    block = re.search(r"^```console\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    assert block is not None
    lines, until = [], ""
    for line in block[1].splitlines():
        if line.startswith("$ "):
            lines.append(line[2:])
            here = re.search(r"<<'(\w+)'", line)
            # A command goes on in further lines to the end of a here-document or a quoted text.
            until = here[1] if here else "'" if line.count("'") % 2 else "\\" if line.endswith("\\") else ""
        elif until:
            lines.append(line)
            if line == until or (until == "'" and "'" in line) or (until == "\\" and not line.endswith("\\")):
                until = ""
    return "\n".join(lines)


class Shell:
    """A shell in an empty folder, with the command ``usher``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.service, self.backend = free_port(), free_port()
        self.groups: list[int] = []

    def run(self, script: str) -> str:
        for port, own in (("8080", self.service), ("8090", self.backend)):
            script = script.replace(f"127.0.0.1:{port}", f"127.0.0.1:{own}")
        lines = []
        for line in script.splitlines():
            lines.append(line)
            if line.endswith("&"):
                lines.append(WAIT.format(port=self.backend if "backend" in line else self.service))
        script = PRELUDE.format(python=sys.executable) + "\n".join(lines)
        environment = {
            **without_settings(),
            "USHER_SERVER__PORT": str(self.service),
            "USHER_CONFIG": "usher.yaml",
            "USHER_BACKEND__BASE_URL": f"http://{HOST}:{self.backend}",
        }
        shell = subprocess.Popen(
            ["bash", "-c", script.replace("backend serve", f"backend serve --port {self.backend}")],
            cwd=self.folder, env=environment, stdout=(self.folder / "output").open("w"), stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        self.groups.append(shell.pid)
        code = shell.wait(200)
        output = (self.folder / "output").read_text()
        assert code == 0, output
        return output

    def end(self) -> None:
        for group in self.groups:
            try:
                os.killpg(group, signal.SIGTERM)
            except ProcessLookupError:
                continue


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.end()


@pytest.mark.extended
def test_setup_with_the_self_hosted_backend(shell: Shell) -> None:
    output = shell.run(typed("README.md", "The same with the self-hosted backend"))
    answer = json.loads(output.splitlines()[-1])["result"]["data"]
    assert answer["ada"]["documents"]["roadmap"]["accessRole"] == "editor"
    assert answer["ann"]["documents"]["roadmap"]["error"] == "The user has no access."
    assert "problem\t" not in output
    assert "the audit log" not in output


@pytest.mark.extended
def test_documented_pushes(shell: Shell) -> None:
    section = (ROOT / "config" / "OPERATING.md").read_text().split("\n## Pushing changes\n")[1]
    settings = re.search(r"^```yaml\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    assert settings is not None
    named = {"/run/secrets/app_push": "app_push", "/srv/directory/people.jsonl": "people.jsonl"}
    text = re.sub("|".join(named), lambda found: named[found[0]], settings[1])
    (shell.folder / "usher.yaml").write_text(f"{text}provider: {{auth_tokens: [{'p' * 20}]}}\n")
    (shell.folder / "app_push").write_text(TOKEN)
    (shell.folder / "people.jsonl").write_text(
        '{"kind": "organization", "organizationId": "acme", "organizationName": "Acme"}\n'
        '{"kind": "user", "userId": "ann", "name": "Ann", "email": "ann@acme.example"}\n'
    )
    commands = typed("config/OPERATING.md", "Pushing changes").replace("https://usher.example", "http://127.0.0.1:8080")
    output = shell.run(f"usher directory refresh\nTOKEN={TOKEN}\nusher serve > usher.log 2>&1 &\n{commands}")
    answers = [line for line in output.splitlines() if line.startswith("{")]
    assert len(answers) == 3
    assert [json.loads(answer).get("error") for answer in answers] == [None] * 3
    printed = re.search(r"^\{\"revision\".*$", section, re.MULTILINE)
    assert printed is not None
    assert json.loads(answers[0]) == json.loads(printed[0])
