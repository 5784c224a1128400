"""Usher and the self-hosted backend with the same database, in separate settings files."""

from pathlib import Path

import pytest

from app.commands.bootstrap.databases import BACKEND_MIGRATIONS, STORE_MIGRATIONS
from app.foundation.database.engine import open_engine
from app.foundation.database.migrations import upgrade
from app.foundation.database.programs import Migrations
from tests.commands.conftest import Usher

USHERS = [["db", "upgrade"], ["serve", "--port", "0"], ["worker"], ["sync"], ["plan"], ["runs"]]
BACKENDS = [["backend", "upgrade"], ["backend", "serve", "--port", "0"]]


def prepared(folder: Path, database_url: str, migrations: Migrations) -> None:
    """A database that one of the programs already uses, in the settings of both."""
    engine = open_engine(database_url)
    upgrade(engine, migrations)
    engine.dispose()
    (folder / "usher.yaml").write_text(
        f"database_url: '{database_url}'\n"
        "provider: {auth_tokens: [ask-me-anything-16]}\n"
        "backend: {base_url: 'http://127.0.0.1:1', api_key: K, auth_token: T}\n"
        "directory: {sources: [{type: file, path: directory.yaml}]}\n"
    )
    (folder / "backend.yaml").write_text(f"self_hosted_backend: {{database_url: '{database_url}', secret_key: S}}\n")


@pytest.mark.parametrize("arguments", USHERS, ids=" ".join)
def test_usher_refuses_the_backends_database(
    usher_in: Usher, folder: Path, database_url: str, arguments: list[str]
) -> None:
    prepared(folder, database_url, BACKEND_MIGRATIONS)
    result = usher_in(*arguments)
    assert (result.exit_code, result.stderr) == (
        1,
        "error: the database belongs to the self-hosted backend: give Usher itself one of its own (database_url)\n",
    )


@pytest.mark.parametrize("arguments", BACKENDS, ids=" ".join)
def test_the_backend_refuses_ushers_database(
    usher_in: Usher, folder: Path, database_url: str, arguments: list[str]
) -> None:
    prepared(folder, database_url, STORE_MIGRATIONS)
    result = usher_in(*arguments, config="backend.yaml")
    assert result.exit_code == 1
    assert result.stderr == (
        "error: the database belongs to Usher itself: give the self-hosted backend one of its own"
        " (self_hosted_backend.database_url)\n"
    )


def test_doctor_names_the_owner_of_the_database(usher_in: Usher, folder: Path, database_url: str) -> None:
    prepared(folder, database_url, BACKEND_MIGRATIONS)
    result = usher_in("doctor")
    assert result.exit_code == 1
    [output] = [line for line in result.stdout.splitlines() if "\tschema\t" in line]
    assert output == (
        "problem\tschema\tthe database belongs to the self-hosted backend: give Usher itself one of its own"
        " (database_url)\tusher config show prints the origin of database_url"
    )
