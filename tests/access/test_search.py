"""Search names and numbers of records: updated by refreshes, and created by the migration."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib import import_module
from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Engine, event, text

from app.access.browse.sizes import ALL_ORGANIZATIONS, load_counts
from app.access.kinds import NAMED_KINDS
from app.access.records import Document, Folder, Grant, Group, Membership, Organization, Record, User
from app.access.search import from_each_word, from_first_word, search, search_exactly
from app.commands.schema import METADATA
from app.foundation.database.engine import is_sqlite, open_engine, reading, writing
from tests.access.test_merging import Read, expected_names_and_counts, model_of, names_and_counts, run_refresh
from tests.tables import make_tables

COMPANY: list[Record] = [
    Organization(organization_id="o1", organization_name="Ärzte ohne Grenzen"),
    Organization(organization_id="o2", organization_name=""),
    User(user_id="U-17", name="Ada King, Countess of Lovelace", email="ada.lovelace@example.org"),
    User(user_id="u-18", name="ada  ADA", email=""),
    User(user_id="%", name="\u202e100 % '; DROP TABLE", email="x\0y@example.org"),
    Membership(organization_id="o1", user_id="U-17"),
    Group(organization_id="o2", organization_user_group_id="staff", group_name="The staff"),
    Folder(organization_id="o1", folder_id="f", folder_name="Straße"),
    Document(organization_id="o1", document_id="d", document_name="Q3_report-final (2).pdf", folder_id="f"),
    Document(organization_id="o2", document_id="d", document_name="Q3 numbers"),
    Grant(organization_id="o1", document_id="d", user_id="U-17"),
]


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield engine
    engine.dispose()


def refresh(engine: Engine, records: Sequence[Record]) -> None:
    run_refresh(engine, {"first": Read("complete", [(one, "") for one in records])})


def search_keys(engine: Engine, kind: str, typed: str, limit: int = 20) -> list[str]:
    with reading(engine) as connection:
        return [f"{one.organization_id}/{one.item_id}" for one in search(connection, typed, kind, limit)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Ada Lovelace", ["ada lovelace", "lovelace"]),
        ("  Ada\t\nKing ", ["ada king", "king"]),
        ("Q3_report-final.pdf", ["q3_report-final.pdf", "report-final.pdf", "final.pdf", "pdf"]),
        ("one two three four five", ["one two three four five", "two three four five", "three four five", "four five"]),
        ("(Émile Zola)", ["emile zola)", "zola)"]),
        ("ẞTRASSE ﬁne", ["sstrasse fine", "fine"]),
        ("…", ["..."]),
        ("a\0b", ["a b", "b"]),
        ("", []),
        (" ", []),
        ("x" * 300, ["x" * 64]),
    ],
)
def test_names_begin_with_each_of_the_first_words(name: str, expected: list[str]) -> None:
    assert from_each_word(name) == expected
    assert from_first_word(name) == next(iter(expected), "")


def test_search_finds_similar_names(engine: Engine) -> None:
    refresh(engine, COMPANY)
    for kind, typed, expected in [
        ("user", "ada", ["/u-18", "/U-17"]),  # each once, however many of its names begin so
        ("user", "COUNTESS  of L", ["/U-17"]),
        ("user", "king, c", ["/U-17"]),
        ("user", "Ada.Lovelace@EXAMPLE", ["/U-17"]),
        ("user", "u-1", ["/U-17", "/u-18"]),
        ("user", "100 %", ["/%"]),
        ("user", "a", []),
        ("user", "-a", []),
        ("user", "%", []),
        ("user", "_da", []),
        ("user", "\0", []),
        ("user", "x" * 5_000, []),
        ("organization", "arzte", ["/o1"]),
        ("organization", "o2", ["/o2"]),
        ("group", "staff", ["o2/staff"]),
        ("folder", "STRASSE", ["o1/f"]),
        ("document", "q3", ["o2/d", "o1/d"]),
        ("document", "final (2", ["o1/d"]),
        ("document", "pdf", []),  # the fifth word
    ]:
        assert search_keys(engine, kind, typed) == expected, (kind, typed)
    assert search_keys(engine, "document", "q3", limit=1) == ["o2/d"]
    with reading(engine) as connection:
        (one,) = search(connection, "countess", "user")
        (nameless,) = search(connection, "o2", "organization")
    assert (one.label, one.detail) == ("Ada King, Countess of Lovelace", "ada.lovelace@example.org")
    assert nameless.label == "o2"


def test_names_and_numbers_follow_changes(engine: Engine) -> None:
    refresh(engine, COMPANY)
    with reading(engine) as connection:
        assert load_counts(connection, [ALL_ORGANIZATIONS])[ALL_ORGANIZATIONS]["document"] == 2
        assert load_counts(connection, ["o1", "o2", "none"]) == {
            "o1": {"membership": 1, "folder": 1, "document": 1, "grant": 1},
            "o2": {"group": 1, "document": 1},
        }
    changed = [one for one in COMPANY if one.key not in {("document", "o1", "d"), ("user", "u-18")}]
    changed.remove(COMPANY[2])
    changed += [User(user_id="U-17", name="Ada Byron", email="ada.lovelace@example.org", disabled=True)]
    refresh(engine, changed)
    assert search_keys(engine, "user", "king") == []
    assert search_keys(engine, "user", "byron") == ["/U-17"]
    assert search_keys(engine, "user", "ada") == ["/U-17"]
    assert search_keys(engine, "document", "q3") == ["o2/d"]
    with reading(engine) as connection:
        # A grant to somebody unknown is a record, too.
        assert load_counts(connection, ["o1"]) == {"o1": {"membership": 1, "folder": 1, "grant": 1}}
        assert names_and_counts(connection) == expected_names_and_counts(model_of(engine).values())
    refresh(engine, COMPANY[1:2])
    with reading(engine) as connection:
        assert names_and_counts(connection) == ({("organization", "o2", "", "o2")}, {("", "organization"): 1})


def test_refresh_without_changes_writes_nothing(engine: Engine) -> None:
    refresh(engine, COMPANY)
    written: Counter[str] = Counter()

    @event.listens_for(engine, "before_cursor_execute")
    def note(*arguments: Any) -> None:
        words = str(arguments[2]).split()
        if words[0] in {"INSERT", "DELETE", "UPDATE"}:
            written[next(word for word in words[1:] if word not in {"INTO", "FROM"})] += 1

    refresh(engine, COMPANY)
    assert not {"access_name", "access_count", "problem", "problem_count"} & set(written)
    assert "directory_source" in written


def test_search_reads_one_range_of_an_index(engine: Engine) -> None:
    refresh(engine, COMPANY)
    plans: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def explain(*arguments: Any) -> None:
        connection, _, statement, parameters, *_ = arguments
        if "access_name" in statement:
            with closing(connection.connection.cursor()) as cursor:
                if not is_sqlite(engine):
                    cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
                cursor.execute(f"EXPLAIN {'QUERY PLAN ' if is_sqlite(engine) else ''}{statement}", parameters)
                plans.append("\n".join(str(row[-1]) for row in cursor.fetchall()))

    for kind in ("user", "organization", "group", "folder", "document"):
        search_keys(engine, kind, "q3")
    assert len(plans) == 5
    for plan in plans:
        range_of = "access_name USING PRIMARY KEY (kind=? AND name>? AND name<?)"
        assert (range_of if is_sqlite(engine) else "using pk_access_name on access_name") in plan
        assert "SCAN access" not in plan
        assert "Seq Scan" not in plan


def test_migration_creates_the_same_as_a_refresh(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    revision = import_module("app.commands.migrations.versions.0027_after_1_0_0")
    monkeypatch.setattr(revision, "_ROWS_AT_ONCE", 2)
    refresh(engine, COMPANY)
    with reading(engine) as connection:
        expected = names_and_counts(connection)
    with writing(engine) as connection, Operations.context(MigrationContext.configure(connection)):
        for table in ("access_name", "access_count"):
            connection.execute(text(f"DELETE FROM {table}"))
        revision._count_records()
        for kind in NAMED_KINDS:
            revision._name_records(kind)
        made = names_and_counts(connection)
        counts = connection.execute(text("SELECT count(*) FROM access_count WHERE organization_id = ''")).scalar_one()
    assert made == expected
    assert counts == 9


def test_words_are_found_in_any_order(engine: Engine) -> None:
    company = [one for one in COMPANY if one.kind != "user"]
    refresh(
        engine,
        [
            *company,
            User(user_id="u1", name="Bjarne van Haddad", email="bvh@example.org", aliases=("acme\\bjh",)),
            User(user_id="u2", name="Bjork Haddad", email=""),
            User(user_id="u3", name="Haddadin Nabj", email=""),
        ],
    )
    for kind, typed, expected in [
        ("user", "haddad bj", ["/u1", "/u2"]),
        ("user", "bj van had", ["/u1"]),
        ("user", "had, bjarne", ["/u1"]),
        ("user", "haddad example", ["/u1"]),
        ("user", "haddad u2", ["/u2"]),
        ("user", "ha%d bj", []),
        ("user", "haddad haddad", ["/u2", "/u3", "/u1"]),
        ("user", "ACME\\b", ["/u1"]),
        ("user", "acme\\c", []),
        ("document", "report q3", ["o1/d"]),
        ("document", "numbers q3", ["o2/d"]),
    ]:
        assert sorted(search_keys(engine, kind, typed)) == sorted(expected), (kind, typed)
    with reading(engine) as connection:
        (one,) = search_exactly(connection, "Acme\\BJH", "user")
        assert (one.item_id, one.alias) == ("u1", "acme\\bjh")
        assert search_exactly(connection, "acme\\b", "user") == []
        assert [one.organization_id for one in search(connection, "q3", "document", organization_id="o1")] == ["o1"]


def test_words_that_many_names_have_are_found_by_the_index(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.access.search._MAX_COMPARED", 2)
    users = [User(user_id=f"u{number}", name=f"Number {number} Same_Name", email="") for number in range(12)]
    refresh(engine, [*COMPANY, *users])
    assert search_keys(engine, "user", "same_name 11 number") == ["/u11"]
    assert search_keys(engine, "user", "same_ 11 num") == ["/u11"]
    assert search_keys(engine, "user", "same%name 11 num") == []
    assert search_keys(engine, "user", "ame_ 11 num") == []
