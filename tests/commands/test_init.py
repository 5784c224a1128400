"""``usher init``: every file that it can write, and what it refuses."""

import json
import os
import pty
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
import yaml
from click.testing import CliRunner, Result

from app.cli import usher
from app.commands.bootstrap.service import service_app
from app.commands.init.files import Files
from app.commands.init.questions import questions_of, read_choices
from app.directory.configured import sources_from_settings
from app.foundation.clock import utc_now
from app.foundation.database.engine import open_engine
from app.settings import load_settings
from tests.directory.identity_provider import CLIENT, KEY, SECRET, TOKEN, Group, IdentityProvider, identity_provider

CHOICES = read_choices()
BACKEND_SECRETS = ("api_key", "auth_token")
APIS = ("keycloak", "okta", "google_workspace", "scim", "microsoft_graph")
PUSHING = ("entra_scim", "okta_scim")
OF_OTHER_TESTS = {"openldap", "active_directory"}
"""Kinds with a real server: ``tests/ldap/test_init.py``."""

Given = Callable[[Path], list[str]]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(usher, arguments, prog_name="usher")


def answers_of(directory: str, backend: str) -> tuple[dict[str, str], dict[str, str]]:
    """Answers to all questions, which are the examples and defaults, and the secrets."""
    values, secret_values = {}, {}
    for question in questions_of(CHOICES, directory, backend):
        if question.key != question.name:
            secret_values[question.name] = "postgresql://usher:hunter2@db/app" if question.name == "url" else "hunter2-"
        else:
            answer = question.default if question.default is not None else question.example or "x"
            values[question.name] = question.checked(answer)
    return values, secret_values


@pytest.mark.parametrize("backend", CHOICES["backends"])
@pytest.mark.parametrize("directory", CHOICES["directories"])
def test_files_are_usable_settings(folder: Path, directory: str, backend: str) -> None:
    files = Files(folder / "the settings" / "usher.yaml")
    values, secret_values = answers_of(directory, backend)
    key_file = folder / "key.json"
    if "service_account_key_file" in values:
        values["service_account_key_file"] = str(key_file)
        key_file.write_text(account("https://token.example"))
    values |= {f"{name}_file": str(files.secret(name)) for name in secret_values}
    written = files.write(directory, backend, values, secret_values)
    settings = load_settings(files.output, environment={}).settings
    # Rules are compiled here at the latest.
    assert len(sources_from_settings(settings.directory)) == (1 if directory == "file" else 2)
    assert bool(settings.backend.api_key.get_secret_value()) is (backend == "hosted")
    assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o600}
    assert stat.S_IMODE(files.secret("x").parent.stat().st_mode) == 0o700
    text = files.output.read_text()
    assert "hunter2" not in text
    assert text.count("#") >= 4
    assert str(folder) not in yaml.safe_load(text).get("backend", {}).get("base_url", "")


# Real peers.


def account(token_uri: str) -> str:
    key = KEY.as_pem(private=True).decode()
    return json.dumps({"client_email": "usher@project.example", "private_key": key, "token_uri": token_uri})


@pytest.fixture
def provider(request: pytest.FixtureRequest) -> Iterator[IdentityProvider]:
    with identity_provider(request.param) as made:
        for number in range(3):
            made.add_user(f"u{number}", f"U {number}", f"u{number}@x.example", enabled=number != 2)
        made.groups = {"g1": Group("eng", ["u0", "u1"]), "g2": Group("ops")}
        made.authorization = lambda header: header.partition(" ")[2].startswith(TOKEN)
        yield made


def given_to(folder: Path, provider: IdentityProvider) -> list[str]:
    """The answers for an API."""
    for name, text in {"token": TOKEN, "client_secret": SECRET, "key": account(f"{provider.url}/token")}.items():
        (folder / name).write_text(text)
    common = [f"client_id={CLIENT}", "client_secret_file=client_secret", f"token_url={provider.url}/token"]
    return {
        "keycloak": [f"url={provider.url}/", "realm=corp", *common],
        "microsoft_graph": [f"url={provider.base_url}", "tenant=corp.example", *common],
        "google_workspace": [
            f"url={provider.base_url}", "subject=admin@x.example", "service_account_key_file=key"
        ],
        "okta": [f"url={provider.url}", "token_file=token"],
        "scim": [f"url={provider.base_url}", "token_file=token"],
    }[provider.api]  # fmt: skip


def of_csv(folder: Path) -> list[str]:
    (folder / "people.csv").write_text("id,name,email\nu0,U 0,u0@x.example\nu1,U 1,u1@x.example\n")
    return []


def of_sql(folder: Path) -> list[str]:
    with sqlite3.connect(folder / "app.db") as database:
        database.execute("CREATE TABLE staff (id TEXT, name TEXT, email TEXT)")
        database.execute("INSERT INTO staff VALUES ('u0', 'U 0', 'u0@x.example'), ('u1', 'U 1', 'u1@x.example')")
    database.close()
    (folder / "url").write_text(f"sqlite:///{folder}/app.db\n")
    return ["url_file=url", "table=staff"]


