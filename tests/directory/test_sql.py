"""SQL sources: queries, values, incremental reads, parts, and errors."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from app.access.kinds import KINDS
from app.access.records import AccessRole, Document, Grant
from app.directory.bounded import BoundedSource
from app.directory.casting import plural, record_from_object
from app.directory.columns import build_row_id, split_row_id
from app.directory.connector import DirectoryObject, ReadError, RequestedFields
from app.directory.connectors.sql import snapshot
from app.directory.connectors.sql.errors import read_error
from app.directory.connectors.sql.rows import check_columns
from app.directory.connectors.sql.settings import Query
from app.directory.connectors.sql.source import SqlConnector, SqlDatabase, SqlSource
from app.directory.field_names import missing_fields
from app.directory.fields import MalformedRecordError
from app.directory.source import (
    Answered,
    End,
    Found,
    Gone,
    Malformed,
    MalformedTally,
    ObjectId,
    Part,
    ReadRequest,
    Verdict,
)
from app.directory.testing.world import read
from tests.directory.databases import SORTS, Database

pytestmark = [pytest.mark.process]

GROUPS = 'SELECT tenant AS "organizationId", id AS "organizationUserGroupId", title AS "groupName" FROM doc'
DOCUMENTS = 'SELECT tenant AS "organizationId", id AS "documentId", title AS "documentName" FROM doc'


@pytest.fixture(scope="module", params=SORTS)
def database(request: pytest.FixtureRequest, standing_database: Callable[[str], Database]) -> Database:
    database = standing_database(request.param)
    database.run("CREATE TABLE doc (tenant VARCHAR(100), id BIGINT, title TEXT, changed BIGINT, gone INTEGER)")
    database.run("CREATE TABLE doc_deleted (tenant VARCHAR(100), id BIGINT, changed BIGINT)")
    return database


@pytest.fixture
def docs(database: Database) -> Database:
    """A table of three documents."""
    database.run("DELETE FROM doc", "DELETE FROM doc_deleted")
    database.put(
        (
            "INSERT INTO doc VALUES (:tenant, :id, :title, :changed, 0)",
            [{"tenant": "acme", "id": number, "title": f"D{number}", "changed": number} for number in (1, 2, 3)],
        )
    )
    return database


def records(steps: Sequence[Any]) -> list[Any]:
    return [step.record for step in steps if isinstance(step, Found)]


def all_steps(steps: Iterator[Any]) -> list[Any]:
    """All steps, of whatever sort."""
    return list(steps)


def the_end(steps: Sequence[Any]) -> End:
    assert isinstance(steps[-1], End)
    return steps[-1]


def failure(source: SqlSource) -> str:
    """The reason of a read that fails without records."""
    [end] = read(source)
    assert isinstance(end, End)
    assert end.verdict is Verdict.FAILED
    return end.reason


def test_rows_are_records_with_origin_and_place(docs: Database) -> None:
    steps = read(docs.source({"documents": DOCUMENTS + " ORDER BY id -- the last\n;"}))
    assert isinstance(steps[0], Found), steps
    assert steps[0] == Found(
        Document(organization_id="acme", document_id="1", document_name="D1"),
        "documents, row 1",
        steps[0].origin,
    )
    assert steps[0].origin is not None
    assert steps[0].origin.object == ObjectId("documents", "acme/1")
    assert [record.document_id for record in records(steps)] == ["1", "2", "3"]
    assert the_end(steps) == End(Verdict.COMPLETE)


def test_column_values_become_field_values(docs: Database) -> None:
    moment = {"sqlite": "'2027-01-31 18:00:00'", "postgresql": "TIMESTAMP '2027-01-31 18:00:00'"}.get(
        docs.sort, "CAST('2027-01-31 18:00:00' AS DATETIME)"
    )
    [grant] = records(
        read(
            docs.source(
                {
                    "grants": 'SELECT 7 AS "organizationId", 8.0 AS "documentId", 9 AS "userId", \'viewer\' AS'
                    f' "accessRole", {moment} AS "expiresAt", \'a:b %s :c\' AS "x-note"'
                }
            )
        )
    )
    assert grant == Grant(
        organization_id="7",
        document_id="8.0" if docs.sort == "sqlite" else "8",
        user_id="9",
        access_role=AccessRole.VIEWER,
        expires_at=datetime(2027, 1, 31, 18, tzinfo=UTC),
    )
    flags = 'SELECT \'o\' AS "organizationId", \'O\' AS "organizationName", {} AS "disabled"'
    assert [
        records(read(docs.source({"organizations": flags.format(value)})))[0].disabled for value in ("0", "1", "1 = 1")
    ] == [False, True, True]


@pytest.mark.parametrize("more", ["", ", 'red' AS \"colour\"", ', gone AS "disabled"'], ids=["plain", "further", "odd"])
def test_batches_equal_single_rows(docs: Database, more: str) -> None:
    odd = ["tenant", "'a/b%'", "''", "NULL", "'" + "x" * 300 + "'", "'Ä' || id", "'x' || id", "'  '"]
    if docs.sort == "mysql":
        odd = [text.replace("'Ä' || id", "CONCAT('Ä', id)").replace("'x' || id", "CONCAT('x', id)") for text in odd]
    select = 'SELECT {} AS "organizationId", id AS "documentId", title AS "documentName", gone{} FROM doc'
    query = Query("documents", " UNION ALL ".join(select.format(text, more) for text in odd), deleted="gone")
    docs.run("UPDATE doc SET gone = 1 WHERE id = 3")
    database = SqlDatabase(docs.read_url, [query])
    with database.open(ReadRequest(), {}) as read, database.open(ReadRequest(), {}) as again:
        [rows] = read.queries
        together = list(read.steps([rows], MalformedTally()))
        assert together == list(rows.steps(again.requested(rows), report_deleted=False))
    assert len(records(together)) == 12
    assert len([step for step in together if isinstance(step, Malformed)]) == 4


@pytest.mark.parametrize(
    ("queries", "reason"),
    [
        (
            {"documents": 'SELECT tenant AS "organizationId", id AS "documentId", id AS "documentId" FROM doc'},
            "documentId",
        ),
        ({"documents": 'SELECT tenant AS "organizationId", id AS "documentId" FROM doc'}, "lacks documentName"),
        ({"documents": DOCUMENTS.replace("documentName", "DocumentName")}, "did you mean documentName"),
        ({"grants": DOCUMENTS}, "is not a field of a grant"),
        ({"grants": 'SELECT tenant AS "organizationId", id AS "documentId" FROM doc'}, "one of userId or"),
        ({"documents": DOCUMENTS, "folders": "SELECT nothing FROM doc"}, "queries.folders: "),
    ],
)
def test_unusable_columns_fail_before_a_row_is_read(docs: Database, queries: Mapping[str, str], reason: str) -> None:
    reason_text = failure(docs.source(queries))
    assert reason_text.startswith("queries.")
    assert reason in reason_text


def test_folded_names_of_postgresql_get_a_hint(docs: Database) -> None:
    if docs.sort != "postgresql":
        pytest.skip("names stay as they are written")
    reason_text = failure(docs.source({"documents": DOCUMENTS.replace('"', "")}))
    assert reason_text.endswith(
        "has no column 'organizationId', because PostgreSQL folds unquoted names to lower case; write AS"
        ' "organizationId"'
    )
    # What has capital letters stood in quotes.
    reason_text = failure(docs.source({"documents": DOCUMENTS.replace("documentName", "documentNam")}))
    assert reason_text.endswith("did you mean documentName?")
    # No column was folded.
    database = SqlDatabase(docs.read_url, [Query("people", "SELECT id FROM doc", key=("number",))])
    with pytest.raises(ReadError, match=r"has no column 'number'; it has 'id'$"):
        database.open(ReadRequest(), {"people": frozenset({"id"})}).__enter__()


def test_a_key_may_be_spelled_as_a_field_that_the_query_does_not_provide() -> None:
    query = Query("memberships", "SELECT 1", key=("userid",))
    check_columns(query, ["userid", "organizationId", "userAlias", "accessRole"], "postgresql")


@pytest.mark.parametrize(
    ("problem", "advice"),
    [
        ('root certificate file "/x.pem" does not exist', "let sslrootcert in url name a PEM file with"),
        ('could not read root certificate file "/x": no certificate or crl found', "let sslrootcert in url name a PEM"),
        ("SSL error: certificate verify failed", "in url name the authority of the server's certificate"),
        (
            'server certificate for "b" does not match host name "a"',
            "let url name the host that the certificate is for",
        ),
        ("server does not support SSL, but SSL was required", "check sslmode and the certificates in url"),
    ],
)
def test_certificate_errors_name_the_part_of_the_url(problem: str, advice: str) -> None:
    """The messages are libpq's, which has no codes for them."""
    text = f'connection failed: connection to server at "127.0.0.1", port 5432 failed: {problem}'
    error = OperationalError(None, None, RuntimeError(text))
    assert advice in str(read_error(error, make_url("postgresql+psycopg://u:hunter2@a/x")))


