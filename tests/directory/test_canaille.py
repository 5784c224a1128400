"""A SCIM server that others wrote: canaille, with access tokens of its own (OAuth 2.0 client credentials).

Its groups name members by userName, its lists have no ``itemsPerPage``, and it answers ``count`` with 500.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from app.cli import usher
from app.http.listening import wait_until_ready
from tests.ports import free_port

pytestmark = [pytest.mark.external, pytest.mark.process]

ISSUER = Path(sys.prefix) / "issuer"
"""The installation of canaille (make browser)."""
PROGRAM = Path(__file__).parents[1] / "service" / "console" / "browser" / "canaille_server.py"
PEOPLE = {"vera": ["readers"], "adele": ["readers", "deciders"], "max": ["deciders"], "nils": []}
SECRET = "hunter2-of-the-client"
RULES = [
    {
        "from": "users",
        "user": {
            "userId": "it.id",
            "name": "it.?displayName.orValue(it.userName)",
            "email": "it.?emails[?0].?value.orValue(it.userName)",
            "disabled": "has(it.active) && !it.active",
        },
    },
    {"from": "groups", "organization": {"organizationId": "it.displayName", "organizationName": "it.displayName"}},
    {
        "from": "groups",
        "each": "members",
        "membership": {"organizationId": "it.displayName", "userId": "member.userId"},
    },
]


@pytest.fixture(scope="module")
def canaille(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a running server."""
    if not (ISSUER / "scim2_models").is_dir():
        reason = "canaille is not installed (make browser)"
        pytest.fail(f"USHER_TEST_ISSUER demands it: {reason}") if os.environ.get("USHER_TEST_ISSUER") else pytest.skip(
            reason
        )
    folder = tmp_path_factory.mktemp("canaille")
    port = free_port()
    wanted = {
        "port": port,
        "scim": True,
        "people": PEOPLE,
        "locked": ["nils"],
        # Its SCIM models refuse addresses in reserved domains.
        "mail_domain": "example.com",
        "client_id": "usher",
        "client_secret": SECRET,
        "redirect_uri": "http://127.0.0.1/",
        "password": "unused in these tests",
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", str(PROGRAM), json.dumps(wanted)],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ISSUER)},
            stdout=log,
            stderr=log,
        )
    try:
        url = f"http://localhost:{port}"

        def wait(seconds: float) -> None:
            assert process.poll() is None, (folder / "log").read_text()
            sleep(seconds)

        assert wait_until_ready(f"{url}/.well-known/openid-configuration", 60, wait), (folder / "log").read_text()
        yield url
    finally:
        process.kill()
        process.wait()


def previewed(folder: Path, url: str, *arguments: str, secret: str = SECRET, **more: object) -> tuple[int, Any, str]:
    """The exit code, the JSON and the errors of a preview."""
    (folder / "secret").write_text(secret)
    source = {
        "name": "canaille",
        "type": "http",
        "preset": "scim",
        "base_url": f"{url}/scim/v2",
        "auth": {"token_url": f"{url}/oauth/token", "client_id": "usher", "client_secret_file": str(folder / "secret")},
        "sets": {"users": {"query": {"count": ""}}, "groups": {"query": {"count": ""}}},
        "map": RULES,
    }
    settings = {"database_url": f"sqlite:///{folder}/usher.db", "directory": {"sources": [source | more]}}
    (folder / "usher.yaml").write_text(yaml.safe_dump(settings))
    command = ["directory", "preview", "canaille", "--json", *arguments, "--config", str(folder / "usher.yaml")]
    done = CliRunner().invoke(usher, command, prog_name="usher")
    assert secret not in done.output
    return done.exit_code, json.loads(done.stdout), done.stderr


def test_people_and_groups_are_previewed(canaille: str, tmp_path: Path) -> None:
    code, shown, errors = previewed(tmp_path, canaille, "--limit", "100")
    assert (code, shown["verdict"], shown["problems"]) == (0, "complete", []), (shown, errors)
    records = [line["record"] for one in shown["objects"] for line in one["rules"] if line["record"]]
    users = {one["userId"]: one for one in records if "email" in one}
    assert {one["name"]: (one["email"], one.get("disabled", False)) for one in users.values()} == {
        name: (f"{name}@example.com", name == "nils") for name in PEOPLE
    }
    members = {
        (users[one["userId"]]["name"], one["organizationId"])
        for one in records
        if one.keys() >= {"userId", "organizationId"}
    }
    assert members == {(name, group) for name, groups in PEOPLE.items() for group in groups}
    assert shown["records"] == {"user": 4, "organization": 2, "membership": 4}


def test_one_person_is_found_by_name(canaille: str, tmp_path: Path) -> None:
    code, shown, _ = previewed(tmp_path, canaille, "--set", "users", "--id", "adele")
    assert code == 0
    [adele] = shown["objects"]
    assert adele["it"]["userName"] == "adele"


def test_page_size_that_the_server_cannot_parse_is_named(canaille: str, tmp_path: Path) -> None:
    """The preset asks for pages of 200."""
    code, shown, _ = previewed(tmp_path, canaille, sets={}, map=RULES[:1])
    assert (code, shown["verdict"]) == (1, "partial")
    assert "/scim/v2/Users: the server answers with 500, 5 times" in shown["reason"]


def test_wrong_secret_is_refused_without_its_text(canaille: str, tmp_path: Path) -> None:
    code, shown, _ = previewed(tmp_path, canaille, secret="hunter3")
    assert (code, shown["verdict"]) == (1, "failed")
    assert shown["reason"].startswith("auth: the token endpoint refuses the client (invalid_client)")
