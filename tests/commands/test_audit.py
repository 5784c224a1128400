"""Commands that change something are audited."""

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import ClassVar

import pytest
from sqlalchemy import inspect

from app import __version__
from app.commands.bootstrap.databases import STORE_MIGRATIONS, audit_upgrade
from app.foundation.audit import BEGUN, DONE, audit_page
from app.foundation.audit_tables import AuditRow
from app.foundation.database.engine import open_engine, reading
from app.foundation.database.migrations import upgrade
from tests.commands.conftest import Usher
from tests.commands.test_provider import URL, serving
from tests.dying import Died, dying_at
from tests.foundation.database.first_release import make_at


def rows(folder: Path) -> list[AuditRow]:
    """The rows, newest first."""
    engine = open_engine(f"sqlite:///{folder}/usher.db")
    try:
        with reading(engine) as connection:
            return audit_page(connection)
    finally:
        engine.dispose()


def test_refresh_is_audited_with_accepted_losses(usher_read: Usher, folder: Path) -> None:
    assert usher_read("directory", "refresh").exit_code == 0
    (folder / "directory.yaml").write_text("organizations: []\n")
    assert usher_read("directory", "refresh").exit_code == 3
    accepted = usher_read("directory", "refresh", "--accept-empty", "directory.yaml", "--reason", "moved\x1b[2J")
    assert accepted.exit_code == 0, accepted.output
    last, failed, first = rows(folder)
    assert (last.action, last.subject) == ("directory refreshed", "revision 2 --accept-empty directory.yaml")
    assert last.reason == "moved·[2J"
    assert last.way == "command"
    assert last.actor.endswith("(command line)")
    assert (failed.subject, first.subject) == ("revision 1", "revision 1")


def test_forget_is_audited(usher_read: Usher, folder: Path) -> None:
    assert usher_read("directory", "forget", "directory.yaml").exit_code == 1  # it is configured
    assert rows(folder) == []
    text = (folder / "usher.yaml").read_text().replace("path: directory.yaml", "path: directory.yaml, name: other")
    (folder / "usher.yaml").write_text(text)
    assert usher_read("directory", "refresh").exit_code == 3
    gone = usher_read("directory", "forget", "directory.yaml", "--reason", "it has another name")
    assert gone.exit_code == 0, gone.output
    row = rows(folder)[0]
    assert (row.action, row.reason) == ("source forgotten", "it has another name")
    assert row.subject.startswith("directory.yaml: 1 organization")


def test_upgrade_is_audited_once(usher_in: Usher, folder: Path) -> None:
    for _ in range(2):
        assert usher_in("db", "upgrade").exit_code == 0
    (row,) = rows(folder)
    assert row.action == "database upgraded"
    assert row.subject == f"to version {__version__}"


def test_killed_upgrade_is_audited_when_repeated(database_url: str) -> None:
    engine = open_engine(database_url)
    with pytest.raises(Died), dying_at(engine, 2):
        # The first commit is that of the look whether there is anything to do.
        upgrade(engine, STORE_MIGRATIONS, audit_upgrade)
    assert inspect(engine).get_table_names() == []
    assert upgrade(engine, STORE_MIGRATIONS, audit_upgrade)
    with reading(engine) as connection:
        assert [row.action for row in audit_page(connection)] == ["database upgraded"]
    assert not upgrade(engine, STORE_MIGRATIONS, audit_upgrade)
    engine.dispose()


def test_automatic_upgrade_is_audited(usher_in: Usher, folder: Path) -> None:
    """SQLite only. A new database has no row."""
    assert usher_in("runs").exit_code == 0
    assert rows(folder) == []
    (folder / "usher.db").unlink()
    engine = open_engine(f"sqlite:///{folder}/usher.db")
    make_at(engine, STORE_MIGRATIONS, STORE_MIGRATIONS.revisions()[-2], folder)
    engine.dispose()
    assert usher_in("runs").exit_code == 0
    (row,) = rows(folder)
    assert (row.action, row.subject, row.outcome) == ("database upgraded", f"to version {__version__}", DONE)