@pytest.mark.parametrize(
    "original",
    [
        RuntimeError('connection failed: FATAL: password authentication failed for user "u"'),
        RuntimeError(1045, "Access denied for user 'u'@'localhost' (using password: YES)"),
    ],
)
def test_refused_logins_are_recognized(original: Exception) -> None:
    """They stop after three of them: MySQL locks accounts, too."""
    url = make_url("postgresql+psycopg://u:hunter2@a/x")
    trouble = read_error(OperationalError(None, None, original), url)
    assert trouble.login_refused
    assert str(trouble).startswith("login refused: url: ")
    other = RuntimeError(2003, "Can't connect to MySQL server")
    assert str(read_error(OperationalError(None, None, other), url)).startswith("url: ")


def test_a_missing_certificate_file_is_named(docs: Database) -> None:
    if docs.sort != "mysql":
        pytest.skip("SQLite has no certificates, and the tests' PostgreSQL no TLS")
    database = SqlDatabase(docs.url.update_query_dict({"ssl_ca": "/nowhere.pem"}), [Query("documents", DOCUMENTS)])
    reason_text = failure(SqlSource("app", database))
    assert reason_text == (
        "url: No such file or directory; let url name files that exist and that this user may read: ssl_ca /nowhere.pem"
    )


def test_the_needed_fields_are_those_that_records_need() -> None:
    for kind in KINDS.values():
        with pytest.raises(MalformedRecordError):
            record_from_object({}, kind.name)
        assert missing_fields(kind.name, [])
        assert not missing_fields(kind.name, kind.field_names)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM doc",
        "DELETE FROM doc RETURNING tenant",
        "WITH d AS (DELETE FROM doc RETURNING id) SELECT * FROM d",
        "SELECT 1; DELETE FROM doc",
        "SELECT 1) q; COMMIT; DELETE FROM doc; SELECT * FROM (SELECT 1",
        "UPDATE doc SET title = 'x'",
        "DROP TABLE doc",
    ],
)
def test_no_query_changes_anything(docs: Database, statement: str) -> None:
    assert "queries.documents" in failure(docs.source({"documents": statement}))
    assert len(records(read(docs.source({"documents": DOCUMENTS})))) == 3


