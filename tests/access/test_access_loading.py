"""The view is loaded in few statements, by index lookups alone, from one revision."""

import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, insert, text
from sqlalchemy.exc import DBAPIError

from app.access import tables
from app.access.decision.decide import DecisionPolicy, PlainQuestion, Rule, decide
from app.access.records import AccessRole
from app.access.view import cache, loader
from app.access.view.loader import AccessViewLoader, load_view
from app.access.view.queries import CONNECTION_SETTINGS, MAX_INLINE_GRANTS, Statements, direct_statements, statements
from app.foundation.database.direct import DirectConnections
from app.foundation.database.engine import is_sqlite, open_engine, reading, writing
from app.foundation.database.tables import METADATA
from tests.tables import make_tables

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
POLICY = DecisionPolicy(decision_ttl=0)
USERS = 2000
DOCUMENTS = 2000
FOLDERS = 2000
GROUPS = 200
CROWD = 3000


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    opened = open_engine(database_url)
    make_tables(opened, METADATA)
    with writing(opened) as connection:
        _fill(connection)
    if not is_sqlite(opened):
        with opened.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("ANALYZE"))
    yield opened
    opened.dispose()


def _fill(connection: Connection) -> None:
    """user-0 is in 50 groups, folder-0 is granted to 3,000 groups, and group-0 has grants on 2,000 documents."""

    def put(table: Any, rows: list[dict[str, Any]]) -> None:
        connection.execute(insert(table), rows)

    acme = {"organization_id": "acme"}
    described = {"payload": '{"userId":"x","name":"N","email":"e@x.example","team":"red"}', "digest": ""}
    put(
        tables.ACCESS_TABLES["organization"],
        [
            {"organization_id": name, "access_type": "restricted", "disabled": False, **described}
            for name in ["acme", *(f"o-{number}" for number in range(500))]
        ],
    )
    put(tables.ACCESS_TABLES["user"], [{"user_id": f"user-{n}", "disabled": False, **described} for n in range(USERS)])
    put(
        tables.ACCESS_TABLES["membership"],
        [{**acme, "user_id": f"user-{n}", "access_role": "editor", "expires_at": None} for n in range(USERS)],
    )
    put(
        tables.ACCESS_TABLES["group"],
        [{**acme, "organization_user_group_id": f"group-{n}", **described} for n in range(GROUPS)],
    )
    members = [(f"group-{n % GROUPS}", f"user-{n}", "") for n in range(1, USERS)]
    members += [(f"group-{n}", "user-0", "") for n in range(50)]
    members += [(f"group-{n}", "", f"group-{n // 2 + 100}") for n in range(150, GROUPS)]
    put(
        tables.ACCESS_TABLES["groupMember"],
        [
            {**acme, "organization_user_group_id": group, "user_id": user, "member_group_id": member}
            for group, user, member in members
        ],
    )
    put(
        tables.ACCESS_TABLES["folder"],
        [
            {
                **acme,
                "folder_id": f"folder-{n}",
                "parent_folder_id": f"folder-{n // 10}" if n else "",
                "access_type": "",
                **described,
            }
            for n in range(FOLDERS)
        ],
    )
    put(
        tables.ACCESS_TABLES["document"],
        [
            {
                **acme,
                "document_id": f"document-{n}",
                "folder_id": f"folder-{n % FOLDERS}",
                "access_type": "",
                **described,
            }
            for n in range(DOCUMENTS)
        ],
    )
    grants = [(f"folder-{n % FOLDERS}", "", f"user-{n}", "") for n in range(1, USERS)]
    grants += [("folder-0", "", "", f"crowd-{n}") for n in range(CROWD)] + [("folder-0", "", "", "group-7")]
    grants += [("", f"document-{n}", "", "group-0") for n in range(DOCUMENTS)]
    grants += [("", f"document-{n}", "user-9", "") for n in range(0, DOCUMENTS, 2)]
    put(
        tables.ACCESS_TABLES["grant"],
        [
            {
                **acme,
                "folder_id": folder,
                "document_id": document,
                "user_id": user,
                "organization_user_group_id": group,
                "access_role": "viewer",
                "expires_at": None,
            }
            for folder, document, user, group in grants
        ],
    )
    put(
        tables.ACCESS_TABLES["contextGrant"],
        [
            {
                **acme,
                "user_id": f"user-{n}",
                "organization_user_group_id": "",
                "field": "page",
                "value": "7",
                "document_id": "",
                "expires_at": None,
            }
            for n in range(USERS)
        ],
    )
    put(tables.RevisionRow, [{"revision": n, "created_at": n, "changes": "{}"} for n in range(1, 1000)])


