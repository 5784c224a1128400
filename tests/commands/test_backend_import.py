"""``usher backend import``: files with good and bad lines."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import select

from app.backend.collaboration.tables import ACTIVITY
from app.backend.judgments.tables import JUDGMENT
from app.backend.security.tables import API_KEY, WORKSPACE
from app.cli import usher
from app.commands.bootstrap.databases import BACKEND_MIGRATIONS
from app.foundation.database.engine import open_engine, writing
from tests.tables import copy_migrated

PLACE = {"organizationId": "acme", "documentId": "d"}
ACTIVITY_RECORD = {
    "kind": "activity",
    "id": "a",
    "featureType": "custom",
    "actionType": "x",
    "actionUser": {"userId": "ada"},
}


JUDGMENT_RECORD = {"kind": "judgment", "recordId": "r", "decision": "approved", "judgeType": "human"}


def run(*arguments: str, command: str = "import") -> Result:
    return CliRunner().invoke(usher, ["backend", command, *arguments, "--config", "usher.yaml"], prog_name="usher")


@pytest.fixture
def data(folder: Path) -> Path:
    """A file with a good line and a bad one. The backend's database beside it has the API key ``key``."""
    (folder / "usher.yaml").write_text("self_hosted_backend: {database_url: 'sqlite:///backend.db'}\n")
    copy_migrated(folder / "backend.db", BACKEND_MIGRATIONS)
    engine = open_engine("sqlite:///backend.db")
    with writing(engine) as connection:
        for table in (WORKSPACE, API_KEY):
            filled = {
                column.name: "key" if str(column.type).startswith("VARCHAR") else 0
                for column in table.columns
                if not column.nullable
            }
            connection.execute(table.insert().values(filled))
    engine.dispose()
    path = folder / "data.jsonl"
    path.write_text(json.dumps(PLACE | ACTIVITY_RECORD) + "\nnonsense\n")
    return path


def test_import_reports_lines_that_it_cannot_use(data: Path) -> None:
    result = run(str(data), "--api-key", "key", "--create-missing")

    assert result.exit_code == 1
    assert result.stdout == "activity\t1\n"
    assert "data.jsonl:2: the line is not valid JSON" in result.stderr
    assert result.stderr.endswith("error: 1 line of " + str(data) + " was not imported\n")
    engine = open_engine("sqlite:///backend.db")
    with engine.connect() as connection:
        assert [row.activity_id for row in connection.execute(ACTIVITY.select())] == ["a"]
    engine.dispose()


def test_import_requires_an_existing_api_key(data: Path) -> None:
    result = run(str(data), "--api-key", "other")

    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, "error: there is no API key other")


@pytest.mark.parametrize("command", [["import", "data.jsonl", "--api-key", "key"], ["reembed"]])
def test_import_and_reembed_create_no_database(data: Path, command: list[str]) -> None:
    data.with_name("backend.db").unlink()
    result = run(*command[1:], command=command[0])

    assert result.exit_code == 1
    assert "there is no database" in result.stderr
    assert "self_hosted_backend.database_url" in result.stderr
    assert not list(data.parent.glob("*.db*"))


def test_reembed_updates_judgments_of_another_embedder(data: Path) -> None:
    data.write_text(json.dumps(PLACE | JUDGMENT_RECORD) + "\n")
    assert run(str(data), "--api-key", "key", "--create-missing").stdout == "judgment\t1\n"
    engine = open_engine("sqlite:///backend.db")
    with writing(engine) as connection:
        connection.execute(JUDGMENT.update().values(embedder="another"))

    assert run(command="reembed").stdout == "1 judgment embedded with hashing; all others already were\n"
    assert run(command="reembed").stdout == "0 judgments embedded with hashing; all others already were\n"
    with engine.connect() as connection:
        assert set(connection.scalars(select(JUDGMENT.c.embedder))) == {"hashing-1"}
    engine.dispose()
