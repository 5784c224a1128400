"""A malformed object keeps its former records, and the read counts as complete."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from app.access.export import export_records
from app.access.problems import ProblemSort
from app.access.records import Membership, Record, User
from app.access.source_states import source_states
from app.commands.schema import METADATA
from app.directory.bounded import BoundedSource, Policy
from app.directory.configured import source_from_settings
from app.directory.mapping.source import MappedSource
from app.directory.mapping.spool_file import SpoolFile
from app.directory.settings import DirectorySettings
from app.directory.source import Source, Verdict
from app.foundation.database.engine import open_engine, reading
from app.sync.runs.directory_reads import ReadOptions, RefreshReport, read_directory
from tests.tables import make_tables
from tests.worlds.object_directory import ObjectDirectory, rules_of, thing

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)

RULES = """
- {from: users, aliases: [it.mail], user: {userId: it.id, name: it.name, email: it.id, disabled: it.off == true}}
- {from: groups, organization: {organizationId: it.cn, organizationName: it.cn}}
- {from: groups, each: members, membership: {organizationId: it.cn, userId: member.userId}}
"""


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield engine
    engine.dispose()


class Company:
    """People in a directory, all of them members of acme."""

    def __init__(self, engine: Engine, folder: Path, rules: str = RULES) -> None:
        self.engine = engine
        self.objects = ObjectDirectory()
        spool = SpoolFile.of(folder / "spool", "ad")
        self.source: Source = BoundedSource(
            MappedSource("ad", self.objects, rules_of(rules), spool), timeout=0, policy=Policy()
        )
        self.ids = ["ada", "bob", "cy"]
        for one in self.ids:
            self.put(one)
        self.objects.put(thing("groups", "acme", {"cn": "acme"}, tuple(f"users/{one}" for one in self.ids)))

    def put(self, id_: str, **values: object) -> None:
        given = {"id": id_, "name": "N", "mail": f"{id_}@acme.example", "off": False, **values}
        value = {name: one for name, one in given.items() if one is not None}
        self.objects.put(thing("users", id_, value))

    def read(self, *, full: bool) -> RefreshReport:
        return read_directory(self.engine, [self.source], ReadOptions(full=["ad"] if full else []), clock=lambda: NOW)

    def records(self) -> list[Record]:
        with reading(self.engine) as connection:
            return list(export_records(connection))

    def users(self) -> dict[str, bool]:
        """Id → whether they are disabled."""
        return {one.user_id: one.disabled for one in self.records() if isinstance(one, User)}

    def members(self) -> set[str]:
        return {str(one.user_id) for one in self.records() if isinstance(one, Membership)}


@pytest.fixture
def company(engine: Engine, tmp_path: Path) -> Company:
    company = Company(engine, tmp_path)
    assert company.read(full=True).sources[0].verdict is Verdict.COMPLETE
    return company


both_ways = pytest.mark.parametrize("full", [True, False], ids=["everything", "changes"])


@both_ways
def test_an_alias_that_cannot_be_used_is_left_out_with_a_remark(company: Company, full: bool) -> None:
    company.put("ada", mail="x" * 600)
    company.objects.remove("users", "bob")
    report = company.read(full=full)
    assert report.sources[0].verdict is Verdict.COMPLETE
    [remark] = [one for one in report.problems.listed if one.sort is ProblemSort.REMARK and "aliases" in one.reason]
    assert remark.reason == "rule 1: aliases[0]: is longer than 512 bytes; it is left out"
    assert company.users() == {"ada": False, "cy": False}
    assert [one.aliases for one in company.records() if isinstance(one, User) and one.user_id == "ada"] in (
        [()],
        [("",)],
    )


SPOILT = [{"name": None}, {"name": "a\0b"}, {"mail": "a\0b"}, {"name": 7}]


@both_ways
@pytest.mark.parametrize("spoilt", SPOILT, ids=["missing", "nul", "alias", "number"])
def test_malformed_object_keeps_its_records_and_delays_no_others(
    company: Company, full: bool, spoilt: dict[str, object]
) -> None:
    company.put("ada", **spoilt)
    company.objects.remove("users", "bob")
    company.put("cy", off=True)
    report = company.read(full=full)
    assert (report.sources[0].verdict, report.sources[0].malformed) == (Verdict.PARTIAL, 1)
    assert company.users() == {"ada": False, "cy": True}
    assert company.members() == {"ada", "cy"}
    # It is read with the next change, without everything being read again.
    company.objects.remove("users", "cy")
    assert company.read(full=False).sources[0].answered == "changes"
    assert company.users() == {"ada": False}
    company.put("ada", name="M")
    report = company.read(full=False)
    assert report.sources[0].verdict is Verdict.COMPLETE
    assert [one.name for one in company.records() if isinstance(one, User)] == ["M"]


@both_ways
@pytest.mark.parametrize("spoilt", SPOILT, ids=["missing", "nul", "alias", "number"])
def test_malformed_object_that_is_disabled_has_no_records(
    company: Company, full: bool, spoilt: dict[str, object]
) -> None:
    company.put("ada", off=True, **spoilt)
    company.read(full=full)
    assert company.users() == {"ada": True, "bob": False, "cy": False}
    company.put("ada", off=False)
    company.read(full=full)
    assert company.users()["ada"] is False


@both_ways
def test_removed_malformed_object_loses_its_records(company: Company, full: bool) -> None:
    company.put("ada", name=None)
    company.read(full=full)
    company.objects.remove("users", "ada")
    company.read(full=full)
    assert company.users() == {"bob": False, "cy": False}


def test_new_malformed_user_is_not_added(company: Company) -> None:
    company.put("new", name=None)
    company.read(full=True)
    assert set(company.users()) == {"ada", "bob", "cy"}


def test_malformed_fill_still_disables(engine: Engine, tmp_path: Path) -> None:
    rules = """
    - {from: users, aliases: [it.mail], user: {userId: it.id, name: it.name, email: it.id}}
    - {from: rows, fill: it.mail, user: {disabled: 'it.status == "left"', initial: it.initial}}
    """
    company = Company(engine, tmp_path, rules)
    company.objects.put(thing("rows", "1", {"mail": "ada@acme.example", "status": "left", "initial": 7}))
    company.objects.put(thing("rows", "2", {"mail": "bob@acme.example", "status": "left", "initial": "a\0b"}))
    company.objects.put(thing("rows", "3", {"mail": "cy@acme.example", "status": "in", "initial": 7}))
    assert company.read(full=True).sources[0].verdict is Verdict.PARTIAL
    assert company.users() == {"ada": True, "bob": True, "cy": False}


def sql_source(folder: Path, queries: dict[str, str]) -> Source:
    given = {"sources": [{"name": "app", "type": "sql", "url": f"sqlite:///{folder / 'app.db'}", "queries": queries}]}
    return BoundedSource(
        source_from_settings(DirectorySettings.model_validate(given).sources[0]), timeout=0, policy=Policy()
    )


def test_rows_with_a_key_are_objects(engine: Engine, tmp_path: Path) -> None:
    source = sql_source(
        tmp_path, {"users": 'SELECT id AS "userId", name, id AS "email", off AS "disabled" FROM person'}
    )
    database = create_engine(f"sqlite:///{tmp_path / 'app.db'}")

    def run(*statements: str) -> dict[str, bool]:
        with database.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))
        read_directory(engine, [source], clock=lambda: NOW)
        with reading(engine) as connection:
            return {one.user_id: one.disabled for one in export_records(connection) if isinstance(one, User)}

    run(
        "CREATE TABLE person (id TEXT, name TEXT, off INTEGER)",
        "INSERT INTO person VALUES ('ada', 'A', 0), ('bob', 'B', 0), ('cy', 'C', 1), ('dee', 'D', 0)",
    )
    found = run(
        "UPDATE person SET name = NULL WHERE id = 'ada'",
        "UPDATE person SET off = NULL WHERE id = 'cy'",
        "DELETE FROM person WHERE id = 'bob'",
    )
    # What is not known to be enabled stays disabled.
    assert found == {"ada": False, "cy": True, "dee": False}
    found = run("UPDATE person SET off = 1, name = char(0) WHERE id = 'ada'")
    assert found == {"ada": True, "cy": True, "dee": False}
    with reading(engine) as connection:
        [state] = source_states(connection)
    assert (state.last_verdict, state.malformed) == ("partial", 2)
    database.dispose()