def test_the_transaction_is_read_only(docs: Database) -> None:
    """The database refuses writes that the check of the columns does not detect."""
    from app.directory.connector import ReadError
    from app.directory.connectors.sql.snapshot import open_snapshot

    for statement in ("DELETE FROM doc", "INSERT INTO doc VALUES ('x', 9, 'x', 9, 0)"):
        with open_snapshot(docs.read_url, connect_timeout=5, answer_timeout=5) as snapshot:  # noqa: SIM117 - of it alone
            with pytest.raises(ReadError):
                list(snapshot.stream("documents", statement))
    assert len(records(read(docs.source({"documents": DOCUMENTS})))) == 3


def test_all_queries_see_one_snapshot(docs: Database) -> None:
    """What is written while the first query is read is not seen by the second."""
    source = docs.source(
        {
            "documents": DOCUMENTS,
            "groups": GROUPS,
        }
    )
    steps = source.read()
    first = next(steps)
    writer = create_engine(docs.url, connect_args={"timeout": 0.1} if docs.sort == "sqlite" else {})
    try:
        with writer.begin() as connection:
            connection.execute(text("INSERT INTO doc VALUES ('acme', 4, 'D4', 4, 0)"))
    except Exception:  # noqa: BLE001 - SQLite without a write-ahead log keeps the writer out meanwhile
        assert docs.sort == "sqlite"
    writer.dispose()
    found = [first, *steps]
    assert len(records(found)) == 6
    assert the_end(found).verdict is Verdict.COMPLETE


