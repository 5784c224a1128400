"""Databases of an application, with people and teams."""

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine, NullPool, create_engine, make_url, text

from app.directory.connectors.sql.settings import Query, parse_source_url
from app.directory.connectors.sql.source import SqlDatabase, SqlSource
from app.directory.source import Source
from app.directory.testing.world import Content, SourceWorld, UnsupportedError
from tests.conftest import POSTGRES
from tests.worlds.tcp_proxy import TcpProxy

MYSQL = os.environ.get("USHER_TEST_MYSQL", "")
"""The URL of a MariaDB or MySQL server, whose user may create databases."""

SORTS = [
    "sqlite",
    pytest.param(
        "postgresql",
        marks=[
            pytest.mark.postgres,
            pytest.mark.skipif(not POSTGRES, reason="USHER_TEST_POSTGRES names no PostgreSQL server"),
        ],
    ),
    pytest.param(
        "mysql", marks=pytest.mark.skipif(not MYSQL, reason="USHER_TEST_MYSQL names no MariaDB or MySQL server")
    ),
]
"""The kinds of database."""


@contextmanager
def new_database(sort: str, folder: Path) -> Iterator[URL]:
    """An empty database of this kind."""
    if sort == "sqlite":
        yield make_url(f"sqlite:///{folder}/app.db")
        return
    url = parse_source_url(POSTGRES if sort == "postgresql" else MYSQL)
    server = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    name = f"usher_test_{uuid.uuid4().hex[:16]}"
    with server.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield url.set(database=name)
    with server.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name}" + (" WITH (FORCE)" if sort == "postgresql" else "")))


class Database:
    """A database that a test fills, and that is read through a proxy, unless it is a file."""

    def __init__(self, url: URL) -> None:
        self.url = url
        self.sort = url.get_backend_name()
        self.engine: Engine = create_engine(url, poolclass=NullPool)
        self.between = None if self.sort == "sqlite" else TcpProxy(str(url.host), url.port or 0)
        self.read_url = url if self.between is None else url.set(host="127.0.0.1", port=self.between.port)

    def close(self) -> None:
        if self.between is not None:
            self.between.close()

    def run(self, *statements: str) -> None:
        """Runs statements in one transaction. Replaces the tables that they create."""
        with self.engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement.replace(":", "\\:")))

    def put(self, *statements: tuple[str, Sequence[Mapping[str, object]]]) -> None:
        """Runs each statement for all of its rows, in one transaction."""
        with self.engine.begin() as connection:
            for statement, rows in statements:
                if rows:
                    connection.execute(text(statement), list(rows))

    def source(self, queries: Mapping[str, str] | Sequence[Query], **settings: object) -> SqlSource:
        """A source of these queries, which are settings or their texts."""
        if isinstance(queries, Mapping):
            queries = [Query(name, statement) for name, statement in queries.items()]
        return SqlSource("app", SqlDatabase(self.read_url, queries, **settings))  # type: ignore[arg-type]


@contextmanager
def opened(sort: str, folder: Path) -> Iterator[Database]:
    """A database that is dropped at the end."""
    with new_database(sort, folder) as url:
        database = Database(url)
        try:
            yield database
        finally:
            database.close()


PEOPLE = 'SELECT id AS "userId", name, mail AS "email", odd, changed FROM person'
TEAMS = 'SELECT team AS "organizationId", person AS "userId", changed FROM member'


