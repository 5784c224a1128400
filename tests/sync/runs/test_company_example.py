"""The example of a company with rules and queries."""

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path

import pytest
import yaml
from sqlalchemy import Engine

from app.access.export import export_records
from app.access.origins import load_origins
from app.access.records import Document, Grant, Membership, User
from app.commands.schema import METADATA
from app.directory.configured import sources_from_settings
from app.directory.mapping.source import MappedSource
from app.directory.mapping.spool_file import SpoolFile
from app.directory.settings import DirectorySettings
from app.directory.source import Source
from app.foundation.database.engine import open_engine, reading
from app.sync.runs.directory_reads import read_directory
from tests.tables import make_tables
from tests.worlds.object_directory import ObjectDirectory, rules_of, thing

EXAMPLE = Path(__file__).parents[3] / "config/examples/company.yaml"
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)

APPLICATION = """
CREATE TABLE folder (tenant TEXT, id TEXT, name TEXT);
CREATE TABLE doc (tenant TEXT, id TEXT, title TEXT, folder TEXT);
CREATE TABLE share (tenant TEXT, doc TEXT, employee TEXT, role TEXT, until TEXT);
INSERT INTO folder VALUES ('acme', 'specs', 'Specs');
INSERT INTO doc VALUES ('acme', 'plan', 'Plan', 'specs'), ('acme', 'lost', 'Lost', 'gone');
INSERT INTO share VALUES ('acme', 'plan', 'e-ADA', 'viewer', '2030-01-01T00:00:00Z'),
  ('acme', 'plan', 'E-both', 'editor', NULL), ('acme', 'plan', 'E-who', 'editor', NULL),
  ('acme', 'never', 'E-ada', 'editor', NULL), ('acme', 'lost', 'E-ada', 'editor', NULL);
"""
PERSONNEL = """
CREATE TABLE people (id INTEGER PRIMARY KEY, employee_id TEXT, status TEXT, cost_center TEXT);
INSERT INTO people VALUES (1, 'e-ada', 'here', 'C1'), (2, 'E-BOB', 'left', 'C2'), (3, 'E-who', 'left', 'C3');
"""


def account(guid: str, employee: str, control: int = 512) -> dict[str, object]:
    return {
        "objectGUID": guid,
        "mail": f"{guid}@corp.example",
        "employeeID": employee,
        "userPrincipalName": f"{guid}@corp",
        "displayName": guid.title(),
        "department": "D",
        "userAccountControl": control,
    }


@pytest.fixture
def sources(tmp_path: Path) -> list[Source]:
    """Those of the example: its databases in SQLite, its directory in memory."""
    settings = yaml.safe_load(EXAMPLE.read_text())["directory"]
    ad, *databases = settings["sources"]
    for name, script in (("app", APPLICATION), ("hr", PERSONNEL)):
        with sqlite3.connect(tmp_path / f"{name}.db") as connection:
            connection.executescript(script)
    for one in databases:
        del one["url_file"]
        one["url"] = f"sqlite:///{tmp_path / one['name']}.db"
        one.pop("changes", None)
    directory = ObjectDirectory()
    directory.put(
        *(thing("users", name, account(name, f"E-{name}")) for name in ("ada", "bob")),
        *(thing("users", name, account(name, "E-Both", 514)) for name in ("cyd", "dan")),
        thing("groups", "g1", {"cn": "org-acme", "description": "Acme"}, ("users/ada", "users/bob")),
        thing("groups", "g2", {"cn": "edit-acme"}, ("users/ada",)),
    )
    mapped = MappedSource("ad", directory, rules_of(yaml.safe_dump(ad["map"])), SpoolFile.of(tmp_path, "ad"))
    return [mapped, *sources_from_settings(DirectorySettings.model_validate({"sources": databases}))]


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield engine
    engine.dispose()


def test_example_explains_effective_and_other_records(engine: Engine, sources: list[Source]) -> None:
    report = read_directory(engine, sources, clock=repeat(NOW).__next__)
    assert [(one.verdict.value, one.reason) for one in report.sources] == [("complete", "")] * 3
    assert sorted(problem.reason.partition(" refers to ")[2] for problem in report.problems.listed) == [
        "the document 'lost' (documentId), which is left out itself",
        "the document 'never' (documentId), which is nowhere in the directory",
        "the folder 'gone' (folderId), which is nowhere in the directory",
        "the user 'e-both' (userAlias), an alias of several: 'cyd', 'dan'",
        "the user 'e-who' (userAlias), an alias that no user has",
        "the user 'e-who' (userAlias), an alias that no user has",
    ]
    with reading(engine) as connection:
        records = [one for one in export_records(connection) if isinstance(one, User | Membership | Grant | Document)]
    assert {
        one.user_id: (one.disabled, one.extra_fields["costCenter"])
        for one in records
        if isinstance(one, User)
        if one.extra_fields.keys() > {"department"}
    } == {
        "ada": (False, "C1"),
        "bob": (True, "C2"),
    }
    described = {
        key: [f"{one} gives {', '.join(one.provides)}" for one in origins]
        for key, origins in load_origins(engine, records).items()
    }
    assert described["user", "bob"] == [
        "ad: users users/bob, id bob, rule 1 gives name, email, department",
        "hr: rows, row 2, id 2, rule 1 gives costCenter, disabled",
    ]
    assert described["membership", "acme", "ada"] == [
        "ad: groups groups/g1, id g1, rule 3 gives expiresAt",
        "ad: groups groups/g2, id g2, rule 4 gives accessRole, expiresAt",
    ]
    assert described["document", "acme", "plan"] == [
        "app: documents, row 1, id acme/plan gives documentName, folderId, accessType"
    ]
    assert described["grant", "acme", "", "plan", "ada", ""] == [
        "app: grants, row 1, id acme/plan/e-ADA gives accessRole, expiresAt"
    ]