# Changes.


def followed(database: Database, **settings: object) -> SqlSource:
    query = Query("documents", DOCUMENTS.replace(" FROM", ", changed, gone FROM"), cursor="changed", **settings)  # type: ignore[arg-type]
    return database.source([query])


def test_changes_are_the_rows_that_grew(docs: Database) -> None:
    source = followed(docs, deleted="gone")
    cursor = the_end(read(source)).cursor
    assert cursor
    steps = read(source, ReadRequest(since=cursor))
    assert the_end(steps) == End(Verdict.COMPLETE, cursor=cursor, answered=Answered.CHANGES)
    docs.run(
        "UPDATE doc SET title = 'new', changed = 5 WHERE id = 1", "UPDATE doc SET gone = 1, changed = 6 WHERE id = 2"
    )
    steps = read(source, ReadRequest(since=cursor))
    assert {record.document_name for record in records(steps)} == {"new", "D3"}
    assert [step for step in steps if isinstance(step, Gone)] == [Gone(ObjectId("documents", "acme/2"))]
    steps = read(source)
    assert {record.document_name for record in records(steps)} == {"new", "D3"}
    assert not any(isinstance(step, Gone) for step in steps)


def test_deleted_keys_are_looked_up(docs: Database) -> None:
    """A key that is in use again is no deletion."""
    source = followed(docs, deleted='SELECT tenant AS "organizationId", id AS "documentId", changed FROM doc_deleted')
    cursor = the_end(read(source)).cursor
    docs.run(
        "DELETE FROM doc WHERE id = 1",
        "INSERT INTO doc_deleted VALUES ('acme', 1, 4)",
        "INSERT INTO doc_deleted VALUES ('acme', 3, 4)",
    )
    steps = read(source, ReadRequest(since=cursor))
    assert [step for step in steps if isinstance(step, Gone)] == [Gone(ObjectId("documents", "acme/1"))]
    assert "3" in {record.document_id for record in records(steps)}


def test_a_database_behind_the_cursor_leads_to_a_full_read(docs: Database) -> None:
    source = followed(docs, deleted="gone")
    cursor = the_end(read(source)).cursor
    docs.run("DELETE FROM doc WHERE id = 3")
    [end] = read(source, ReadRequest(since=cursor))
    assert isinstance(end, End)
    assert end.answered is Answered.CURSOR_REFUSED
    assert "documents" in end.reason


@pytest.mark.parametrize("deleted", ["gone", "written down"])
@pytest.mark.parametrize("undone", ["a row added", "a row changed"])
def test_a_restored_database_with_new_rows_leads_to_a_full_read(docs: Database, deleted: str, undone: str) -> None:
    """Its newest row is newer than the cursor by then."""
    written_down = 'SELECT tenant AS "organizationId", id AS "documentId", changed FROM doc_deleted'
    source = followed(docs, deleted="gone" if deleted == "gone" else written_down)
    first = the_end(read(source)).cursor
    docs.run(
        "INSERT INTO doc VALUES ('acme', 9, 'lost', 4, 0)"
        if undone == "a row added"
        else "UPDATE doc SET title = 'lost', changed = 4 WHERE id = 1"
    )
    steps = read(source, ReadRequest(since=first))
    assert "lost" in {record.document_name for record in records(steps)}
    cursor = the_end(steps).cursor
    # Restored to what it was before that, and used for a while.
    docs.run("DELETE FROM doc WHERE id = 9", "UPDATE doc SET title = 'D1', changed = 1 WHERE id = 1")
    docs.run("UPDATE doc SET changed = 5 WHERE id = 2", "INSERT INTO doc VALUES ('acme', 10, 'after', 6, 0)")
    [end] = read(source, ReadRequest(since=cursor))
    assert isinstance(end, End)
    assert end.answered is Answered.CURSOR_REFUSED
    assert ("acme/9" if undone == "a row added" else "acme/1") in end.reason
    assert "lost" not in {record.document_name for record in records(read(source))}


