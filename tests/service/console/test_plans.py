"""Tests of query plans: those of every statement of every page.

The statements of each page in ``PAGES`` are recorded and explained. No large table is scanned, nothing is sorted that
an index has in order, and what grows is counted or sorted up to a limit only.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, text

from app.commands.schema import METADATA
from app.foundation.database.engine import is_sqlite, open_engine
from app.service.console.settings import Role
from app.service.console.urls import PREFIX
from tests.bench.console import pages_of
from tests.bench.console_world import Size, build
from tests.conftest import DATABASES, empty_postgres_database
from tests.service.console.conftest import Office, office_on
from tests.tables import make_tables

SIZE = Size(0.002)
LARGE = (
    "model_user",
    "model_membership",
    "model_group",
    "model_group_member",
    "model_folder",
    "model_document",
    "model_grant",
    "model_context_grant",
    "access_name",
    "ledger_item",
    "item_failure",
    "plan_item",
    "audit",
    "call",
    "node_minute",
)
"""Tables that grow with the directory, the backend or the years."""

BOUNDED = {
    "WITH RECURSIVE of_membership (organization_id": "fifty organizations of each of three sorts, in one order",
    "SELECT number, SUM(allowed)": "the minutes of a day, once for each node",
    "SELECT node, role,": "the last minutes, once for each node",
    "SELECT MIN(minute)": "the first of the index",
    "SELECT ordinal, action FROM plan_item": "what becomes of one organization itself",
    "SELECT f.kind, f.organization_id, f.container_id, f.item_id, f.deleting": "of one item, to write and to delete it",
    "WITH RECURSIVE edge (group_id, member_id) AS": "the groups of the user whom a decision is about",
    "WITH RECURSIVE granted (folder_id": "what the user may open, which may be more than a page; see listing/README.md",
    "SELECT folder_id FROM model_folder AS next": "PostgreSQL sorts the ids of an organization by their bytes",
    "SELECT document_id FROM model_document AS next": "PostgreSQL sorts the ids of an organization by their bytes",
    "WITH RECURSIVE level (folder_id": "the users with grants on the levels of one resource",
    "WITH RECURSIVE inside (group_id": "the groups in a group, of which the users of a page are members",
    "WITH RECURSIVE edge (user_id, group_id": "the groups of the users of a page",
    "SELECT t.organization_id, t.folder_id, t.document_id, t.user_id": "the grants on the levels of a page",
    "WITH RECURSIVE requested AS MATERIALIZED": "the references of the records of a page, each looked up by a key",
}
"""Beginnings of statements that sort, count or read what they have, each with the reason why that is little."""


@pytest.fixture(scope="module", params=DATABASES)
def office(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('plans')}/test.db"
    else:
        url = request.getfixturevalue("postgres_standing_database")
        empty_postgres_database(url)
    engine = open_engine(url)
    make_tables(engine, METADATA)
    build(engine, SIZE, lambda _: None)
    with office_on(engine, {"type": "file", "path": "directory.yaml"}) as opened:
        yield opened


@pytest.mark.extended
def test_no_statement_of_a_page_reads_through_a_large_table_or_sorts_one(office: Office) -> None:
    asked: dict[str, tuple[str, Any]] = {}
    browser = office.browser(Role.ADMIN)
    pages = pages_of(SIZE)
    here = ""

    def hear(_: Connection, __: object, statement: str, parameters: Any, ___: object, many: bool) -> None:
        if not many and statement.lstrip().upper().startswith(("SELECT", "WITH")):
            asked.setdefault(statement, (here, parameters))

    event.listen(office.engine, "before_cursor_execute", hear)
    for here, path in pages.items():
        browser.get(path)
        assert browser.status in {200, 404}, here
    event.remove(office.engine, "before_cursor_execute", hear)
    assert len(asked) > 40
    wrong = [
        f"{page}: {problem}\n{statement}\n{plan}"
        for statement, (page, parameters) in asked.items()
        for plan in [_plan(office.engine, statement, parameters)]
        for problem in _problems(plan, statement)
    ]
    assert not wrong, "\n\n".join(wrong)


def test_every_page_is_measured(office: Office) -> None:
    """Those that take an address with parameters included; but for those that begin something, and files."""
    views = {
        str(rule.rule).removeprefix(f"{PREFIX}/").replace("-", "_")
        for rule in office.browser().client.application.url_map.iter_rules()
        if str(rule.rule).startswith(f"{PREFIX}/") and "GET" in (rule.methods or ()) and "<" not in str(rule.rule)
    }
    asked = {path.removeprefix(f"{PREFIX}/").partition("?")[0].replace("-", "_") for path in pages_of(SIZE).values()}
    assert views - asked == ELSEWHERE


ELSEWHERE = {"sign_in", "oidc", "oidc/back", "access.csv", "audit.jsonl"}
"""Ways in, and exports as streams."""


def _plan(engine: Engine, statement: str, parameters: Any) -> str:
    with engine.connect() as connection:
        if not is_sqlite(connection):
            # In tables as small as these it is quick to read everything; whether there is a better way is the question.
            for way in ("seqscan", "bitmapscan", "hashjoin", "mergejoin", "sort", "hashagg"):
                connection.execute(text(f"SET LOCAL enable_{way} = off"))
        explain = "EXPLAIN QUERY PLAN " if is_sqlite(connection) else "EXPLAIN "
        rows = connection.exec_driver_sql(explain + statement, parameters)
        return "\n".join(str(row[-1]) for row in rows)


def _problems(plan: str, statement: str) -> Iterator[str]:
    written = " ".join(statement.split())
    large = "|".join(LARGE)
    named = {alias or table: table for table, alias in re.findall(rf"\b({large})\b(?: AS)?(?: (\w+))?", written)}
    # Without a condition it is read from one end of its key until the page is full.
    from_one_end = "LIMIT" in written and "WHERE" not in written
    for line in plan.splitlines():
        scanned = re.match(r"\s*SCAN (\w+)", line) or re.search(rf"Seq Scan on ({large})\b", line)
        if scanned and scanned[1] in {*named, *LARGE} and not from_one_end:
            yield f"reads through {scanned[1]}"
    if any(written.startswith(beginning) for beginning in BOUNDED) or _is_limited(written) or not named:
        return
    if re.search(r"\b(COUNT|SUM|MIN|MAX)\(|\bGROUP BY\b", written, re.IGNORECASE):
        yield "counts without an end"
    if "LIMIT" not in written and "EXISTS (" not in written:
        yield from _ranges(plan, {**named, **{table: table for table in LARGE}})
    if "LIMIT" in written and "USE TEMP B-TREE FOR ORDER BY" in plan:
        yield "sorts"
    # The rows of an index range, not the few rows of a join.
    if re.search(rf"->  Sort .*\n(?:.*Sort Key.*\n)?\s*->  [\w ]+ on ({large})\b", plan):
        yield "sorts"


def _is_limited(written: str) -> bool:
    """Whether what is counted or sorted is a query that ends."""
    for begin in re.finditer(r"FROM \( ?SELECT\b", written):
        depth, inside = 0, ""
        for character in written[begin.end() :]:
            depth += {"(": 1, ")": -1}.get(character, 0)
            if depth < 0:
                break
            inside += character if depth == 0 else ""
        if " LIMIT " in inside:
            return True
    return False


def _ranges(plan: str, tables: Mapping[str, str]) -> Iterator[str]:
    """What SQLite reads of more than one row: all columns of a key would have to be equal to something."""
    for name, condition in re.findall(r"SEARCH (\w+) USING [^(]*\((.*?)\)(?:$| LEFT)", plan, re.MULTILINE):
        if name not in tables:
            continue
        table = METADATA.tables[tables[name]]
        equal = {*re.findall(r"(\w+)=\?", condition)}
        if "rowid" not in equal and not {column.name for column in table.primary_key} <= equal:
            yield f"reads a range of {table.name} without an end"


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("SELECT COUNT(*) FROM item_failure WHERE ledger_id = 1", "counts without an end"),
        ("SELECT kind, COUNT(*) FROM item_failure WHERE ledger_id = 1 GROUP BY kind", "counts without an end"),
        ("SELECT COUNT(*) FROM (SELECT 1 FROM item_failure WHERE ledger_id = 1 LIMIT 9) AS counted", None),
        ("SELECT item_id FROM item_failure WHERE ledger_id = 1 ORDER BY message LIMIT 9", "sorts"),
        (
            "SELECT item_id FROM (SELECT * FROM item_failure WHERE ledger_id = 1 LIMIT 9) f ORDER BY message LIMIT 1",
            None,
        ),
        ("SELECT message FROM item_failure WHERE message = ''", "reads through item_failure"),
    ],
)
def test_unbounded_statements_are_found(office: Office, statement: str, problem: str | None) -> None:
    found = list(_problems(_plan(office.engine, statement, ()), statement))
    assert (problem in found) if problem else found == []
