"""The settings of SQL sources."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from app.directory.configured import sources_from_settings
from app.directory.settings import DirectorySettings, SqlSourceSettings
from app.directory.source import End, Found, Verdict
from tests.directory.databases import opened

GRANTS = 'SELECT 1 AS "organizationId", 2 AS "documentId", 3 AS "userId"'


def settings(**given: object) -> SqlSourceSettings:
    return SqlSourceSettings.model_validate(
        {"type": "sql", "name": "app", "url": "postgresql://u:hunter2@h/app", "queries": {"grants": GRANTS}} | given
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"url": "not a url"}, "not a database URL"),
        ({"url": "postgresql://u:p@ss@h/app"}, "%40"),
        ({"url": "postgresql://u:p@ss/word@h/app"}, "%40"),
        ({"url": "sqlite://"}, "needs a file"),
        ({"queries": {}}, "at least 1 item"),
        ({"queries": {"grants": ""}}, "is empty"),
        ({"queries": {"grants": "SELECT 1; SELECT 2"}}, "more than one statement"),
        ({"queries": {"grants": "SELECT 1) q; DROP TABLE x; SELECT (1"}}, "more than one statement"),
        ({"queries": {"grants": "SELECT 1) q WHERE 1 IN (1"}}, "parenthesis"),
        ({"queries": {"grant": GRANTS}}, "did you mean grants"),
        ({"queries": {"rows": "SELECT 1"}}, "no rule of map is from it"),
        ({"queries": {"1rows": "SELECT 1"}}, "should match pattern"),
        ({"queries": {"two rows": "SELECT 1"}}, "should match pattern"),
        ({"queries": {"": "SELECT 1"}}, "should match pattern"),
        ({"queries": {"r" * 101: "SELECT 1"}}, "at most 100 characters"),
        ({"queries": {"grants": {"query": GRANTS, "cursor": "at"}}}, "deleted: false"),
        ({"queries": {"grants": {"query": GRANTS, "deleted": "gone"}}}, "belongs to a cursor"),
        (
            {
                "queries": {
                    "grants": GRANTS,
                    "documents": {"query": "SELECT 1", "cursor": "at", "deleted": False},
                }
            },
            "queries.grants: has no cursor while others have",
        ),
        ({"map": [{"from": "rows", "user": {"userId": "it.id", "name": "it.n", "email": "it.m"}}]}, "no query 'rows'"),
        ({"timezone": "Europe/Atlantis"}, "not a time zone"),
        ({"answer_timeout": 0}, "answer_timeout"),
        ({"name": ""}, "name"),
    ],
)
def test_invalid_settings_are_rejected_without_the_password(given: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason) as refused:
        settings(**given)
    assert all("hunter2" not in error["msg"] for error in refused.value.errors())


@pytest.mark.parametrize("name", ["r", "r" * 100, "people_2", "Städte"])
def test_query_names_may_have_letters_of_any_alphabet(name: str) -> None:
    rule = {"from": name, "user": {"userId": "it.id", "name": "it.n", "email": "it.m"}}
    assert list(settings(queries={name: "SELECT 1"}, map=[rule]).queries) == [name]


def test_the_identity_excludes_the_password() -> None:
    one = settings()
    assert "hunter2" not in repr(one) + str(one.identity())
    assert one.digest == settings(url="postgresql://u:other@h/app", answer_timeout=9).digest
    assert one.digest != settings(url="postgresql://u:hunter2@h/other").digest
    assert one.digest != settings(queries={"grants": GRANTS + " WHERE 1 = 1"}).digest


def test_literals_and_comments_may_contain_any_character() -> None:
    text = "SELECT ';)' AS \"a;)\" -- ;)\n, $$;)$$, /* ;) */ (1)"
    assert settings(queries={"grants": f" {text} ; "}).queries["grants"].query == text


def test_a_source_has_queries_for_records_and_queries_for_rules(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as database:
        database.run(
            "CREATE TABLE people (id INTEGER, mail TEXT, status TEXT)",
            "INSERT INTO people VALUES (1, 'A@x.example', 'left'), (2, 'B@x.example', 'here'), (3, NULL, 'here')",
        )
        section = {
            "type": "sql",
            "name": "hr",
            "url": str(database.url),
            "queries": {
                "organizations": "SELECT 'acme' AS organizationId, 'Acme' AS organizationName",
                "rows": "SELECT * FROM people",
            },
            "map": [
                {
                    "from": "rows",
                    "when": "has(it.mail)",
                    "user": {"userId": "string(it.id)", "name": "it.mail", "email": "lower(it.mail)"},
                },
                {
                    "from": "rows",
                    "when": "has(it.mail)",
                    "fill": "it.mail",
                    "user": {"disabled": 'it.status == "left"'},
                },
            ],
        }
        for queries in (section["queries"], {"rows": "SELECT * FROM people"}):
            directory = DirectorySettings.model_validate({"sources": [section | {"queries": queries}]})
            [source] = sources_from_settings(directory)
            steps = list(source.read())
            found = [(step.record.kind, step.origin) for step in steps if isinstance(step, Found)]
            assert [kind for kind, _ in found].count("user") == 2
            assert {origin.object.id for kind, origin in found if kind == "user" and origin} == {"1", "2"}
            assert ("organization" in {kind for kind, _ in found}) == (len(queries) == 2)
            assert isinstance(steps[-1], End)
            assert steps[-1].verdict is Verdict.COMPLETE, steps[-1]
