"""Opens pages of the console as every role."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from app.commands.schema import METADATA
from app.directory.configured import sources_from_settings
from app.foundation.database.engine import open_engine, writing
from app.service.console.settings import Role
from app.service.console.urls import address
from app.sync.runs.directory_reads import read_directory
from tests.service.console.conftest import TOKENS, Browser, Office, office_on
from tests.tables import make_tables


class Visitors:
    """A browser of each role. All of them open the same pages."""

    def __init__(self, office: Office) -> None:
        self.office = office
        app = office.browser().client.application
        self.browsers = {role: Browser(app.test_client()) for role in Role}
        for role, browser in self.browsers.items():
            browser.sign_in(TOKENS[role])

    def show(self, name: str, code: int = 200, /, **query: Any) -> str:
        """Opens a page as every role, checks the status, and returns the page of the last role."""
        html = ""
        for browser in self.browsers.values():
            html = browser.get(address(name, **query))
            assert browser.status == code, (name, query, browser.status)
            # A session that has ended leads to the sign-in.
            assert browser.answer is not None
            assert browser.answer.request.path == address(name), (name, query)
        return html

    def send(self, role: Role, name: str, code: int, /, **form: str) -> str:
        """Sends a form with a valid token, checks the status, and returns the page."""
        browser = self.browsers[role]
        html = browser.post(address(name), {"formToken": token_of(browser), **form})
        assert browser.status == code, (name, form, browser.status)
        return html


def token_of(browser: Browser) -> str:
    """The form token of the browser's session."""
    return browser.get(address("keys")).partition('name="formToken" value="')[2].partition('"')[0]


def add_rows(office: Office, table: Any, rows: Iterable[dict[str, Any]]) -> None:
    """Writes rows into the office's database."""
    with writing(office.engine) as connection:
        connection.execute(insert(table.__table__), list(rows))


@contextmanager
def office_of(folder: Path, name: str, *directories: str) -> Iterator[Office]:
    """A console with a source for each of these directories. Without any, the directory was never read."""
    engine = open_engine(f"sqlite:///{folder}/{name}.db")
    make_tables(engine, METADATA)
    paths = [folder / f"{name}-{number}.yaml" for number in range(1, len(directories) + 1)] or [folder / "absent.yaml"]
    for path, written in zip(paths, directories, strict=False):
        path.write_text(written)
    sources = [{"type": "file", "path": str(path), "name": f"source-{n}"} for n, path in enumerate(paths, 1)]
    with office_on(engine, *sources) as office:
        if directories:
            read_directory(engine, sources_from_settings(office.settings.directory), clock=office.time)
        yield office