def push(directory: str) -> None:
    """Pushes a user and a group, as Entra ID and Okta do."""
    settings = load_settings(Path("usher.yaml")).settings
    engine = open_engine(settings.database_url)
    client = service_app(settings, engine, clock=utc_now, new_id=lambda: uuid4().hex).test_client()
    headers = {"Authorization": f"Bearer {Path('secrets/scim_tokens').read_text().strip()}"}
    address, core = f"/scim/{directory.removesuffix('_scim')}/v2", "urn:ietf:params:scim:schemas:core:2.0"
    user = {"schemas": [f"{core}:User"], "userName": "ada@x.example", "externalId": "u0", "active": True}
    made = client.post(f"{address}/Users", json=user, headers=headers)
    assert made.status_code == 201, made.text
    group = {"schemas": [f"{core}:Group"], "displayName": "eng", "members": [{"value": made.get_json()["id"]}]}
    made = client.post(f"{address}/Groups", json=group, headers=headers)
    assert made.status_code == 201, made.text
    engine.dispose()


LOCAL: dict[str, Given] = {"csv": of_csv, "sql": of_sql, "file": lambda _: []}


def test_every_kind_has_a_peer() -> None:
    assert {*APIS, *LOCAL, *PUSHING, *OF_OTHER_TESTS} == set(CHOICES["directories"])


def initialized(directory: str, backend: str, given: list[str]) -> Result:
    pairs = (word for answer in given for word in ("--set", answer))
    return run("init", "--directory", directory, "--backend", backend, *pairs)


def planned(folder: Path, kind: str, given: list[str], backend_url: str, monkeypatch: pytest.MonkeyPatch) -> Result:
    """What ``init`` with the self-hosted backend prints. Its next steps lead to a plan with changes."""
    done = initialized(kind, "self_hosted", given)
    assert done.exit_code == 0, done.output
    monkeypatch.setenv("USHER_CONFIG", "usher.yaml")
    with monkeypatch.context() as environment:
        environment.setenv("USHER_BACKEND__BASE_URL", backend_url)
        made = run("backend", "bootstrap", "--email", f"{kind}-{uuid4().hex}@your-company.example")
    assert made.exit_code == 0, made.output
    with (folder / "usher.yaml").open("a") as settings:
        settings.write(made.stdout)
    plan = run("plan")
    assert plan.exit_code == 10, plan.output
    return done


