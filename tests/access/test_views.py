"""The views of the database and of the index, of large and odd access models."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, Table, event, insert, text

from app.access.decision.decide import DecisionPolicy, PlainQuestion, Rule, decide
from app.access.decision.view import AccessView
from app.access.index.file import IndexReader
from app.access.index.folders import Folders
from app.access.index.index import AccessIndex
from app.access.index.index_view import IndexView
from app.access.records import AccessRole
from app.access.revisions import REVISION
from app.access.sql_view import opened_sql_view
from app.access.tables import ACCESS_TABLES
from app.foundation.database.engine import is_sqlite, open_engine, writing
from app.foundation.database.tables import METADATA
from tests.tables import make_tables
from tests.worlds.database_copies import DatabaseCopy, copy_database

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
POLICY = DecisionPolicy(decision_ttl=0)
USERS = 2000
DOCUMENTS = 2000
FOLDERS = 2000
GROUPS = 200
CROWD = 3000
PAYLOAD = (
    '{"userId":"x","organizationId":"x","organizationUserGroupId":"x","folderId":"x","documentId":"x",'
    '"name":"N","email":"e@x.example","team":"red"}'
)

_COPIES: dict[str, DatabaseCopy] = {}
"""Dialect → the filled database."""

OpenView = Callable[[list[PlainQuestion]], AbstractContextManager[AccessView]]


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    opened = open_engine(database_url)
    make_tables(opened, METADATA)
    if opened.dialect.name in _COPIES:
        _COPIES[opened.dialect.name].restore_to(opened)
    else:
        with writing(opened) as connection:
            _fill(connection)
        _COPIES[opened.dialect.name] = copy_database(opened)
    yield opened
    opened.dispose()


def _fill(connection: Connection) -> None:
    """user-0 is in 50 groups, folder-0 is granted to 3,000 groups, and group-0 has grants on 2,000 documents."""

    def put(table: Table, rows: list[dict[str, Any]]) -> None:
        connection.execute(insert(table), rows)

    acme = {"organization_id": "acme"}
    described = {"payload": PAYLOAD, "digest": ""}
    put(
        ACCESS_TABLES["organization"],
        [
            {"organization_id": name, "access_type": "restricted", "disabled": False, **described}
            for name in ["acme", *(f"o-{number}" for number in range(500))]
        ],
    )
    put(ACCESS_TABLES["user"], [{"user_id": f"user-{n}", "disabled": False, **described} for n in range(USERS)])
    put(
        ACCESS_TABLES["membership"],
        [{**acme, "user_id": f"user-{n}", "access_role": "editor", "expires_at": None} for n in range(USERS)],
    )
    put(
        ACCESS_TABLES["group"],
        [{**acme, "organization_user_group_id": f"group-{n}", **described} for n in range(GROUPS)],
    )
    members = [(f"group-{n % GROUPS}", f"user-{n}", "") for n in range(1, USERS)]
    members += [(f"group-{n}", "user-0", "") for n in range(50)]
    members += [(f"group-{n}", "", f"group-{n // 2 + 100}") for n in range(150, GROUPS)]
    put(
        ACCESS_TABLES["groupMember"],
        [
            {**acme, "organization_user_group_id": group, "user_id": user, "member_group_id": member}
            for group, user, member in members
        ],
    )
    put(
        ACCESS_TABLES["folder"],
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
        ACCESS_TABLES["document"],
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
        ACCESS_TABLES["grant"],
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
        ACCESS_TABLES["contextGrant"],
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
    put(REVISION, [{"revision": n, "created_at": n, "changes": "{}"} for n in range(1, 1000)])


def question(user: int, kind: Any, resource: int | str, **more: Any) -> PlainQuestion:
    resource_id = f"{'document' if kind == 'context' else kind}-{resource}"
    return PlainQuestion(user_id=f"user-{user}", type=kind, resource_id=resource_id, organization_id="acme", **more)


@pytest.fixture
def index(engine: Engine, tmp_path: Path) -> AccessIndex:
    return AccessIndex(engine, tmp_path / "index", clock=lambda: NOW)


@pytest.fixture(params=["sql", "index"])
def open_view(request: pytest.FixtureRequest, engine: Engine, index: AccessIndex) -> OpenView:
    if request.param == "sql":
        return partial(opened_sql_view, engine)

    def opened(questions: list[PlainQuestion]) -> AbstractContextManager[AccessView]:
        index.update()
        return index.view(questions)

    return opened


def put_grant(engine: Engine, **grant: str) -> None:
    absent = dict.fromkeys(("folder_id", "document_id", "user_id", "organization_user_group_id"), "")
    row = {"organization_id": "acme", **absent, "access_role": "editor", "expires_at": None, **grant}
    with writing(engine) as connection:
        connection.execute(insert(ACCESS_TABLES["grant"]), [row])


def test_one_of_many_grants_on_a_folder_allows_access(open_view: OpenView) -> None:
    asked = question(0, "folder", 0)
    with open_view([asked]) as view:
        decision = decide(view, asked, NOW, POLICY)
    assert (decision.rule, decision.access_role) == (Rule.GROUP_GRANT, AccessRole.VIEWER)


def test_one_of_many_grants_of_a_user_allows_access(open_view: OpenView) -> None:
    asked = [question(9, "document", 0), question(9, "document", 1)]
    with open_view(asked) as view:
        assert [decide(view, each, NOW, POLICY).rule for each in asked] == [Rule.OWN_GRANT, Rule.RESTRICTED]


def test_one_of_many_grants_of_a_group_allows_access(open_view: OpenView) -> None:
    asked = question(0, "document", 5)
    with open_view([asked]) as view:
        assert decide(view, asked, NOW, POLICY).rule is Rule.GROUP_GRANT


def test_groups_are_looked_up_by_user(engine: Engine) -> None:
    plans: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def explain(*arguments: Any) -> None:
        connection, _, statement, parameters, *_ = arguments
        if "model_group_member" in statement:
            with closing(connection.connection.cursor()) as cursor:
                cursor.execute(f"EXPLAIN {'QUERY PLAN ' if is_sqlite(engine) else ''}{statement}", parameters)
                plans.append("\n".join(str(row[-1]) for row in cursor.fetchall()))

    with opened_sql_view(engine) as view:
        assert view.groups("acme", "user-9") == {"group-9": ""}
        view._load_groups("acme", ["user-10", "user-11"])
        assert view.groups("acme", "user-11") == {"group-11": ""}
    of_one, of_two = plans
    if is_sqlite(engine):
        for plan in plans:
            assert not re.search(r"SEARCH g .*\(organization_id=\?\)", plan), plan
        assert "json_each" in of_two
    else:
        assert re.search(r"Index Cond: .*user_id.* = 'user-9'", of_one), of_one
    assert "json" not in of_one


class CountedEntries:
    """Counts the lookups, and the bytes of the largest value."""

    def __init__(self, entries: IndexReader) -> None:
        self.entries = entries
        self.lookups = 0
        self.largest = 0

    def get(self, key: bytes) -> bytes | None:
        value = self.entries.get(key)
        self.lookups += 1
        self.largest = max(self.largest, len(value or b""))
        return value

    def items_below(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key, value in self.entries.items_below(prefix):
            self.lookups += 1
            yield key, value


def test_lookups_of_the_index_do_not_grow_with_grants(engine: Engine, index: AccessIndex) -> None:
    index.update()
    file = index._file
    assert file is not None
    with file.reading() as (entries, _):
        asked = [question(9, "document", 0), question(3, "folder", 0), question(3, "document", 17)]
        counted = CountedEntries(entries)
        view = IndexView(counted, 1, asked, Folders())
        for each in asked:
            decide(view, each, NOW, POLICY)
    assert counted.lookups <= 3 * 12
    assert counted.largest <= 1_000


def test_lookups_of_the_index_do_not_grow_with_context_fields(engine: Engine, index: AccessIndex) -> None:
    put_grant(engine, document_id="document-7", user_id="user-0")
    with writing(engine) as connection:
        row = {"organization_id": "acme", "user_id": "", "organization_user_group_id": "group-3", "field": "page"}
        granted = [{**row, "value": str(n), "document_id": "", "expires_at": None} for n in range(40)]
        connection.execute(insert(ACCESS_TABLES["contextGrant"]), granted)
    index.update()
    file = index._file
    assert file is not None
    for fields in (1, 200):
        asked = [question(0, "context", 7, context={"page": str(n)}) for n in range(40)]
        asked += [question(0, "context", 7, context={f"field-{n}": "1" for n in range(fields)})]
        with file.reading() as (entries, _):
            counted = CountedEntries(entries)
            view = IndexView(counted, 1, asked, Folders())
            assert {decide(view, each, NOW, POLICY).rule for each in asked[:40]} == {Rule.CONTEXT_GRANTS}
            assert decide(view, asked[-1], NOW, POLICY).rule is Rule.CONTEXT_NOT_COVERED
        assert counted.lookups <= 250


def test_hinted_folder_is_looked_up_among_many_grants(engine: Engine, open_view: OpenView) -> None:
    put_grant(engine, folder_id="folder-3", user_id="user-9")
    policy = DecisionPolicy(decision_ttl=0, unknown_document="inherit_folder")
    asked = PlainQuestion(
        user_id="user-9", type="document", resource_id="new", organization_id="acme", parent_folder_id="folder-3"
    )
    with open_view([asked]) as view:
        assert decide(view, asked, NOW, policy).rule is Rule.OWN_GRANT


def test_group_path_is_the_shortest_chain(engine: Engine, open_view: OpenView) -> None:
    with writing(engine) as connection:
        for group, member in (("group-1", "group-60"), ("group-2", "group-1"), ("group-3", "group-2")):
            row = {"organization_user_group_id": group, "user_id": "", "member_group_id": member}
            connection.execute(insert(ACCESS_TABLES["groupMember"]), [{"organization_id": "acme", **row}])
    with open_view([question(60, "document", 1)]) as view:
        path = view.group_path("acme", "user-60", "group-3")
        assert view.group_path("acme", "user-60", "group-99") == []
    assert [(edge.user_id or edge.member_group_id, edge.organization_user_group_id) for edge in path] == [
        ("user-60", "group-60"),
        ("group-60", "group-1"),
        ("group-1", "group-2"),
        ("group-2", "group-3"),
    ]


def test_text_that_databases_cannot_store_is_unknown(open_view: OpenView) -> None:
    asked = [
        PlainQuestion(user_id="user-1\0", type="document", resource_id="\ud800", organization_id="acme"),
        PlainQuestion(user_id='"user\\u0000', type="folder", resource_id="'; --", organization_id="acme"),
        question(4, "context", 4, context={"page": "7\0"}),
        question(4, "context", 4, context={"\ud800": "7"}),
    ]
    with open_view(asked) as view:
        assert not any(decide(view, each, NOW, POLICY).has_access for each in asked)


@pytest.mark.parametrize(
    "id_", ["\x01", "\x02", "a\x01b", "\x02\x03", "\x02\x02", "\x02\x04", "é" * 200, "d" * 512, "x" * 71 + "\x01"]
)
def test_ids_with_separators_and_long_ids_are_distinguished(engine: Engine, open_view: OpenView, id_: str) -> None:
    described = {"payload": PAYLOAD, "digest": ""}
    acme = {"organization_id": "acme", **described}
    other = id_[1:] + "!"
    rows: dict[Table, list[dict[str, Any]]] = {
        ACCESS_TABLES["user"]: [{"user_id": each, "disabled": False, **described} for each in (id_, other)],
        ACCESS_TABLES["folder"]: [{**acme, "folder_id": id_, "parent_folder_id": "", "access_type": ""}],
        ACCESS_TABLES["document"]: [
            {**acme, "document_id": each, "folder_id": id_, "access_type": "restricted"} for each in (id_, other)
        ],
        ACCESS_TABLES["group"]: [{**acme, "organization_user_group_id": id_}],
        ACCESS_TABLES["groupMember"]: [
            {"organization_id": "acme", "organization_user_group_id": id_, "user_id": id_, "member_group_id": ""}
        ],
    }
    with writing(engine) as connection:
        for table, values in rows.items():
            connection.execute(insert(table), values)
    put_grant(engine, document_id=id_, organization_user_group_id=id_)
    put_grant(engine, document_id=other, user_id=id_)
    asked = [
        PlainQuestion(user_id=user, type="document", resource_id=document, organization_id="acme")
        for user in (id_, other)
        for document in (id_, other)
    ]
    with open_view(asked) as view:
        rules = [decide(view, each, NOW, POLICY).rule for each in asked]
    assert rules == [Rule.GROUP_GRANT, Rule.OWN_GRANT, Rule.RESTRICTED, Rule.RESTRICTED]


def test_names_are_in_the_view_of_the_database(engine: Engine) -> None:
    with opened_sql_view(engine) as view:
        user = view.user("user-1")
    assert user is not None
    assert (user.name, user.extra_fields["team"]) == ("N", "red")


def test_revision_is_zero_before_the_directory_was_read(engine: Engine, open_view: OpenView) -> None:
    with writing(engine) as connection:
        connection.execute(text("DELETE FROM access_revision"))
    with open_view([]) as view:
        assert view.revision == 0
