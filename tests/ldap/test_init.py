"""``usher init`` with real LDAP servers: the check counts the whole directory, and a plan succeeds."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli import usher
from app.commands.bootstrap.outgoing import new_workspace
from app.commands.sync import EXIT_CHANGES
from app.settings import load_settings
from tests.e2e.conftest import Usher, serving
from tests.ldap import samba, slapd
from tests.ports import HOST, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.external, pytest.mark.xdist_group("ldap")]


@dataclass(frozen=True)
class LdapCase:
    """A kind of directory, and a server of this kind."""

    directory: str
    """The value of ``--directory``."""
    server: str
    """The fixture with the server."""
    base: str
    reader: str
    password: str
    counts: str
    """A pattern of the counts of ``usher directory check``."""


CASES = (
    # 6 groups and "everybody".
    LdapCase("openldap", "own_slapd", slapd.SUFFIX, slapd.READER, slapd.PASSWORD, "1 organization, 60 users, 7 groups"),
    # 2,000 people, and perhaps accounts of other tests.
    LdapCase(
        "active_directory",
        "domain",
        samba.BASE,
        samba.READER,
        samba.PASSWORD,
        r"1 organization, 2,0\d\d users, \d+ groups",
    ),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the commands, which no environment variable configures."""
    for name in [name for name in os.environ if name.startswith("USHER_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextmanager
def running_backend(folder: Path) -> Iterator[str]:
    """A backend with the settings that ``usher init`` wrote. The value is its URL."""
    port = free_port()
    url = f"http://{HOST}:{port}"
    backend = Usher(folder, "backend", "serve", "--port", str(port), "--config", "usher.yaml", forked=True)
    try:
        serving(backend, url)
        yield url
    finally:
        backend.end()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.directory)
def test_first_plan_from_ldap(
    request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch, case: LdapCase
) -> None:
    server = request.getfixturevalue(case.server)
    (folder / "password").write_text(case.password)
    answers = [f"url={server.url}", f"base={case.base}", f"bind_dn={case.reader}", "bind_password_file=password"]
    pairs = [argument for answer in answers for argument in ("--set", answer)]
    checked = run("init", "--directory", case.directory, "--backend", "self_hosted", *pairs)
    assert checked.exit_code == 0, checked.output
    assert case.password not in checked.output
    assert re.search(case.counts, checked.stdout), checked.stdout
    assert " group member" in checked.stdout
    with running_backend(folder) as url:
        monkeypatch.setenv("USHER_BACKEND__BASE_URL", url)
        workspace = new_workspace(load_settings(folder / "usher.yaml").settings, "owner@your-company.example")
        monkeypatch.setenv("USHER_BACKEND__API_KEY", workspace.api_key)
        monkeypatch.setenv("USHER_BACKEND__AUTH_TOKEN", workspace.auth_token.get_secret_value())
        planned = run("plan", "--config", "usher.yaml")
    assert planned.exit_code == EXIT_CHANGES, planned.output


def run(*arguments: str) -> Result:
    return CliRunner().invoke(usher, arguments, prog_name="usher")