class Taking(BaseHTTPRequestHandler):
    """A backend that reads the audit log when it is called."""

    folder: ClassVar[Path]
    seen: ClassVar[list[tuple[str, str]]] = []
    url = ""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/update"):
            type(self).seen = [(row.action, row.outcome) for row in rows(self.folder)]
            type(self).url = URL
        config = {"permissionProviderUrl": self.url, "authToken": "a-token-long-enough"}
        data = {"usePermissionProvider": bool(self.url), "permissionProviderConfig": config if self.url else None}
        self.answer(200, {"result": {"status": "success", "message": "ok", "data": data}})

    def answer(self, code: int, envelope: object) -> None:
        body = json.dumps(envelope).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Refusing(Taking):
    """A backend that refuses the registration."""

    def do_POST(self) -> None:
        if self.path.endswith("/update"):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(403, {"error": {"status": "PERMISSION_DENIED", "message": "not you"}})
        else:
            super().do_POST()


@pytest.mark.process
def test_registration_is_audited_before_the_call(usher_read: Usher, folder: Path) -> None:
    Taking.folder = folder
    outcomes = []
    for backend in (Taking, Taking, Refusing):
        for url in serving(backend):
            (folder / "usher.yaml").write_text(
                f"backend: {{base_url: '{url}', api_key: k, auth_token: t}}\n"
                "database_url: sqlite:///usher.db\nprovider: {auth_tokens: [a-token-long-enough]}\n"
            )
            known = len(rows(folder))
            result = usher_read("provider", "register", "--url", URL, "--reason", "it moved")
            assert (result.exit_code == 0) == (backend is Taking), result.output
            new_rows = rows(folder)[: len(rows(folder)) - known]
            assert {(row.action, row.subject, row.reason) for row in new_rows} == {
                ("provider registered", URL, "it moved")
            }
            outcomes.append([row.outcome for row in new_rows[::-1]])
    assert Taking.seen[0] == ("provider registered", BEGUN)
    assert outcomes[:2] == [[BEGUN, DONE], [BEGUN, "no change: already registered"]]
    assert outcomes[2][0] == BEGUN
    assert "not you" in outcomes[2][1]


@pytest.mark.process
def test_interrupted_registration_has_an_unknown_outcome(
    usher_read: Usher, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("app.client.registration.register", interrupt)
    (folder / "usher.yaml").write_text(
        "backend: {base_url: 'http://127.0.0.1:9', api_key: k, auth_token: t}\n"
        "database_url: sqlite:///usher.db\nprovider: {auth_tokens: [a-token-long-enough]}\n"
    )
    assert usher_read("provider", "register", "--url", URL).exit_code != 0
    over, begun = rows(folder)
    assert (begun.outcome, over.outcome) == (
        BEGUN,
        "it was interrupted or failed; the outcome is unknown",
    )


@pytest.mark.usefixtures("without_pauses")
def test_no_external_action_without_an_audit_row(
    usher_in: Usher, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.client.registration.register", lambda *_: pytest.fail("the backend was changed"))
    (folder / "usher.yaml").write_text(
        "backend: {base_url: 'http://127.0.0.1:9', api_key: k, auth_token: t}\n"
        "database_url: sqlite:///usher.db\nprovider: {auth_tokens: [a-token-long-enough]}\n"
    )
    (folder / "usher.db").write_bytes(b"not a database")
    result = usher_in("provider", "register", "--url", URL)
    assert result.exit_code == 1
    assert "error: the database cannot be used: usher.db is not a SQLite database" in result.stderr


@pytest.mark.postgres
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_external_actions_require_the_tables(
    usher_in: Usher, folder: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.client.registration.register", lambda *_: pytest.fail("the backend was changed"))
    (folder / "usher.yaml").write_text(
        "backend: {base_url: 'http://127.0.0.1:9', api_key: k, auth_token: t}\n"
        f"database_url: '{database_url}'\nprovider: {{auth_tokens: [a-token-long-enough]}}\n"
    )
    for command in (["provider", "register", "--url", URL], ["backend", "bootstrap", "--email", "a@b.test"]):
        result = usher_in(*command)
        assert result.exit_code == 1
        assert "error: the database is empty: run usher db upgrade to create its tables" in result.stderr


@pytest.mark.usefixtures("without_pauses")
def test_workspace_is_audited(usher_read: Usher, folder: Path) -> None:
    (folder / "usher.yaml").write_text("backend: {base_url: 'http://127.0.0.1:9'}\ndatabase_url: sqlite:///usher.db\n")
    assert usher_read("backend", "bootstrap", "--email", "mira@acme.example.com").exit_code == 1
    over, begun = rows(folder)
    assert (begun.action, begun.outcome) == ("workspace made", BEGUN)
    assert begun.subject == "for mira@acme.example.com at http://127.0.0.1:9"
    assert over.outcome.startswith("create_workspace: ")