@pytest.mark.process
@pytest.mark.parametrize("provider", APIS, indirect=True)
def test_first_plan_from_an_api(
    folder: Path, provider: IdentityProvider, backend_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = planned(folder, provider.api, given_to(folder, provider), backend_url, monkeypatch)
    assert "1 organization, 3 users, 2 groups, 3 memberships, 2 group members" in done.stdout, done.output
    assert TOKEN not in done.output
    assert SECRET not in done.output


@pytest.mark.process
@pytest.mark.parametrize("directory", LOCAL)
def test_first_plan_from_this_machine(
    folder: Path, directory: str, backend_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(folder, directory, LOCAL[directory](folder), backend_url, monkeypatch)


@pytest.mark.process
@pytest.mark.parametrize("directory", PUSHING)
def test_first_plan_after_the_first_push(
    folder: Path, directory: str, backend_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = planned(folder, directory, [], backend_url, monkeypatch)
    assert f"{directory.removesuffix('_scim')}\tcomplete\t0\t0" in done.stdout
    assert f"/scim/{directory.removesuffix('_scim')}/v2, with the token in" in done.stdout
    assert f"{directory.removesuffix('_scim')}: it has never received a push" in run("doctor").stdout
    push(directory)
    checked = run("directory", "check")
    assert checked.exit_code == 0, checked.output
    assert "1 organization, 1 user, 1 group, 1 membership, 1 group member" in checked.stdout
    assert run("plan").exit_code == 10


@pytest.mark.process
def test_first_plan_for_a_hosted_backend(folder: Path, backend_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as environment:
        environment.setenv("USHER_BACKEND__BASE_URL", backend_url)
        made = json.loads(run("backend", "bootstrap", "--email", "hosted@your-company.example", "--json").stdout)
    (folder / "api_key").write_text(made["apiKey"])
    (folder / "auth_token").write_text(made["authToken"])
    given = [f"backend_url={backend_url}", "api_key_file=api_key", "auth_token_file=auth_token"]
    done = initialized("csv", "hosted", of_csv(folder) + given)
    assert done.exit_code == 0, done.output
    assert "usher provider register" in done.stdout
    assert run("plan", "--config", "usher.yaml").exit_code == 10


# On a terminal.


@pytest.mark.process
def test_secrets_are_asked_without_echo(folder: Path) -> None:
    of_sql(folder)
    secret = f"sqlite:///{folder}/app.db"
    number = list(CHOICES["directories"]).index("sql") + 1
    # The second one is not a name.
    answers = [str(number), "1", secret, "no name", "staff", "", ""]
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "init"],
        stdin=slave, stdout=slave, stderr=slave, cwd=folder, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "NO_COLOR": "1"},
    )  # fmt: skip
    os.close(slave)
    shown = b""
    with suppress(OSError):  # the end of a terminal
        while piece := os.read(master, 4096):
            shown += piece
            if shown.endswith((b"]: ", b": ", b"?: ")) and answers:
                os.write(master, answers.pop(0).encode() + b"\n")
    os.close(master)
    text = shown.decode()
    assert process.wait(60) == 0, text
    assert answers == []
    assert secret not in text
    assert "table is not usable" in text
    assert (folder / "secrets" / "url").read_text() == f"{secret}\n"
    assert "1 organization, 2 users, 2 memberships" in text
    assert [line for line in text.splitlines() if line.startswith("Next:")]


# Refusals.


def test_a_folder_with_a_question_mark_is_refused(folder: Path) -> None:
    refused = run(
        "init", "--directory", "file", "--backend", "self_hosted", "--output", str(folder / "what?" / "usher.yaml")
    )
    assert refused.exit_code == 1
    assert refused.stderr.endswith("what?: the address of a database cannot contain a question mark\n")
    assert not (folder / "what?").exists()


def test_files_are_not_replaced(folder: Path) -> None:
    assert initialized("file", "self_hosted", []).exit_code == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    again = initialized("file", "self_hosted", [])
    assert again.exit_code == 1
    assert again.stderr.endswith("usher.yaml exists, and is not replaced; name another folder with --output\n")
    (folder / "usher.yaml").rename(folder / "old.yaml")
    assert "organization.yaml exists" in initialized("file", "self_hosted", []).stderr
    (folder / "organization.yaml").rename(folder / "old-organization.yaml")
    assert "provider_tokens exists" in initialized("file", "self_hosted", []).stderr
    assert sorted(before.values()) == sorted(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "--directory: is missing; choose one of:\n  active_directory  "),
        (["--directory", "pigeons"], "--directory: is none of the kinds; choose one of:\n"),
        (["--directory", "file"], "--backend: is missing; choose one of:\n  self_hosted "),
        (["--directory", "okta", "--backend", "self_hosted"], "  --set url=VALUE: Address of your Okta organization"),
        (["--directory", "okta", "--backend", "self_hosted"], "  --set token_file=FILE: API token of a read-only adm"),
        (
            ["--directory", "okta", "--backend", "self_hosted", "--set", "token=hunter2"],
            "--set token: is not known here; there are url, token_file, organization",
        ),
        (
            ["--directory", "okta", "--backend", "self_hosted", "--set", "url=hunter2"],
            "url is not usable; expected: Address of your Okta organization, such as https://corp.okta.com",
        ),
        (
            ["--directory", "csv", "--backend", "self_hosted", "--set", "organization=a'b"],
            "organization is not usable; expected: Id of your organization",
        ),
        (
            ["--directory", "sql", "--backend", "self_hosted", "--set", "table=a; DROP TABLE b"],
            "table is not usable; expected: Table or view",
        ),
        (
            ["--directory", "csv", "--backend", "self_hosted", "--set", "organization_name=a\u2028b"],
            "organization_name is not usable; expected: Its name",
        ),
    ],
)
def test_wrong_usage_writes_nothing(folder: Path, arguments: list[str], problem: str) -> None:
    done = run("init", *arguments)
    assert done.exit_code == 2
    assert problem in done.stderr
    assert "hunter2" not in done.stderr
    assert list(folder.iterdir()) == []


def test_unusable_settings_leave_no_file(folder: Path) -> None:
    done = initialized("keycloak", "self_hosted", ["url=http://sso.x", "realm=r", "client_secret_file=nowhere"])
    assert done.exit_code == 1
    assert "client_secret_file: cannot read" in done.stderr
    (folder / "s").write_text("hunter2")
    done = initialized("keycloak", "self_hosted", ["url=http://sso.x", "realm=r", "client_secret_file=s"])
    assert done.exit_code == 1
    assert "base_url: without TLS, secrets could be read on the way" in done.stderr
    assert [path.name for path in folder.rglob("*")] == ["s"]


def test_a_file_in_place_of_the_folder_of_secrets_is_named(folder: Path) -> None:
    (folder / "secrets").write_text("")
    done = initialized("file", "self_hosted", [])
    assert done.exit_code == 1
    assert done.stderr == f"error: {folder / 'secrets'}: File exists\n"
    assert [path.name for path in folder.iterdir()] == ["secrets"]


def test_problems_of_the_directory_are_reported(folder: Path) -> None:
    done = initialized("csv", "self_hosted", [])
    assert done.exit_code == 1
    assert "people.csv" in done.stdout
    assert "usher plan" in done.stdout
    assert "Traceback" not in done.output
    assert (folder / "usher.yaml").exists()


def test_text_of_answers_stays_text(folder: Path) -> None:
    name = "A \"quoted\" # 'name': {{ 7 * 7 }} \\ ü"
    of_csv(folder)
    assert initialized("csv", "self_hosted", [f"organization_name={name}", "organization=null"]).exit_code == 0
    written = yaml.safe_load((folder / "organization.yaml").read_text("utf-8"))
    assert written == {"organizations": [{"organizationId": "null", "organizationName": name}]}