def question(user: int, kind: Any, resource: int | str, **more: Any) -> PlainQuestion:
    resource_id = f"{'document' if kind == 'context' else kind}-{resource}"
    return PlainQuestion(user_id=f"user-{user}", type=kind, resource_id=resource_id, organization_id="acme", **more)


def batch(size: int) -> list[PlainQuestion]:
    """Questions of every kind, for a user in 50 groups, one with 1,000 grants, and others."""
    questions = [
        question(0, "document", 0),
        question(9, "document", 1),
        question(3, "folder", 17),
        question(4, "context", 4, context={"page": "7"}),
        PlainQuestion(user_id="user-5", type="organization", resource_id="acme", organization_id="acme"),
    ]
    questions += [question(n % USERS, "document", n * 7 % DOCUMENTS) for n in range(size)]
    return questions[:size] if size > 5 else questions


class Recorder:
    """Records the executed statements, their parameters and the numbers of rows they return."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, names: Statements[Any]) -> None:
        self.runs: list[tuple[str, object, int]] = []
        self.own_grants = 0
        self.group_grants = 0
        name_of = {text: name for name, text in names._asdict().items()}
        name_of |= {text: name for name, text in direct_statements()._asdict().items()}

        def recording(original: Callable[[Any], loader.Run]) -> Callable[[Any], loader.Run]:
            return lambda connection: self._recorded(original(connection), name_of)

        for runner in ("_runner", "_checked"):
            monkeypatch.setattr(loader, runner, recording(getattr(loader, runner)))

    def _recorded(self, run: loader.Run, name_of: dict[str, str]) -> loader.Run:
        def recorded(statement: str, asked: object) -> list[Any]:
            rows = run(statement, asked)
            name = name_of[statement]
            if name == "batch":
                self.own_grants += sum(len(row[2]) for row in rows[4])
                self.group_grants += sum(len(row[5]) for row in rows[5])
            if name == "folders":
                self.group_grants += sum(len(row[5]) for row in rows)
            self.runs.append((name, asked, len(rows)))
            return rows

        return recorded

    def rows(self, name: str) -> int:
        return sum(rows for run, _, rows in self.runs if run == name)


@pytest.fixture
def recorder(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch, statements(engine.dialect.name, with_payload=False))


def test_number_of_statements_does_not_depend_on_the_number_of_questions(engine: Engine, recorder: Recorder) -> None:
    counts = []
    for size in (5, 1000):
        recorder.runs.clear()
        with reading(engine) as connection:
            load_view(connection, batch(size), policy=POLICY)
        counts.append([name for name, _, _ in recorder.runs])
    assert counts[0] == counts[1] == list(Statements._fields)


def test_every_statement_uses_an_index(engine: Engine, recorder: Recorder) -> None:
    with reading(engine) as connection:
        load_view(connection, batch(20), policy=POLICY)
    assert [name for name, _, _ in recorder.runs] == list(Statements._fields)
    texts = statements(engine.dialect.name, with_payload=False)._asdict()
    with reading(engine) as connection:
        load_view(
            connection, [], policy=POLICY
        )  # what the first statement sets for the transaction holds for its plans
        for name, asked, _ in recorder.runs[: len(Statements._fields)]:
            plan = _plan(connection, texts[name], {"asked": json.dumps(asked)})
            assert not re.search(r"SCAN access_|Seq Scan on model_|Bitmap", plan), f"{name}\n{plan}"
            assert re.search(r"SEARCH model_|Index (Only )?Scan.* on model_", plan), f"{name}\n{plan}"


def _plan(connection: Connection, statement: str, parameters: dict[str, str]) -> str:
    driver: Any = connection.connection.dbapi_connection
    if is_sqlite(connection):
        return "\n".join(row[3] for row in driver.execute(f"EXPLAIN QUERY PLAN {statement}", parameters))
    return "\n".join(row[0] for row in driver.execute(f"EXPLAIN {statement}", parameters))


def test_many_grants_on_a_folder_are_not_all_read(engine: Engine, recorder: Recorder) -> None:
    asked = [question(0, "folder", 0)]
    with reading(engine) as connection:
        view = load_view(connection, asked, policy=POLICY)
    decision = decide(view, asked[0], NOW, POLICY)
    assert (decision.rule, decision.access_role) == (Rule.GROUP_GRANT, AccessRole.VIEWER)
    assert recorder.group_grants == MAX_INLINE_GRANTS + 1
    assert recorder.rows("exact_grants") == 1


def test_many_grants_of_a_user_are_not_all_read(engine: Engine, recorder: Recorder) -> None:
    asked = [question(9, "document", 0), question(9, "document", 1)]
    with reading(engine) as connection:
        view = load_view(connection, asked, policy=POLICY)
    assert decide(view, asked[0], NOW, POLICY).rule is Rule.OWN_GRANT
    assert decide(view, asked[1], NOW, POLICY).rule is Rule.RESTRICTED
    assert recorder.own_grants == MAX_INLINE_GRANTS + 1
    assert recorder.rows("exact_grants") <= 2


def test_many_grants_of_a_group_are_not_all_read(engine: Engine, recorder: Recorder) -> None:
    asked = [question(0, "document", 5)]
    with reading(engine) as connection:
        view = load_view(connection, asked, policy=POLICY)
    assert decide(view, asked[0], NOW, POLICY).rule is Rule.GROUP_GRANT
    assert recorder.group_grants + recorder.rows("exact_grants") <= 2 * MAX_INLINE_GRANTS


def test_a_hint_finds_the_grant_of_a_user_with_many(engine: Engine) -> None:
    acme = {"organization_id": "acme"}
    document = {**acme, "document_id": "lost", "folder_id": "missing", "access_type": "", "payload": "{}", "digest": ""}
    holder = {"user_id": "user-9", "organization_user_group_id": "", "access_role": "editor", "expires_at": None}
    with writing(engine) as connection:
        connection.execute(insert(tables.ACCESS_TABLES["document"]), [document])
        connection.execute(
            insert(tables.ACCESS_TABLES["grant"]), [{**acme, "folder_id": "folder-3", "document_id": "", **holder}]
        )
    policy = DecisionPolicy(decision_ttl=0, unknown_document="inherit_folder")
    asked = PlainQuestion(
        user_id="user-9", type="document", resource_id="lost", organization_id="acme", parent_folder_id="folder-3"
    )
    with reading(engine) as connection:
        view = load_view(connection, [asked], policy=policy)
    assert decide(view, asked, NOW, policy).rule is Rule.OWN_GRANT


def test_names_are_read_when_asked_for(engine: Engine) -> None:
    asked = [question(1, "document", 1)]
    for names, expected in ((True, "N"), (False, "")):
        with reading(engine) as connection:
            user = load_view(connection, asked, policy=POLICY, names=names).user("user-1")
        assert user is not None
        assert user.name == expected
        assert user.extra_fields.get("team") == ("red" if names else None)


def test_group_path_is_the_shortest_chain(engine: Engine) -> None:
    asked = [question(60, "document", 1)]
    with engine.begin() as connection:
        for group, member in (("group-1", "group-60"), ("group-2", "group-1"), ("group-3", "group-2")):
            row = {
                "organization_id": "acme",
                "organization_user_group_id": group,
                "user_id": "",
                "member_group_id": member,
            }
            connection.execute(insert(tables.ACCESS_TABLES["groupMember"]), [row])
    with reading(engine) as connection:
        view = load_view(connection, asked, policy=POLICY)
    path = view.group_path("acme", "user-60", "group-3")
    assert [(edge.user_id or edge.member_group_id, edge.organization_user_group_id) for edge in path] == [
        ("user-60", "group-60"),
        ("group-60", "group-1"),
        ("group-1", "group-2"),
        ("group-2", "group-3"),
    ]
    assert view.group_path("acme", "user-60", "group-99") == ()


def test_text_that_databases_cannot_store_is_unknown(engine: Engine) -> None:
    asked = [
        PlainQuestion(user_id="user-1\0", type="document", resource_id="\ud800", organization_id="acme"),
        PlainQuestion(user_id='"user\\u0000', type="folder", resource_id="'; --", organization_id="acme"),
        question(4, "context", 4, context={"page": "7\0"}),
    ]
    with reading(engine) as connection:
        view = load_view(connection, asked, policy=POLICY)
    assert not any(decide(view, each, NOW, POLICY).has_access for each in asked)


def test_loader_reads_organizations_and_folders_of_a_revision_once(engine: Engine, recorder: Recorder) -> None:
    load = AccessViewLoader(engine, POLICY)
    load(batch(50))
    recorder.runs.clear()
    load([question(n % USERS, "document", n * 7 % DOCUMENTS) for n in range(10, 40)])
    assert not {"organizations", "folders"} & {name for name, _, _ in recorder.runs}


def test_loader_clears_its_cache_with_the_revision(engine: Engine) -> None:
    load = AccessViewLoader(engine, POLICY)
    asked = [question(3, "folder", 3)]
    assert decide(load(asked), asked[0], NOW, POLICY).has_access
    with writing(engine) as connection:
        connection.execute(text("DELETE FROM model_grant"))
        connection.execute(insert(tables.RevisionRow), [{"revision": 1000, "created_at": 0, "changes": "{}"}])
    view = load(asked)
    assert view.revision == 1000
    assert not decide(view, asked[0], NOW, POLICY).has_access


def test_loader_clears_its_cache_after_a_restored_backup(engine: Engine) -> None:
    load = AccessViewLoader(engine, POLICY)
    asked = [question(3, "folder", 3)]
    assert decide(load(asked), asked[0], NOW, POLICY).has_access
    with writing(engine) as connection:
        connection.execute(text("DELETE FROM model_grant"))
        connection.execute(text("UPDATE access_revision SET created_at = 5 WHERE revision = 999"))
    assert not decide(load(asked), asked[0], NOW, POLICY).has_access


def test_loader_does_not_cache_unknown_organizations(engine: Engine) -> None:
    def asked(name: str) -> PlainQuestion:
        return PlainQuestion(user_id="user-1", type="organization", resource_id=name, organization_id=name)

    load = AccessViewLoader(engine, POLICY)
    load([asked("acme")])
    known = len(load._structure.organizations)
    for call in range(20):
        names = [f"invented-{call}-{number}" for number in range(50)]
        view = load([asked(name) for name in names])
        assert all(view.organization(name) is None for name in names)
    assert len(load._structure.organizations) == known == 1


def test_size_of_the_cache_is_limited(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_CACHED", 10)
    load = AccessViewLoader(engine, POLICY)
    for number in range(200):
        load([question(number, "folder", number)])
        assert len(load._structure.folders) <= 10 + 20


@pytest.fixture
def postgres(engine: Engine) -> Engine:
    if is_sqlite(engine):
        pytest.skip("SQLite always reads in a snapshot")
    return engine


def test_cached_structure_needs_one_prepared_statement(postgres: Engine, recorder: Recorder) -> None:
    with writing(postgres) as connection:
        connection.execute(text("DELETE FROM model_grant WHERE organization_user_group_id LIKE 'crowd-%'"))
    load = AccessViewLoader(postgres, POLICY)
    asked = [question(5, "document", number) for number in range(20)]
    load(asked)
    recorder.runs.clear()
    for _ in range(20):
        load(asked)
    assert [name for name, _, _ in recorder.runs] == ["batch"] * 20
    assert load._direct is not None
    with load._direct.cursor() as cursor:
        cursor.execute(
            "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement LIKE '%model_user%'"
        )
        assert cursor.fetchall() == [(21, 0)]


def test_plans_for_empty_tables_use_lookups(postgres: Engine) -> None:
    with writing(postgres) as connection:
        connection.execute(text("TRUNCATE model_grant, model_document, model_folder, model_user, model_membership"))
    direct = DirectConnections(postgres, CONNECTION_SETTINGS)
    for statement in direct_statements():
        with direct.cursor() as cursor:
            cursor.execute(f"PREPARE one(text) AS {statement}")
            cursor.execute("EXPLAIN EXECUTE one('{}')")
            plan = "\n".join(row[0] for row in cursor.fetchall())
            cursor.execute("DEALLOCATE one")
        assert not re.search(r"Seq Scan on model_|Bitmap", plan), plan


def test_statements_of_two_revisions_are_never_mixed(postgres: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory is read again between the first statement of a batch and the next."""
    asked = [question(3, "folder", 3)]
    original = loader._load_ancestries
    moved: list[int] = []

    def load_ancestries(*arguments: Any) -> None:
        if not moved:
            moved.append(1000)
            with writing(postgres) as connection:
                connection.execute(text("DELETE FROM model_grant"))
                connection.execute(text("DELETE FROM model_membership"))
                connection.execute(insert(tables.RevisionRow), [{"revision": 1000, "created_at": 0, "changes": "{}"}])
        original(*arguments)

    monkeypatch.setattr(loader, "_load_ancestries", load_ancestries)
    view = AccessViewLoader(postgres, POLICY)(asked)
    assert moved == [1000]
    assert view.revision == 1000
    assert not decide(view, asked[0], NOW, POLICY).has_access


