"""How the databases go about what pages ask: every statement of every page, as the pages make them.

Whatever a page runs is heard and explained, so a new page is covered as soon as it stands in ``PAGES``: no large table
is read through, and nothing is sorted that an index has in order.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, text

from app.console.console import PREFIX
from app.console.settings import Role
from app.database.engine import is_sqlite, open_engine
from app.store.schema import METADATA
from tests.bench.console import pages_of
from tests.bench.console_world import Size, build
from tests.conftest import DATABASES, empty_postgres_database
from tests.console.conftest import Office, office_on
from tests.tables import make_tables

SIZE = Size(0.002)
LARGE = (
    "access_user",
    "access_membership",
    "access_group",
    "access_group_member",
    "access_folder",
    "access_document",
    "access_grant",
    "access_context_grant",
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
    "WITH RECURSIVE a (organization_id": "fifty organizations of each of three sorts, in one order",
    "SELECT n.organization_id, n.item_id, r.payload": "what a search found, which is a hundred names at most",
    "SELECT stretch,": "the minutes of a day, once for each node",
    "SELECT node, role,": "the last minutes, once for each node",
    "SELECT kind, organization_id, message, COUNT(*)": "groups of ten thousand that failed at most",
    "SELECT item_failure.kind": "the one that failed most often, of those that fail now",
}
"""Beginnings of statements that sort what they have, each with the reason why that is little."""


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


def test_every_page_is_asked_for(office: Office) -> None:
    """Those that take an address with parameters included; but for those that begin something, and files."""
    views = {
        str(rule.rule).removeprefix(f"{PREFIX}/").replace("-", "_")
        for rule in office.browser().client.application.url_map.iter_rules()
        if str(rule.rule).startswith(f"{PREFIX}/") and "GET" in (rule.methods or ()) and "<" not in str(rule.rule)
    }
    asked = {path.removeprefix(f"{PREFIX}/").partition("?")[0].replace("-", "_") for path in pages_of(SIZE).values()}
    assert views - asked == ELSEWHERE


ELSEWHERE = {"sign_in", "oidc", "oidc/back", "audit.jsonl"}
"""Ways in, and the audit log as a stream."""


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
    named = {alias or table for table, alias in re.findall(rf"\b({large})\b(?: AS)?(?: (\w+))?", written)}
    # Without a condition it is read from one end of its key until the page is full.
    from_one_end = "LIMIT" in written and "WHERE" not in written
    for line in plan.splitlines():
        scanned = re.match(r"\s*SCAN (\w+)", line) or re.search(rf"Seq Scan on ({large})\b", line)
        if scanned and scanned[1] in named | set(LARGE) and not from_one_end:
            yield f"reads through {scanned[1]}"
    if any(written.startswith(beginning) for beginning in BOUNDED):
        return
    if named and "LIMIT" in written and "USE TEMP B-TREE FOR ORDER BY" in plan:
        yield "sorts"
    # What an index range gives, not the few rows that come of a join.
    if re.search(rf"->  Sort .*\n(?:.*Sort Key.*\n)?\s*->  [\w ]+ on ({large})\b", plan):
        yield "sorts"
