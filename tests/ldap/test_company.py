"""The example of a whole company, walked through: Samba as Active Directory, the application's PostgreSQL, the database
of the personnel department, real processes, and the self-hosted backend."""

import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from click.testing import CliRunner

from app.cli import usher
from app.client.client import BackendClient
from app.client.settings import BackendSettings
from app.commands.bootstrap.outgoing import new_workspace
from app.contract import operations
from app.contract.documents import Document, GetDocumentsRequest
from app.contract.users import GetUsersRequest, User
from app.settings import Settings, load_settings
from tests.conftest import POSTGRES, empty_postgres_database
from tests.directory.databases import MYSQL, Database, opened
from tests.e2e.conftest import Usher, serving, wait_for
from tests.ldap import samba
from tests.ldap.samba import COMPANY, READERS, RIGHTFUL, Samba
from tests.ports import HOST, free_port

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.external,
    pytest.mark.postgres,
    pytest.mark.timeout(180),
    pytest.mark.xdist_group("ldap"),
    pytest.mark.skipif(not POSTGRES, reason="USHER_TEST_POSTGRES names no PostgreSQL server"),
]

EXAMPLE = Path("config/examples/company.yaml")
PEOPLE = ("Ann", "Bob", "Cem", "Dora", *(f"Person {number}" for number in range(36)))
POLL = 1.0
"""Seconds; nobody waits for the minute of the example."""
SECRETS = {
    "ad": samba.PASSWORD,
    "app_push": "push-of-the-application",
    "provider_token": "questions-of-the-backend",
}


def employee(name: str) -> str:
    return f"E{1001 + PEOPLE.index(name)}"


def address(name: str) -> str:
    return f"{name.replace(' ', '.').lower()}@acme.example"


