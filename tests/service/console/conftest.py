"""Fixtures: the console on a real database, with a simulated clock and browsers without JavaScript."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from html import unescape
from pathlib import Path
from random import Random
from typing import Any

import pytest
from flask.testing import FlaskClient
from pydantic import SecretStr
from sqlalchemy import Engine
from werkzeug.datastructures import MultiDict
from werkzeug.test import TestResponse

from app.access.index.index import AccessIndex
from app.commands.bootstrap.service import service_app
from app.commands.schema import METADATA
from app.directory.configured import sources_from_settings
from app.directory.settings import DirectorySettings
from app.foundation.database.engine import open_engine
from app.service.admin.settings import AdminSettings
from app.service.console.settings import ConsoleSettings, ConsoleToken, Role
from app.service.provider.settings import ProviderSettings
from app.settings import Settings
from app.sync.runs.directory_reads import read_directory
from app.sync.runs.lifecycle import Runs
from app.sync.runs.run import Run, RunRequest, RunStatus
from tests.commands.conftest import DIRECTORY
from tests.conftest import empty_postgres_database
from tests.tables import make_tables
from tests.worlds.clock import SimulatedTime

TOKENS = {role: f"the token of the {role} is long" for role in Role}
ADMIN_TOKEN = "an admin token of the settings"
OURS = {"Sec-Fetch-Site": "same-origin"}


class Browser:
    """A browser without JavaScript. It keeps cookies, follows redirects, and sends the forms of pages."""

    def __init__(self, client: FlaskClient) -> None:
        self.client = client
        self.answer: TestResponse | None = None

    def get(self, path: str, **headers: str) -> str:
        """The page at this URL, after redirects."""
        self.answer = self.client.get(path, headers=headers, follow_redirects=True)
        return self.answer.get_data(as_text=True)

    def post(
        self,
        path: str,
        form: Mapping[str, str] | Sequence[tuple[str, str]],
        headers: Mapping[str, str] = OURS,
        *,
        follow: bool = True,
    ) -> str:
        """Sends a form. Pairs are sent in their order."""
        self.answer = self.client.post(
            path,
            data=dict(form) if isinstance(form, Mapping) else MultiDict(form),
            headers=dict(headers),
            follow_redirects=follow,
        )
        return self.answer.get_data(as_text=True)

    def send(self, page: str, action: str, **fields: str) -> str:
        """Sends the form of this page that leads to ``action``. Its hidden fields come first, as in a browser."""
        return self.post(action, [*self.hidden_fields(page, action), *fields.items()])

    def hidden_fields(self, page: str, action: str) -> list[tuple[str, str]]:
        """The hidden fields of the form of this page that leads to ``action``."""
        html = self.get(page)
        form = re.search(rf'<form[^>]*action="{re.escape(action)}"[^>]*>(.*?)</form>', html, re.DOTALL)
        assert form is not None, f"{page} has no form for {action}"
        hidden = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', form[1])
        return [(name, unescape(value)) for name, value in hidden]

    def sign_in(self, token: str, to: str = "") -> str:
        """Signs in, and returns the next page."""
        return self.post("/console/sign-in", {"token": token, "to": to})

    @property
    def status(self) -> int:
        """The status of the last response."""
        assert self.answer is not None
        return self.answer.status_code


@dataclass
class Office:
    """The service with its console, its database and its clock."""

    settings: Settings
    engine: Engine
    time: SimulatedTime
    runs: Runs

    def browser(self, role: Role | None = None, index: AccessIndex | None = None) -> Browser:
        """A new browser, which is signed in if a role is given."""
        app = service_app(self.settings, self.engine, clock=self.time, new_id=lambda: "made", index=index)
        browser = Browser(app.test_client())
        if role is not None:
            browser.sign_in(TOKENS[role])
            assert browser.status == 200
        return browser

    def with_console(self, **changed: Any) -> "Office":
        """The same office with other settings of the console."""
        console = self.settings.console.model_copy(update=changed)
        return Office(self.settings.model_copy(update={"console": console}), self.engine, self.time, self.runs)

    def held_run(self, deletes: int = 34, kind: str = "document") -> Run:
        """A run that holds so many deletes."""
        run, _ = self.runs.enqueue(RunRequest(trigger="schedule"))
        self.time.move_on(seconds=1)
        self.runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, started_at=self.time())
        self.runs.move(run.run_id, RunStatus.READING, RunStatus.PLANNING, revision=1)
        hold = {
            "kind": kind,
            "organizationId": "acme",
            "deletes": deletes,
            "below": 0,
            "ledger": 53,
            "limit": "delete_percent",
            "allowed": 20.0,
            "reason": f"{deletes} of 53 is more than 20 percent",
        }
        return self.runs.move(
            run.run_id,
            RunStatus.PLANNING,
            RunStatus.HELD,
            finished_at=self.time(),
            held_at=self.time(),
            held_until=self.time() + timedelta(days=7),
            counts={kind: {"delete": {"planned": deletes, "held": deletes}}},
            report={"held": [hold]},
        )


@contextmanager
def opened_office(database_url: str, folder: Path, directory: str = DIRECTORY) -> Iterator[Office]:
    """The console on this empty database, after its directory was read."""
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    (folder / "directory.yaml").write_text(directory)
    with office_on(engine, {"type": "file", "path": str(folder / "directory.yaml"), "name": "people"}) as office:
        read_directory(engine, sources_from_settings(office.settings.directory), clock=office.time)
        yield office


@contextmanager
def office_on(engine: Engine, *sources: Mapping[str, str]) -> Iterator[Office]:
    """The console on a database as it is."""
    given: Any = list(sources)
    settings = Settings(
        provider=ProviderSettings(auth_tokens=(SecretStr("ask"),)),
        admin=AdminSettings(tokens=[SecretStr(ADMIN_TOKEN)]),
        console=ConsoleSettings(
            tokens=tuple(ConsoleToken(name=f"the {role}", role=role, token=SecretStr(TOKENS[role])) for role in Role)
        ),
        directory=DirectorySettings(sources=given),
    )
    time = SimulatedTime()
    yield Office(settings, engine, time, Runs(engine, time, Random(3)))
    engine.dispose()


@pytest.fixture
def office(database_url: str, tmp_path: Path) -> Iterator[Office]:
    with opened_office(database_url, tmp_path) as opened:
        yield opened


def standing_office(request: pytest.FixtureRequest, folder: Path, directory: str) -> AbstractContextManager[Office]:
    """An office for all tests of a module, which change nothing in it. ``request.param``: the kind of database."""
    if request.param == "sqlite":
        return opened_office(f"sqlite:///{folder}/test.db", folder, directory)
    url = request.getfixturevalue("postgres_standing_database")
    empty_postgres_database(url)
    return opened_office(url, folder, directory)