def test_a_deleted_remembered_row_is_no_restore(docs: Database) -> None:
    source = followed(docs, deleted='SELECT tenant AS "organizationId", id AS "documentId", changed FROM doc_deleted')
    cursor = the_end(read(source)).cursor
    docs.run("DELETE FROM doc WHERE id = 3", "INSERT INTO doc_deleted VALUES ('acme', 3, 4)")
    steps = read(source, ReadRequest(since=cursor))
    assert the_end(steps).verdict is Verdict.COMPLETE
    docs.run("UPDATE doc SET changed = 5 WHERE id = 2")
    assert the_end(read(source, ReadRequest(since=the_end(steps).cursor))).verdict is Verdict.COMPLETE


def test_rows_without_a_cursor_are_read_each_time(docs: Database) -> None:
    source = followed(docs, deleted="gone")
    docs.run("INSERT INTO doc VALUES ('acme', 9, 'null', NULL, 0)")
    cursor = the_end(read(source)).cursor
    assert {record.document_name for record in records(read(source, ReadRequest(since=cursor)))} == {"D3", "null"}


def test_overlap_includes_late_commits(docs: Database) -> None:
    source = followed(docs, deleted="gone", overlap=1)
    cursor = the_end(read(source)).cursor
    docs.run("INSERT INTO doc VALUES ('acme', 9, 'late', 2, 0)")
    assert {record.document_name for record in records(read(source, ReadRequest(since=cursor)))} == {"D2", "D3", "late"}


def test_a_row_from_the_future_hides_nothing(docs: Database) -> None:
    now = datetime(2026, 11, 22, 3, tzinfo=UTC)
    kind = {"postgresql": "TIMESTAMPTZ", "mysql": "DATETIME", "mariadb": "DATETIME"}.get(docs.sort, "TEXT")
    docs.run("DROP TABLE IF EXISTS timed", f"CREATE TABLE timed (id VARCHAR(10), at {kind})")

    def written(moment: datetime) -> str:
        return f"{moment:%Y-%m-%d %H:%M:%S}" + ("+00" if docs.sort == "postgresql" else "")

    docs.put(
        (
            "INSERT INTO timed VALUES (:id, :at)",
            [
                {"id": "old", "at": written(now - timedelta(days=3))},
                {"id": "now", "at": written(now - timedelta(minutes=1))},
                {"id": "ahead", "at": written(now + timedelta(days=800))},
            ],
        )
    )
    query = Query(
        "users",
        'SELECT id AS "userId", id AS "name", id AS "email", at FROM timed',
        cursor="at",
        overlap=30,
    )
    source = docs.source([query], clock=lambda: now)
    cursor = the_end(read(source)).cursor
    docs.put(("INSERT INTO timed VALUES (:id, :at)", [{"id": "new", "at": written(now)}]))
    assert {record.name for record in records(read(source, ReadRequest(since=cursor)))} == {"now", "ahead", "new"}


@pytest.mark.parametrize("at", ["2026-02-30 00:00:00", "0001-01-01 00:00:00"])
def test_a_cursor_without_an_earlier_time_leads_to_a_full_read(docs: Database, at: str) -> None:
    if docs.sort != "sqlite":
        pytest.skip("only SQLite stores times as text")
    docs.run("DROP TABLE IF EXISTS timed", "CREATE TABLE timed (id TEXT, at TEXT)")
    docs.put(("INSERT INTO timed VALUES ('ada', :at)", [{"at": at}]))
    query = Query("users", 'SELECT id AS "userId", id AS "name", id AS "email", at FROM timed', cursor="at")
    source = docs.source([query], clock=lambda: datetime(2026, 11, 22, 3, tzinfo=UTC))
    cursor = the_end(read(source)).cursor
    assert [record.name for record in records(read(source, ReadRequest(since=cursor)))] == ["ada"]


def test_a_text_cursor_column_fails_the_read(docs: Database) -> None:
    [*_, end] = read(docs.source([Query("documents", DOCUMENTS, cursor="documentName")]))
    assert isinstance(end, End)
    assert end.verdict is Verdict.FAILED
    assert "neither a time nor a whole number" in end.reason