@dataclass
class Company:
    """Everything that the example speaks of, and Usher in the midst of it."""

    domain: Samba
    app: Database
    reader: str
    """The role that reads the application's database."""
    backend: BackendClient
    start: Callable[..., Usher]
    service: str
    output: list[str] = field(default_factory=list)
    """The output of all commands."""
    ids: dict[str, str] = field(default_factory=dict)
    """Name → id."""

    def __post_init__(self) -> None:
        import ldap

        self._ldap = ldap
        self._admin = ldap.initialize(self.domain.url)
        self._admin.set_option(ldap.OPT_REFERRALS, 0)
        self._admin.simple_bind_s(samba.ADMIN, samba.PASSWORD)

    def furnish(self) -> None:
        """Who there is, and in which groups, one of which is in another."""
        for name in PEOPLE:
            account = name.replace(" ", "").lower()
            self._add(
                person_dn(name),
                objectClass="user",
                sAMAccountName=account,
                userPrincipalName=f"{account}@corp.acme.example",
                displayName=name,
                mail=address(name).title(),
                employeeID=employee(name),
                userAccountControl="544",
            )
        staff = self._add_group("staff", *map(person_dn, PEOPLE[2:]))
        self._add_group("org-northwind", person_dn("Ann"), person_dn("Bob"), staff, description="Northwind")
        self._add_group("edit-northwind", person_dn("Ann"))
        found = self._admin.search_s(COMPANY, self._ldap.SCOPE_SUBTREE, "(mail=*)", ["displayName", "objectGUID"])
        self.ids = {one["displayName"][0].decode(): str(uuid.UUID(bytes_le=one["objectGUID"][0])) for _, one in found}

    def clear(self) -> None:
        self.set_rights(given=True)
        for dn, _ in self._admin.search_s(COMPANY, self._ldap.SCOPE_SUBTREE, "(!(objectClass=organizationalUnit))"):
            self._admin.delete_s(dn)
        self._admin.unbind_s()

    def set_account(self, name: str, control: int) -> None:
        self._admin.modify_s(person_dn(name), [(self._ldap.MOD_REPLACE, "userAccountControl", [b"%d" % control])])

    def set_rights(self, *, given: bool) -> None:
        """Whether Usher's account is in the group of those who may read."""
        how = self._ldap.MOD_ADD if given else self._ldap.MOD_DELETE
        try:
            self._admin.modify_s(READERS, [(how, "member", [RIGHTFUL.encode()])])
        except (self._ldap.ALREADY_EXISTS, self._ldap.UNWILLING_TO_PERFORM):
            assert given, "it was no member"

    def _add(self, dn: str, **attributes: str) -> None:
        self._admin.add_s(dn, [(name, [value.encode()]) for name, value in attributes.items()])

    def _add_group(self, name: str, *members: str, **further: str) -> str:
        dn = f"CN={name},OU=Groups,{COMPANY}"
        self._add(dn, objectClass="group", sAMAccountName=name, **further)
        self._admin.modify_s(dn, [(self._ldap.MOD_ADD, "member", [one.encode() for one in members])])
        return dn

    def usher(self, *arguments: str, code: int = 0) -> str:
        """Runs a command, which must end with this code, and returns its output."""
        done = CliRunner().invoke(usher, [*arguments, "--config", "usher.yaml"], prog_name="usher")
        self.output.append(done.output)
        assert done.exit_code == code, done.output
        return done.output

    def may(self, name: str, document: str) -> str:
        """As what somebody may open a document; empty: not at all."""
        resource = {"type": "document", "id": document, "organizationId": "northwind"}
        [answer] = self._asked({"userId": self.ids[name], "resource": resource})
        return str(answer["accessRole"]) if answer["hasAccess"] else ""

    def _asked(self, *questions: Mapping[str, object]) -> list[dict[str, Any]]:
        answer = requests.post(
            f"{self.service}/permissions/check",
            json={"data": {"requests": questions}},
            headers={"Authorization": f"Bearer {SECRETS['provider_token']}"},
            timeout=10,
        )
        assert answer.status_code == 200, answer.text
        return list(answer.json()["data"])

    def access(self) -> dict[str, bool]:
        """Who may enter the organization."""
        resource = {"type": "organization", "id": "northwind"}
        answers = self._asked(*({"userId": self.ids[name], "resource": resource} for name in PEOPLE))
        return {name: bool(answer["hasAccess"]) for name, answer in zip(PEOPLE, answers, strict=True)}

    def members(self) -> dict[str, User]:
        """Name → the user, of those whom the backend holds in the organization."""
        answer = self.backend.call(operations.GET_USERS, GetUsersRequest(organization_id="northwind"))
        return {str(one.name): one for one in answer.data if isinstance(one, User)}

    def documents(self) -> set[str]:
        answer = self.backend.call(operations.GET_DOCUMENTS, GetDocumentsRequest(organization_id="northwind"))
        return {one.id for one in answer.data if isinstance(one, Document)}

    def readers_of(self, document: str) -> set[str]:
        """The names of those whom the backend holds as users of the document."""
        answer = self.backend.call(
            operations.GET_USERS, GetUsersRequest(organization_id="northwind", document_id=document)
        )
        return {str(one.name) for one in answer.data if isinstance(one, User)}

    def attention(self) -> dict[str, int]:
        """Cause → how many matters of it."""
        shown = requests.get(f"{self.service}/metrics", timeout=10).text
        return {
            cause: int(float(n))
            for cause, n in re.findall(r'usher_attention\{cause="(\w+)"\} (\S+)', shown)
            if float(n)
        }


def person_dn(name: str) -> str:
    return f"CN={name},OU=People,{COMPANY}"


TABLES = (
    "CREATE TABLE folder (tenant text, id text, name text)",
    "CREATE TABLE doc (tenant text, id text, title text, folder text)",
    "CREATE TABLE share (tenant text, doc text, employee text, role text, until timestamptz)",
    "INSERT INTO folder VALUES ('northwind', 'plans', 'Plans')",
    "INSERT INTO doc VALUES ('northwind', 'roadmap', 'Roadmap', 'plans'), ('northwind', 'notes', 'Notes', NULL)",
    "INSERT INTO share VALUES ('northwind', 'roadmap', 'e1002', 'editor', NULL)",
    "INSERT INTO share VALUES ('northwind', 'roadmap', 'E9999', 'editor', NULL)",
    "INSERT INTO share VALUES ('northwind', 'notes', 'E1004', 'viewer', '2099-01-01')",
    "INSERT INTO share VALUES ('northwind', 'notes', 'E1006', 'viewer', NULL)",
)
STAFF = (
    "CREATE TABLE people (employee_id VARCHAR(20), status VARCHAR(20), cost_center VARCHAR(20))",
    "INSERT INTO people VALUES ('E1006', 'left', 'K1'), ('e1002', 'active', 'K2')",
)