def test_broken_idle_connections_are_replaced(postgres: Engine) -> None:
    load = AccessViewLoader(postgres, POLICY)
    asked = [question(3, "folder", 3)]
    ended = 0
    for _ in range(4):
        assert decide(load(asked), asked[0], NOW, POLICY).has_access
        with postgres.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            ended += connection.execute(
                text(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'usher'"
                )
            ).scalar_one()
    assert ended >= 2
    assert decide(load(asked), asked[0], NOW, POLICY).has_access


def test_connections_end_with_the_engine_and_cannot_write(postgres: Engine) -> None:
    load = AccessViewLoader(postgres, POLICY)
    load([question(3, "folder", 3)])
    assert load._direct is not None
    with pytest.raises(DBAPIError, match="read-only"), load._direct.cursor() as cursor:
        cursor.execute("DELETE FROM model_grant")
    count = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND application_name = 'usher'"
    )
    postgres.dispose()
    with postgres.connect() as connection:
        until = time.monotonic() + 10
        while connection.execute(count).scalar_one() and time.monotonic() < until:
            time.sleep(0.05)
            connection.rollback()
        assert connection.execute(count).scalar_one() == 0


def test_revision_is_zero_before_the_directory_was_read(engine: Engine) -> None:
    with writing(engine) as connection:
        connection.execute(text("DELETE FROM access_revision"))
    assert AccessViewLoader(engine, POLICY)([question(1, "document", 1)]).revision == 0


def test_hint_at_an_uncached_folder_is_loaded(engine: Engine) -> None:
    load = AccessViewLoader(engine, POLICY)
    # user-3 is in group-3; the folder lets the group in.
    with writing(engine) as connection:
        connection.execute(
            insert(tables.ACCESS_TABLES["grant"]),
            [
                {
                    "organization_id": "acme",
                    "folder_id": "folder-1999",
                    "document_id": "",
                    "user_id": "",
                    "organization_user_group_id": "group-3",
                    "access_role": "editor",
                    "expires_at": None,
                }
            ],
        )
    hinting = PlainQuestion(
        user_id="user-3",
        type="document",
        resource_id="unheard-of",
        organization_id="acme",
        parent_folder_id="folder-1999",
    )
    assert not decide(load([hinting]), hinting, NOW, POLICY).has_access
    asked = question(3, "folder", 1999)
    assert decide(load([asked]), asked, NOW, POLICY).has_access
