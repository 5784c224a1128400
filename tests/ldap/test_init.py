"""``usher init`` with real LDAP servers: the first check and the first plan succeed."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli import usher
from app.commands.bootstrap.outgoing import new_workspace
from app.settings import load_settings
from tests.e2e.conftest import Usher, serving
from tests.ldap import samba, slapd
from tests.ports import HOST, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.external, pytest.mark.xdist_group("ldap")]


@pytest.mark.parametrize("directory", ["openldap", "active_directory"])
def test_first_plan_from_ldap(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    for name in [name for name in os.environ if name.startswith("USHER_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    server = request.getfixturevalue("own_slapd" if directory == "openldap" else "domain")
    module = slapd if directory == "openldap" else samba
    base = slapd.SUFFIX if directory == "openldap" else samba.BASE
    (tmp_path / "password").write_text(module.PASSWORD)
    given = [f"url={server.url}", f"base={base}", f"bind_dn={module.READER}", "bind_password_file=password"]
    done = run(
        "init", "--directory", directory, "--backend", "self_hosted", *(w for one in given for w in ("--set", one))
    )
    assert done.exit_code == 0, done.output
    assert module.PASSWORD not in done.output
    # 60 people and 7 groups; every group has members.
    assert "1 organization, 60 users, 7 groups" in done.stdout or directory != "openldap"
    assert " group member" in done.stdout
    port = free_port()
    backend = Usher(tmp_path, "backend", "serve", "--port", str(port), "--config", "usher.yaml", forked=True)
    try:
        url = f"http://{HOST}:{port}"
        serving(backend, url)
        monkeypatch.setenv("USHER_BACKEND__BASE_URL", url)
        made = new_workspace(load_settings(tmp_path / "usher.yaml").settings, "owner@your-company.example")
        monkeypatch.setenv("USHER_BACKEND__API_KEY", made.api_key)
        monkeypatch.setenv("USHER_BACKEND__AUTH_TOKEN", made.auth_token.get_secret_value())
        planned = run("plan", "--config", "usher.yaml")
        assert planned.exit_code == 10, planned.output
    finally:
        backend.end()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(usher, arguments, prog_name="usher")