@contextmanager
def reader_of(database: Database) -> Iterator[str]:
    """Somebody who may read all tables of the database that are there by then, and write none."""
    role = f"usher_{database.url.database}"
    database.run(f"CREATE ROLE {role} LOGIN")
    try:
        yield role
    finally:
        database.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def configured(domain: Samba, folder: Path, **further: object) -> None:
    """Writes the example into the folder, with the addresses and secrets of here, and what it leaves to others."""
    text = EXAMPLE.read_text("utf-8")
    for there, here in {
        "ldaps://dc1.corp.example": domain.url,
        'base: "DC=corp,DC=example"': f'base: "{COMPANY}"',
        "CN=usher,OU=Service,DC=corp,DC=example": RIGHTFUL,
        "/etc/usher/corp-ca.pem": str(domain.ca_file),
        "/run/secrets/": f"{folder}/secret-",
        "poll: 60": f"poll: {POLL}",
    }.items():
        assert there in text, f"the example names {there} no more"
        text = text.replace(there, here)
    settings = yaml.safe_load(text)
    settings["backend"] |= further.pop("backend")
    (folder / "usher.yaml").write_text(yaml.safe_dump(settings | further))


@pytest.fixture
def company(
    domain: Samba, postgres_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Company]:
    for name in [name for name in os.environ if name.startswith("USHER_")]:
        monkeypatch.delenv(name)
    backend_port, port = free_port(), free_port()
    configured(
        domain,
        tmp_path,
        database_url=postgres_database,
        backend={"base_url": f"http://{HOST}:{backend_port}"},
        server={"port": port, "workers": 1},
        sync={"schedule": "", "verify_schedule": ""},
        worker={"poll": 0.2},
    )
    monkeypatch.chdir(tmp_path)
    empty_postgres_database(postgres_database)
    with ExitStack() as stack, programs(tmp_path) as start:
        own = {"self_hosted_backend": {"database_url": f"sqlite:///{tmp_path}/backend.db"}, "server": {"workers": 1}}
        (tmp_path / "backend.yaml").write_text(yaml.safe_dump(own))
        serves = start("backend", "serve", "--port", str(backend_port), config="backend.yaml")
        app = stack.enter_context(opened("postgresql", tmp_path))
        hr = stack.enter_context(opened("mysql" if MYSQL else "sqlite", tmp_path))
        role = stack.enter_context(reader_of(app))
        app.run(*TABLES, f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
        hr.run(*STAFF)
        backend_url = f"http://{HOST}:{backend_port}"
        serving(serves, backend_url)
        made = new_workspace(Settings(backend=BackendSettings(base_url=backend_url)), "owner@acme.example")
        secrets = SECRETS | {
            "app_db": app.read_url.set(username=role).render_as_string(hide_password=False),
            "hr_db": hr.read_url.render_as_string(hide_password=False),
            "api_key": made.api_key,
            "auth_token": made.auth_token.get_secret_value(),
        }
        for name, secret in secrets.items():
            (tmp_path / f"secret-{name}").write_text(secret)
        settings = load_settings(tmp_path / "usher.yaml", environment={}).settings
        backend = stack.enter_context(BackendClient(settings.backend))
        company = Company(domain, app, role, backend, start, f"http://{HOST}:{port}")
        stack.callback(company.clear)
        company.furnish()
        yield company
        for text in (*company.output, *(log.read_text() for log in tmp_path.glob("*.err"))):
            assert "Traceback" not in text
            assert not [secret for secret in (*SECRETS.values(), secrets["auth_token"]) if secret in text]


@contextmanager
def programs(folder: Path) -> Iterator[Callable[..., Usher]]:
    """Starts ``usher`` with arguments; what was started ends together."""
    started: list[Usher] = []

    def start(*arguments: str, config: str = "usher.yaml") -> Usher:
        started.append(Usher(folder, *arguments, "--config", config, forked=True))
        return started[-1]

    try:
        yield start
    finally:
        for one in started:
            one.process.terminate()
        for one in started:
            one.end()


def test_a_company_follows_its_example(company: Company) -> None:
    # Look before anything counts: no user has the alias E9999.
    checked = company.usher("directory", "check", code=1)
    assert "e9999" in checked
    assert "dangling" in checked
    previewed = company.usher("directory", "preview", "ad", "--set", "users", "--id", company.ids["Cem"])
    assert "rule 1   user" in previewed
    assert f"through CN=org-northwind,OU=Groups,{COMPANY} > CN=staff,OU=Groups,{COMPANY}" in previewed
    # Let it count, and bring the backend in step.
    company.usher("db", "upgrade")
    service = company.start("serve")
    company.usher("sync")
    members = company.members()
    assert set(members) == set(PEOPLE) - {"Person 1"}
    assert {name for name, user in members.items() if user.access_role == "editor"} == {"Ann"}
    assert company.documents() == {"roadmap", "notes"}
    assert company.readers_of("roadmap") == {"Bob"}
    assert company.readers_of("notes") == {"Dora"}
    assert (members["Bob"].model_extra or {})["costCenter"] == "K2"

    company.start("worker")
    serving(service, company.service)
    assert company.may("Bob", "roadmap") == "editor"
    assert (company.may("Dora", "notes"), company.may("Person 1", "notes")) == ("viewer", "")

    company.set_account("Dora", 546)
    wait_for("the answer that Dora is disabled", lambda: company.may("Dora", "notes") == "")
    wait_for("the backend without Dora", lambda: "Dora" not in company.members())

    # What is pushed is allowed in the next answer, and the backend follows.
    pushed = requests.post(
        f"{company.service}/directory/app/changes",
        json={
            "sequence": 1,
            "upsert": [
                {
                    "kind": "document",
                    "organizationId": "northwind",
                    "documentId": "new",
                    "documentName": "New",
                    "accessType": "restricted",
                },
                {"kind": "grant", "organizationId": "northwind", "documentId": "new", "userAlias": employee("Cem")},
            ],
        },
        headers={"Authorization": f"Bearer {SECRETS['app_push']}"},
        timeout=10,
    )
    assert (pushed.status_code, pushed.json()["leftOut"]) == (200, []), pushed.text
    assert (company.may("Cem", "new"), company.may("Ann", "new")) == ("editor", "")
    wait_for("the backend with what was pushed", lambda: company.readers_of("new") == {"Cem"})

    # Rights are taken away: of the domain all is read with success, and nothing is in it; of the database nothing is.
    before = company.access()
    assert before == {name: name not in {"Dora", "Person 1"} for name in PEOPLE}
    company.set_rights(given=False)
    company.app.run(f"REVOKE SELECT ON doc FROM {company.reader}")
    wait_for("a cause of attention", lambda: company.attention() == {"shrunk": 1})
    output = company.usher("sync", code=3)
    assert "source ad could not be read: is empty, but provided 82 records before" in output
    assert "source app could not be read: queries.documents: permission denied for table doc" in output
    assert company.attention() == {"shrunk": 1, "source": 1}
    assert company.access() == before
    assert set(company.members()) == {name for name, may in before.items() if may}
    assert (company.may("Bob", "roadmap"), company.may("Cem", "new")) == ("editor", "editor")

    # They come back.
    company.set_rights(given=True)
    company.app.run(f"GRANT SELECT ON doc TO {company.reader}")
    company.set_account("Dora", 544)
    wait_for("Dora", lambda: company.may("Dora", "notes") == "viewer")
    company.usher("sync")
    wait_for("peace", lambda: company.attention() == {})
