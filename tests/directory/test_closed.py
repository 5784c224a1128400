"""Missing attributes and NULL give no access."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from app.access.records import AccessRole, Fill, Grant, Membership, User
from app.directory.configured import source_from_settings
from app.directory.connector import ALL_ATTRIBUTES
from app.directory.connectors.ldap.settings import preset
from app.directory.mapping.source import MappedSource
from app.directory.settings import DirectorySettings
from app.directory.source import End, Found, Malformed, ReadRequest, Verdict
from app.directory.testing.world import read
from tests.worlds.object_directory import ObjectDirectory, rules_of, thing

EVERY_ATTRIBUTE = frozenset({ALL_ATTRIBUTES})

PERSON = "userId: it.id, name: it.id, email: it.id"


def records(steps: Iterable[object]) -> Sequence[object]:
    return [step.record for step in steps if isinstance(step, Found)]


def malformed(steps: Iterable[object]) -> list[str]:
    return [step.reason for step in steps if isinstance(step, Malformed)]


def the_end(steps: Sequence[object]) -> End:
    assert isinstance(steps[-1], End)
    return steps[-1]


def read_objects(rules: str, *values: dict[str, object], always: frozenset[str] | None = None) -> Sequence[object]:
    directory = ObjectDirectory()
    directory.put(*(thing("users", str(number), {"id": str(number), **one}) for number, one in enumerate(values)))
    return read(MappedSource("ad", directory, rules_of(rules, None if always is None else {"users": always})))


# Attributes of directories.


@pytest.mark.parametrize(
    "rule",
    [
        "{from: users, user: {PERSON, disabled: 'it.status == \"left\"'}}",
        "{from: users, user: {PERSON, disabled: 'math.bitAnd(it.status, 2) != 0 || has(it.gone)'}}",
        "{from: users, when: 'it.status == \"left\"', fill: {userId: it.id, disabled: true}}",
    ],
)
def test_a_read_fails_if_no_object_has_the_disabling_attribute(rule: str) -> None:
    end = the_end(read_objects(f"[{rule.replace('PERSON', PERSON)}]", {}, {}, {}))
    assert end.verdict is Verdict.FAILED
    assert "rule 1 disables by status, which none of the 3 objects of users has" in end.reason
    assert "has(it.status)" in end.reason


@pytest.mark.parametrize(
    "disabled",
    [
        'has(it.status) && it.status == "left"',
        'it.?status.orValue("") == "left"',
        '"status" in it && it.status == "left"',
    ],
)
def test_a_rule_may_allow_that_no_object_has_it(disabled: str) -> None:
    steps = read_objects(f"[{{from: users, user: {{{PERSON}, disabled: '{disabled}'}}}}]", {}, {})
    assert the_end(steps).verdict is Verdict.COMPLETE
    assert [record.disabled for record in records(steps) if isinstance(record, User)] == [False, False]


def test_some_objects_may_lack_the_disabling_attribute() -> None:
    rule = f"[{{from: users, user: {{{PERSON}, disabled: 'it.status == \"left\"'}}}}]"
    steps = read_objects(rule, {}, {"status": "left"})
    assert the_end(steps).verdict is Verdict.COMPLETE
    assert [record.disabled for record in records(steps) if isinstance(record, User)] == [False, True]


def test_an_object_without_an_attribute_that_every_object_has_is_malformed() -> None:
    always = preset("active_directory").always["users"]
    rule = f"[{{from: users, user: {{{PERSON}, disabled: 'math.bitAnd(it.useraccountcontrol, 2) != 0'}}}}]"
    steps = read_objects(rule, {"useraccountcontrol": 512}, {}, {"useraccountcontrol": 514}, always=always)
    assert [record.disabled for record in records(steps) if isinstance(record, User)] == [False, True]
    [reason] = malformed(steps)
    assert reason.startswith("rule 1: disabled: it.useraccountcontrol is missing, and decides about access")


def test_changed_objects_may_lack_the_disabling_attribute() -> None:
    directory = ObjectDirectory()
    rule = f"[{{from: users, user: {{{PERSON}, disabled: 'it.status == \"left\"'}}}}]"
    source = MappedSource("ad", directory, rules_of(rule))
    directory.put(thing("users", "1", {"id": "1", "status": "left"}))
    end = the_end(read(source))
    directory.put(thing("users", "2", {"id": "2"}))
    steps = list(source.read(ReadRequest(since=end.cursor)))
    assert the_end(steps).verdict is Verdict.COMPLETE


def test_a_missing_role_is_not_editor() -> None:
    rule = "[{from: users, membership: {organizationId: '\"acme\"', userId: it.id, accessRole: it.role}}]"
    steps = read_objects(rule, {"role": "viewer"}, {})
    assert [record.access_role for record in records(steps) if isinstance(record, Membership)] == [AccessRole.VIEWER]
    assert "accessRole: it.role is missing" in malformed(steps)[0]
    rule = rule.replace("it.role", "'has(it.role) ? it.role : \"viewer\"'")
    assert len(records(read_objects(rule, {"role": "editor"}, {}))) == 2


# Rows of databases.


@pytest.fixture
def database(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'hr.db'}"
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(
            text("CREATE TABLE person (id TEXT, mail TEXT, status TEXT, off INTEGER, role TEXT, until TEXT)")
        )
        connection.execute(
            text("INSERT INTO person VALUES (:id, :id, :status, :off, :role, :until)"),
            [
                {"id": "in", "status": "in", "off": 0, "role": "viewer", "until": "2030-01-01T00:00:00Z"},
                {"id": "left", "status": "left", "off": 1, "role": "viewer", "until": "2030-01-01T00:00:00Z"},
                {"id": "null", "status": None, "off": None, "role": None, "until": None},
            ],
        )
    engine.dispose()
    return url


def read_sql(url: str, **settings: object) -> Sequence[object]:
    given = {"sources": [{"name": "hr", "type": "sql", "url": url, **settings}]}
    [source] = DirectorySettings.model_validate(given).sources
    return read(source_from_settings(source))


def test_null_in_a_column_that_decides_makes_the_row_malformed(database: str) -> None:
    users = 'SELECT id AS "userId", id AS "name", id AS "email", off AS "disabled" FROM person'
    steps = read_sql(database, queries={"users": users})
    assert {record.user_id: record.disabled for record in records(steps) if isinstance(record, User)} == {
        "in": False,
        "left": True,
    }
    assert malformed(steps) == ["disabled: is null, and decides about access; give a value, or leave the field out"]
    roles = 'SELECT \'acme\' AS "organizationId", id AS "userId", role AS "accessRole" FROM person'
    steps = read_sql(database, queries={"memberships": roles})
    assert [record.access_role for record in records(steps) if isinstance(record, Membership)] == [
        AccessRole.VIEWER
    ] * 2
    assert len(malformed(steps)) == 1


def test_null_means_no_end_if_the_settings_allow_it(database: str) -> None:
    grants = (
        'SELECT \'acme\' AS "organizationId", id AS "documentId", id AS "userId", \'viewer\' AS "accessRole",'
        ' until AS "expiresAt" FROM person'
    )
    steps = read_sql(database, queries={"grants": grants})
    assert (len(malformed(steps)), len(records(steps))) == (1, 2)
    steps = read_sql(database, queries={"grants": grants}, null_is_absent=["expiresAt"])
    assert not malformed(steps)
    assert {record.user_id for record in records(steps) if isinstance(record, Grant) and record.expires_at is None} == {
        "null"
    }
    endless = grants.replace("until AS", "COALESCE(until, 'infinity') AS")
    assert records(read_sql(database, queries={"grants": endless})) == records(steps)


@pytest.mark.parametrize(
    ("rule", "made"),
    [
        ({"fill": "it.mail", "user": {"disabled": 'it.status == "left"'}}, 2),
        ({"when": 'it.status == "left"', "fill": "it.mail", "user": {"disabled": True}}, 1),
        ({"fill": "it.mail", "user": {"disabled": "it.off == 1"}}, 2),
    ],
)
def test_null_in_a_disabling_column_makes_the_row_malformed(database: str, rule: dict[str, object], made: int) -> None:
    steps = read_sql(database, queries={"rows": "SELECT * FROM person"}, map=[{"from": "rows", **rule}])
    assert len([record for record in records(steps) if isinstance(record, Fill)]) == made
    assert ["is missing, and decides about access" in reason for reason in malformed(steps)] == [True]


@pytest.mark.parametrize(
    "fields",
    [
        {"expiresAt": "it.until"},
        {"accessRole": "it.role"},
    ],
)
def test_null_in_the_column_of_a_deciding_field_makes_the_row_malformed(database: str, fields: dict[str, str]) -> None:
    membership = {"organizationId": '"acme"', "userId": "it.id", "accessRole": '"viewer"'} | fields
    queries = {"rows": "SELECT * FROM person"}
    steps = read_sql(database, queries=queries, map=[{"from": "rows", "membership": membership}])
    assert (len(records(steps)), len(malformed(steps))) == (2, 1)
    [name] = fields
    attribute = membership[name]
    membership[name] = f"has({attribute}) ? {attribute} : null"
    steps = read_sql(database, queries=queries, map=[{"from": "rows", "membership": membership}])
    assert (len(records(steps)), len(malformed(steps))) == (3, 0)