# Parts.


def test_missing_rows_of_a_part_are_gone(docs: Database) -> None:
    docs.run("INSERT INTO doc VALUES ('other', 7, 'D7', 7, 0)")
    source = docs.source({"documents": DOCUMENTS})
    ids = ("other/7", "acme/3", "acme/99", "acme/x", "acme/", "o%2Fther/7")
    steps = read(source, ReadRequest(part=Part(objects=tuple(ObjectId("documents", one) for one in ids))))
    assert the_end(steps) == End(Verdict.COMPLETE, answered=Answered.PART)
    assert {record.document_id for record in records(steps)} == {"7", "3"}
    assert {step.object.id for step in steps if isinstance(step, Gone)} == {*ids} - {"other/7", "acme/3"}
    steps = read(source, ReadRequest(part=Part(organization_ids=("other", "nowhere"))))
    assert {record.document_id for record in records(steps)} == {"7"}
    assert the_end(steps).answered is Answered.PART


def test_a_part_has_the_rows_that_name_its_users_by_an_alias(docs: Database) -> None:
    docs.run("UPDATE doc SET title = 'D2@Acme.Example' WHERE id = 2")
    source = docs.source({"grants": DOCUMENTS.replace('"documentName"', '"userAlias"')})
    steps = read(source, ReadRequest(part=Part(user_ids=("two",), aliases=("d2@acme.example", "two"))))
    assert the_end(steps) == End(Verdict.COMPLETE, answered=Answered.PART)
    assert [record.user_alias for record in records(steps)] == ["d2@acme.example"]


def test_keys_that_cannot_be_looked_up_lead_to_a_full_read(docs: Database) -> None:
    """A row that is not found counts as gone: where it might be missed, all is read."""
    source = docs.source({"documents": DOCUMENTS})
    steps = read(source, ReadRequest(part=Part(objects=(ObjectId("documents", "sha256:" + "0" * 64),))))
    assert the_end(steps) == End(Verdict.COMPLETE)
    assert len(records(steps)) == 3


@pytest.mark.parametrize("parts", [("a",), ("a", "b"), ("a/b", "%2F", ""), ("", "x%", "ü"), ("100%",)])
def test_ids_can_be_parsed_to_keys(parts: tuple[str, ...]) -> None:
    assert split_row_id(build_row_id(parts), len(parts)) == parts
    assert len(build_row_id([part * 300 for part in ("x", *parts)])) < 256


# Objects.


def test_other_queries_yield_objects(docs: Database) -> None:
    query = Query("rows", "SELECT id, title, gone, NULL AS missing FROM doc ORDER BY id", key=("id",))
    connector = SqlConnector(SqlDatabase(docs.read_url, [query]).open)
    wanted = RequestedFields(attributes={"rows": frozenset({"title", "missing"})})
    steps = all_steps(connector.read(wanted))
    assert steps[0] == DirectoryObject(ObjectId("rows", "1"), {"title": "D1"}, "rows, row 1")
    assert steps[-1] == End(Verdict.COMPLETE)
    part = Part(objects=(ObjectId("rows", "2"), ObjectId("rows", "5")))
    steps = all_steps(connector.read(wanted, ReadRequest(part=part)))
    assert steps[0].id == ObjectId("rows", "2")
    assert steps[1] == Gone(ObjectId("rows", "5"))
    [end] = all_steps(connector.read(RequestedFields(attributes={"rows": frozenset({"titel"})})))
    assert "no column 'titel'" in end.reason
    assert list(connector.read(RequestedFields())) == [End(Verdict.COMPLETE)]


# What goes wrong.


def test_an_invalid_row_is_malformed_and_the_others_are_read(docs: Database) -> None:
    docs.run("INSERT INTO doc VALUES ('', 9, 'nobody''s', 9, 0)", "INSERT INTO doc VALUES ('acme', 10, 'D10', 9, 0)")
    steps = read(docs.source({"documents": DOCUMENTS}))
    assert the_end(steps) == End(Verdict.PARTIAL, "1 malformed row", except_malformed=True)
    assert [step.reason for step in steps if isinstance(step, Malformed)] == ["organizationId: is empty"]
    assert len(records(steps)) == 4