class PeopleAndTeams(SourceWorld):
    """Tables of people and members, in which every change has a number, and deletions are recorded."""

    secret = "hunter2/:@"

    def __init__(self, database: Database) -> None:
        self.database = database
        text_type = "VARCHAR(190)" if database.sort == "mysql" else "TEXT"
        json_type = "JSON" if database.sort == "postgresql" else "TEXT"
        tables = {
            "person": f"id {text_type} PRIMARY KEY, name TEXT, mail TEXT, odd {json_type}, changed BIGINT",
            "member": f"team {text_type}, person {text_type}, changed BIGINT, PRIMARY KEY (team, person)",
            "person_deleted": f"id {text_type}, changed BIGINT",
            "member_deleted": f"team {text_type}, person {text_type}, changed BIGINT",
        }
        # In SQLite's file, a separate key would use pages that no read accesses: cutting them off would go unnoticed.
        form = {
            name: "" if database.sort != "sqlite" or "KEY" not in tables[name] else "WITHOUT ROWID" for name in tables
        }
        database.run(*(f"CREATE TABLE IF NOT EXISTS {name} ({tables[name]}) {form[name]}" for name in tables))
        database.run(*(f"DELETE FROM {name}" for name in tables))
        self._content = Content()
        self._number = 0

    def source(self) -> SqlSource:
        return self.database.source(
            [
                Query(
                    "users",
                    PEOPLE,
                    cursor="changed",
                    deleted='SELECT id AS "userId", changed FROM person_deleted',
                    overlap=1,
                ),
                Query(
                    "memberships",
                    TEAMS,
                    cursor="changed",
                    deleted='SELECT team AS "organizationId", person AS "userId", changed FROM member_deleted',
                    overlap=1,
                ),
            ]
        )

    def set_content(self, content: Content) -> None:
        self._number += 1
        number, old = self._number, self._content
        gone = [one for one in old.people if one not in content.people]
        new = {one: person for one, person in content.people.items() if old.people.get(one) != person}
        members = {(team, one) for team, some in content.teams.items() for one in some}
        old_members = {(team, one) for team, some in old.teams.items() for one in some}
        left = [{"team": team, "person": one, "n": number} for team, one in sorted(old_members - members)]
        joined = [{"team": team, "person": one, "n": number} for team, one in sorted(members - old_members)]
        self.database.put(
            ("DELETE FROM person WHERE id = :id", [{"id": one} for one in (*gone, *(new.keys() & old.people.keys()))]),
            ("INSERT INTO person_deleted VALUES (:id, :n)", [{"id": one, "n": number} for one in gone]),
            (
                "INSERT INTO person VALUES (:id, :name, :mail, NULL, :n)",
                [{"id": one, "name": person.name, "mail": person.email, "n": number} for one, person in new.items()],
            ),
            ("DELETE FROM member WHERE team = :team AND person = :person", left),
            ("INSERT INTO member_deleted VALUES (:team, :person, :n)", left),
            ("INSERT INTO member VALUES (:team, :person, :n)", joined),
        )
        self._content = content

    @contextmanager
    def cut(self, share: float) -> Iterator[None]:
        between = self.database.between
        if between is not None:
            between.reset()
            list(self.source().read())
            with between.cut(int(between.passed * share)):
                yield
            return
        path = Path(str(self.database.url.database))
        # The same goes for pages that nobody uses any more.
        self.database.run("VACUUM")
        whole = path.with_suffix(".whole")
        shutil.copy(path, whole)
        os.truncate(path, int(path.stat().st_size * share))
        yield
        whole.replace(path)

    def add_unusable(self, person_id: str, text: str) -> None:
        if self.database.sort == "sqlite":
            # Bytes that its driver would not write.
            content = text.encode("utf-8", "surrogatepass").hex()
            self.database.run(f"INSERT INTO person VALUES ('{person_id}', CAST(x'{content}' AS TEXT), '', NULL, 1)")
            return
        if self.database.sort == "postgresql" or "\0" not in text:
            raise UnsupportedError("the database refuses such a text by itself")
        self.database.run(f"INSERT INTO person VALUES ('{person_id}', CONCAT('Nu', CHAR(0), 'll'), '', NULL, 1)")

    def add_nested(self, person_id: str, depth: int) -> None:
        if self.database.sort != "postgresql":
            raise UnsupportedError("the driver gives JSON as text there")
        deep = "[" * depth + "]" * depth
        self.database.run(f"DELETE FROM person WHERE id = '{person_id}'")
        self.database.run(f"INSERT INTO person VALUES ('{person_id}', 'Deep', '', '{deep}', 1)")

    def failures(self) -> Mapping[str, AbstractContextManager[Source]]:
        database = self.database

        @contextmanager
        def at(url: URL, statement: str = PEOPLE) -> Iterator[Source]:
            yield SqlSource("app", SqlDatabase(url, [Query("users", statement)], connect_timeout=2))

        found: dict[str, AbstractContextManager[Source]] = {
            "no such table": at(database.read_url, "SELECT 1 AS id FROM nowhere"),
            "no such column": at(database.read_url, 'SELECT nothing AS "userId" FROM person'),
            "no query": at(database.read_url, "SELEKT id"),
        }
        if database.sort == "sqlite":
            return found | {
                "no such file": at(database.url.set(database="/nowhere/app.db")),
                "no database": at(database.url.set(database=__file__)),
            }
        wrong = database.read_url.set(username="nobody_here", password=self.secret)
        return found | {
            "a wrong user": at(wrong),
            "a wrong database": at(database.read_url.set(database="nowhere", password=self.secret)),
            "nobody listens": at(wrong.set(port=1)),
            "no such host": at(wrong.set(host="nowhere.invalid")),
        }
