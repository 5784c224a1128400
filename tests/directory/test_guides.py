"""The settings of the guides lead from a directory and the application's database to access."""

import os
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from click.testing import CliRunner, Result

import app
from app.cli import usher
from app.commands.bootstrap.service import service_app
from app.foundation.clock import utc_now
from app.foundation.database.engine import open_engine
from app.settings import load_settings
from tests.directory.identity_provider import SECRET, Group, IdentityProvider, identity_provider
from tests.directory.test_http import account

pytestmark = [pytest.mark.process]

CONNECTORS = Path(app.__file__).parent / "directory" / "connectors"
APPLICATION = """
CREATE TABLE folder (tenant TEXT, id TEXT, name TEXT);
CREATE TABLE doc (tenant TEXT, id TEXT, title TEXT, folder TEXT);
CREATE TABLE share (tenant TEXT, doc TEXT, person TEXT, role TEXT, until TEXT);
INSERT INTO folder VALUES ('org-northwind', 'f1', 'Plans');
INSERT INTO doc VALUES ('org-northwind', 'd1', 'Roadmap', 'f1');
INSERT INTO share VALUES ('org-northwind', 'd1', 'u0', 'viewer', NULL), ('org-northwind', 'd1', 'u2', 'editor', NULL);
"""
"""The tables of the application: a document that ``u0`` and ``u2`` may open."""


def guides(page: Path) -> dict[str, dict[str, Any]]:
    """The settings of each guide, by its title."""
    sections = re.findall(r"^## Guide: (.+?)$(.+?)(?=^## |\Z)", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    found = {}
    for title, section in sections:
        [text] = re.findall(r"```yaml\n(.+?)```", section, re.DOTALL)
        found[title] = yaml.safe_load(text)
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the application's database."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("USHER_")]:
        monkeypatch.delenv(name)
    with sqlite3.connect(tmp_path / "app.db") as database:
        database.executescript(APPLICATION)
    database.close()
    (tmp_path / "app_db").write_text(f"sqlite:///{tmp_path}/app.db")
    return tmp_path


def configure(folder: Path, settings: dict[str, Any]) -> None:
    """Writes the settings of a guide, with secrets in this folder."""
    text = yaml.safe_dump({**settings, "database_url": f"sqlite:///{folder}/usher.db"}, sort_keys=False)
    (folder / "usher.yaml").write_text(text.replace("/run/secrets/", f"{folder}/"))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(usher, [*arguments, "--config", "usher.yaml"], prog_name="usher")


def may_open(user: str) -> bool:
    return run("check", user, "document", "d1", "--organization", "org-northwind").exit_code == 0


def keycloak(settings: dict[str, Any], provider: IdentityProvider, folder: Path) -> None:
    settings["base_url"] = provider.base_url
    settings["auth"]["token_url"] = f"{provider.url}/token"
    (folder / "keycloak").write_text(SECRET)


def google(settings: dict[str, Any], provider: IdentityProvider, folder: Path) -> None:
    settings["base_url"] = provider.base_url
    settings["auth"]["subject"] = "admin@x.example"
    (folder / "google.json").write_text(account(provider))


@pytest.mark.parametrize(
    ("title", "api", "adapt"),
    [("Keycloak", "keycloak", keycloak), ("Google Workspace", "google_workspace", google)],
)
def test_a_guide_for_an_api_leads_to_access(
    folder: Path, title: str, api: str, adapt: Callable[[dict[str, Any], IdentityProvider, Path], None]
) -> None:
    found = guides(CONNECTORS / "http" / "README.md")
    assert found.keys() == {"Keycloak", "Google Workspace"}
    with identity_provider(api) as provider:
        for number in range(3):
            provider.add_user(f"u{number}", f"U {number}", f"u{number}@x.example")
        provider.groups = {"g1": Group("org-northwind", ["u0", "u1"]), "g2": Group("others", ["u2"])}
        adapt(found[title]["directory"]["sources"][0], provider, folder)
        configure(folder, found[title])
        checked = run("directory", "check")
        assert checked.exit_code == 0, checked.output
        assert run("directory", "refresh").exit_code == 0
        assert [may_open(f"u{number}") for number in range(3)] == [True, False, True]
        provider.add_user("u0", "U 0", "u0@x.example", enabled=False)
        assert run("directory", "refresh").exit_code == 0
        assert not may_open("u0")


@pytest.mark.parametrize(("title", "name"), [("Microsoft Entra ID", "entra"), ("Okta", "okta")])
def test_a_guide_for_a_directory_that_pushes_leads_to_access(folder: Path, title: str, name: str) -> None:
    found = guides(CONNECTORS / "scim" / "README.md")
    assert found.keys() == {"Microsoft Entra ID", "Okta"}
    token = "the token of the directory"
    (folder / f"{name}_tokens").write_text(f"{token}\n")
    configure(folder, found[title])
    assert run("db", "upgrade").exit_code == 0
    settings = load_settings(folder / "usher.yaml").settings
    engine = open_engine(settings.database_url)
    client = service_app(settings, engine, clock=utc_now, new_id=lambda: uuid4().hex).test_client()

    def call(method: str, path: str, schema: str, **body: object) -> Any:
        schemas = [f"urn:ietf:params:scim:{schema}"]
        headers = {"Authorization": f"Bearer {token}"}
        answer = client.open(
            f"/scim/{name}/v2/{path}", method=method, json={"schemas": schemas, **body}, headers=headers
        )
        assert answer.status_code in (200, 201, 204), answer.text
        return answer.get_json() if answer.data else None

    ids = [
        call("POST", "Users", "schemas:core:2.0:User", userName=f"u{number}@x.example", externalId=f"u{number}")["id"]
        for number in range(3)
    ]
    for group, members in (("org-northwind", ids[:2]), ("others", ids[2:])):
        listed = [{"value": id_} for id_ in members]
        call("POST", "Groups", "schemas:core:2.0:Group", displayName=group, members=listed)
    refreshed = run("directory", "refresh")
    assert refreshed.exit_code == 0, refreshed.output
    assert [may_open(f"u{number}") for number in range(3)] == [True, False, True]
    checked = run("directory", "check")
    assert checked.exit_code == 0, checked.output
    deactivate = [{"op": "Replace", "path": "active", "value": "False"}]
    call("PATCH", f"Users/{ids[0]}", "api:messages:2.0:PatchOp", Operations=deactivate)
    assert not may_open("u0")
    engine.dispose()