def test_a_lost_connection_fails_the_read(docs: Database) -> None:
    if docs.sort == "sqlite":
        pytest.skip("there is no server")
    # Far more than all buffers on the way hold.
    rows = "generate_series(1, 30000) n" if docs.sort == "postgresql" else "(SELECT seq AS n FROM seq_1_to_30000) s"
    query = f'SELECT n AS "userId", REPEAT(\'N\', 1000) AS "name", \'\' AS "email" FROM {rows}'
    steps = docs.source({"users": query}).read()
    for _ in range(10):
        assert isinstance(next(steps), Found)
    with create_engine(docs.url).connect() as connection:
        if docs.sort == "postgresql":
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'usher'"
                    " AND datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
        else:
            [connection_id] = connection.execute(
                text("SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
            ).scalars()
            connection.execute(text(f"KILL {connection_id}"))
    *_, end = steps
    assert isinstance(end, End)
    assert end.verdict is Verdict.FAILED
    assert end.reason.startswith("queries.users: ")


@pytest.mark.parametrize("after", [0, 400])
def test_a_silent_peer_fails_the_read(docs: Database, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "_GRACE", 0.2)
    if docs.between is None:
        pytest.skip("nothing comes between a file and its reader")
    docs.between.stall_after = after
    began = time.monotonic()
    try:
        reason = failure(docs.source({"documents": DOCUMENTS}, connect_timeout=2, answer_timeout=1))
    finally:
        docs.between.reset()
    assert time.monotonic() - began < 8
    assert "\n" not in reason


def test_a_slow_server_is_read_within_the_timeout_of_the_source(docs: Database) -> None:
    if docs.between is None:
        pytest.skip("nothing comes between a file and its reader")
    docs.between.delay = lambda: time.sleep(0.05)
    try:
        given_up = read(BoundedSource(docs.source({"documents": DOCUMENTS}), timeout=0.1))
        assert (the_end(given_up).verdict, records(given_up)) == (Verdict.FAILED, [])
        assert len(records(read(docs.source({"documents": DOCUMENTS})))) == 3
    finally:
        docs.between.reset()


def test_a_slow_query_fails_the_read(docs: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    if docs.sort == "sqlite":
        monkeypatch.setattr(snapshot, "_GRACE", 0.2)
    slow = {
        "postgresql": "SELECT pg_sleep(20)::text",
        "sqlite": "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT max(n)",
    }.get(docs.sort, "SELECT SLEEP(20)")
    rest = " FROM c" if docs.sort == "sqlite" else ""
    query = f'{slow} AS "userId", \'N\' AS "name", \'\' AS "email"{rest}'
    began, threads = time.monotonic(), threading.active_count()
    [end] = read(docs.source({"users": query}, answer_timeout=0.3))
    assert isinstance(end, End)
    assert "answer_timeout" in end.reason or "server" in end.reason
    assert time.monotonic() - began < 8
    assert threading.active_count() < threads + 5


def test_missing_drivers_and_dialects_are_named(tmp_path: Path) -> None:
    from app.directory.connectors.sql.settings import parse_source_url

    def reason_of(url: str) -> str:
        return failure(SqlSource("app", SqlDatabase(parse_source_url(url), [Query("documents", DOCUMENTS)])))

    assert "oracledb" in reason_of("oracle+oracledb://u:hunter2@h/x")
    assert "knows no database" in reason_of("cassowary://u:hunter2@h/x")


def test_kinds_are_named_in_the_plural() -> None:
    assert [Query(plural(kind), "SELECT 1").kind for kind in KINDS] == list(KINDS)


def test_rows_without_a_key_are_identified_by_all_values(docs: Database) -> None:
    connector = SqlConnector(SqlDatabase(docs.read_url, [Query("rows", "SELECT title FROM doc")]).open)
    wanted = RequestedFields(attributes={"rows": frozenset({"title"})})
    first, again = ([step.id for step in connector.read(wanted) if isinstance(step, DirectoryObject)] for _ in range(2))
    assert first == again
    assert len(set(first)) == 3
    [*steps, end] = connector.read(wanted, ReadRequest(part=Part(objects=(first[0],))))
    assert (len(steps), end) == (3, End(Verdict.COMPLETE))
