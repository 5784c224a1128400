"""Creates a large installation by SQL: access model, ledger, runs, a plan and audit rows.

At full size this takes minutes. Reading and planning a directory file of that size would take hours.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, Table, text
from sqlalchemy.schema import CreateIndex, DropIndex

from app.access import source_tables as directory_tables
from app.access import tables as access
from app.foundation import audit_tables
from app.foundation.database.engine import is_sqlite
from app.foundation.database.tables import METADATA, ONLY_ON, StoreTable
from app.monitoring import tables as process_tables
from app.sync.ledger import tables as ledger_tables
from app.sync.ledger.failures import message_digest
from app.sync.plan import tables as plan_tables
from app.sync.runs import tables as runs_tables
from tests.worlds.clock import NOON

NOW_MS = 1_795_000_000_000
BIG_RUN = "20261122T120000000-big"
BIG_PLAN = "plan-big"


@dataclass(frozen=True)
class Size:
    """The number of rows of each kind; ``scale`` 1 is the size that the console is specified for."""

    scale: float = 1.0

    def of(self, whole: int) -> int:
        return max(int(whole * self.scale), 20)

    @property
    def users(self) -> int:
        return self.of(1_000_000)

    @property
    def documents(self) -> int:
        return self.of(1_000_000)

    @property
    def folders(self) -> int:
        return self.of(100_000)

    @property
    def large(self) -> int:
        """Members of the largest organization, and of its largest group."""
        return self.of(600_000)

    @property
    def items(self) -> int:
        """Of the large plan."""
        return self.of(1_500_000)


class Builder:
    """Fills the tables of one new database."""

    def __init__(self, connection: Connection, size: Size) -> None:
        self.connection = connection
        self.size = size
        self.sqlite = is_sqlite(connection)

    def series(self, count: int, name: str = "n") -> str:
        """A FROM item with the column ``i``: numbers from 0."""
        if self.sqlite:
            return (
                f"(WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < {count - 1})"
                f" SELECT i FROM s) AS {name}"
            )
        return f"generate_series(CAST(0 AS BIGINT), {count - 1}) AS {name}(i)"

    def id(self, prefix: str, expression: str) -> str:
        """An id that sorts like its number."""
        if self.sqlite:
            return f"printf('{prefix}-%07d', {expression})"
        return f"('{prefix}-' || lpad(CAST({expression} AS TEXT), 7, '0'))"

    def fill(self, row: type[StoreTable] | Table, values: Mapping[str, str], source: str, *, order: str = "") -> None:
        """Inserts rows of these expressions; other columns have their defaults."""
        table = row if isinstance(row, Table) else row.__table__
        columns = {column.name: values.get(column.name, _default(column)) for column in table.columns}
        if table.name in {"audit", "call"}:
            columns = {name: value for name, value in columns.items() if name in values}
        listed, expressions = ", ".join(columns), ", ".join(columns.values())
        ordered = f" ORDER BY {order}" if order else ""
        statement = (
            f"INSERT INTO {table.name} ({listed}) SELECT {expressions} FROM {source} WHERE TRUE{ordered}"
            " ON CONFLICT DO NOTHING"
        )
        # Of colons in JSON no parameters are meant.
        self.connection.execute(text(statement.replace(":", "\\:")))


def _default(column: object) -> str:
    default = getattr(column, "default", None)
    if getattr(column, "nullable", False) and default is None:
        return "NULL"
    value = None if default is None else default.arg
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    return f"'{value}'" if isinstance(value, str) else "''"


def build(
    engine: Engine, size: Size, report: Callable[[str], None], parts: Sequence[Callable[[Builder], None]] | None = None
) -> None:
    """Fills the empty tables, and creates the indexes last. ``parts``: some of the functions below; None: all."""
    dialect = engine.dialect.name
    indexes = [
        index
        for table in METADATA.sorted_tables
        for index in table.indexes
        if index.info.get(ONLY_ON, dialect) == dialect
    ]
    with engine.connect() as connection:
        if is_sqlite(connection):
            for pragma in ("synchronous=OFF", "cache_size=-400000"):
                # Before the transaction begins.
                connection.connection.driver_connection.execute(f"PRAGMA {pragma}")  # type: ignore[union-attr]
        else:
            connection.exec_driver_sql("SET maintenance_work_mem = '1GB'")
            connection.exec_driver_sql("SET work_mem = '256MB'")
            connection.exec_driver_sql("SET synchronous_commit = off")
        connection.commit()
        for index in indexes:
            connection.execute(DropIndex(index))
        connection.commit()
        builder = Builder(connection, size)
        for part in parts or (people, places, grants, names, _ledger, _runs, _parts, _around):
            began = time.perf_counter()
            part(builder)
            connection.commit()
            report(f"{part.__name__.strip('_')}: {time.perf_counter() - began:.0f} s")
        began = time.perf_counter()
        for index in indexes:
            connection.execute(CreateIndex(index))
            connection.commit()
        report(f"indexes: {time.perf_counter() - began:.0f} s")
        connection.commit()
    if not is_sqlite(engine):
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")


def people(b: Builder) -> None:
    """Organizations, users with their memberships, and groups."""
    size, user = b.size, b.id("user", "n.i")
    b.fill(
        access.ACCESS_TABLES["organization"],
        {
            "organization_id": "'org-' || n.i",
            "access_type": "'organizationPrivate'",
            "payload": """'{"organizationId":"org-' || n.i || '","organizationName":"Organization ' || n.i || '"}'""",
            "disabled": "FALSE",
        },
        b.series(10),
    )
    b.fill(
        access.ACCESS_TABLES["user"],
        {
            "user_id": user,
            "disabled": "FALSE",
            "payload": f"""'{{"email":"user-' || n.i || '@company.example","name":"User Number' || n.i"""
            f""" || '","userId":"' || {user} || '"}}'""",
            "digest": "'d' || n.i",
        },
        b.series(size.users),
    )
    b.fill(
        access.ACCESS_TABLES["membership"],
        {
            "organization_id": _organization(size.large),
            "user_id": user,
            "access_role": "CASE n.i % 3 WHEN 0 THEN 'editor' ELSE 'viewer' END",
        },
        b.series(size.users),
        order="1, 2",
    )
    group = b.id("group", "n.i")
    b.fill(
        access.ACCESS_TABLES["group"],
        {
            "organization_id": "'org-0'",
            "organization_user_group_id": group,
            "payload": f"""'{{"groupName":"Group ' || n.i || '","organizationUserGroupId":"' || {group} || '"}}'""",
        },
        b.series(size.of(1_000)),
    )
    members = {"organization_id": "'org-0'", "organization_user_group_id": group, "member_group_id": "''"}
    b.fill(
        access.ACCESS_TABLES["groupMember"],
        {**members, "organization_user_group_id": b.id("group", "0"), "user_id": user},
        b.series(size.large),
    )
    everybody = f"{b.series(size.of(1_000))} CROSS JOIN {b.series(100, 'm')}"
    b.fill(
        access.ACCESS_TABLES["groupMember"],
        {**members, "user_id": b.id("user", f"(n.i * 7919 + m.i) % {size.large}")},
        everybody,
        order="2, 3",
    )
    inside = {**members, "user_id": "''", "member_group_id": b.id("group", "n.i"), "organization_user_group_id": "''"}
    inside["organization_user_group_id"] = b.id("group", "n.i / 2")
    b.fill(access.ACCESS_TABLES["groupMember"], inside, f"(SELECT i FROM {b.series(size.of(200))} WHERE i > 1) AS n")


def _organization(first: int) -> str:
    """The organization of user or document ``n.i``. The first ones are in the largest organization."""
    return f"CASE WHEN n.i < {first} THEN 'org-0' ELSE 'org-' || (1 + n.i % 9) END"


def places(b: Builder) -> None:
    """Folders and documents."""
    size = b.size
    own = size.of(60_000) // 9 * 9
    folder = b.id("folder", "n.i")
    b.fill(
        access.ACCESS_TABLES["folder"],
        {
            "organization_id": _organization(own),
            "folder_id": folder,
            "parent_folder_id": f"CASE WHEN n.i = 0 OR n.i >= {own} THEN '' ELSE {b.id('folder', 'n.i / 10')} END",
            "access_type": "CASE n.i % 50 WHEN 7 THEN 'restricted' ELSE '' END",
            "payload": f"""'{{"folderId":"' || {folder} || '","folderName":"Folder ' || n.i || '"}}'""",
            "digest": "'d' || n.i",
        },
        b.series(size.folders),
        order="1, 2",
    )
    document = b.id("document", "n.i")
    elsewhere = max((size.folders - own) // 9, 1)
    b.fill(
        access.ACCESS_TABLES["document"],
        {
            "organization_id": _organization(size.large),
            "document_id": document,
            "folder_id": f"CASE WHEN n.i % 20 = 0 THEN '' WHEN n.i < {size.large // 2} THEN {b.id('folder', '7')}"
            f" WHEN n.i < {size.large} THEN {b.id('folder', f'n.i % {own}')}"
            f" ELSE {b.id('folder', f'{own} + 9 * (n.i % {elsewhere}) + n.i % 9')} END",
            "access_type": "CASE n.i % 7 WHEN 0 THEN 'restricted' ELSE '' END",
            "payload": f"""'{{"documentId":"' || {document} || '","documentName":"Document Number' || n.i || '"}}'""",
            "digest": "'d' || n.i",
        },
        b.series(size.documents),
        order="1, 2",
    )


def grants(b: Builder) -> None:
    """Ten grants for each user, 100,000 on one document, 50,000 of one user, and grants of groups."""
    size = b.size
    own = {"folder_id": "''", "organization_user_group_id": "''", "access_role": "'viewer'"}
    in_largest = {"organization_id": "'org-0'", **own}
    place = f"(n.i * 10 + m.i * 99991) % {size.documents}"
    spread = f"(SELECT n.i AS u, {place} AS i FROM {b.series(size.users)} CROSS JOIN {b.series(10, 'm')}) AS n"
    b.fill(
        access.ACCESS_TABLES["grant"],
        {
            **own,
            "organization_id": _organization(size.large),
            "document_id": b.id("document", "n.i"),
            "user_id": b.id("user", "n.u"),
            "access_role": "CASE n.u % 3 WHEN 0 THEN 'editor' ELSE 'viewer' END",
        },
        spread,
        order="1, 3, 4",
    )
    b.fill(
        access.ACCESS_TABLES["grant"],
        {**in_largest, "document_id": b.id("document", "0"), "user_id": b.id("user", "n.i")},
        b.series(size.of(100_000)),
    )
    b.fill(
        access.ACCESS_TABLES["grant"],
        {**in_largest, "document_id": b.id("document", "n.i"), "user_id": b.id("user", "1")},
        b.series(size.of(50_000)),
    )
    of_groups = {**in_largest, "user_id": "''"}
    b.fill(
        access.ACCESS_TABLES["grant"],
        {
            **of_groups,
            "document_id": "''",
            "folder_id": b.id("folder", f"(n.i * 53 + m.i) % {size.of(60_000) // 9 * 9}"),
            "organization_user_group_id": b.id("group", "n.i"),
        },
        f"{b.series(size.of(1_000))} CROSS JOIN {b.series(20, 'm')}",
        order="2, 5",
    )
    b.fill(
        access.ACCESS_TABLES["grant"],
        {**of_groups, "document_id": b.id("document", "n.i"), "organization_user_group_id": b.id("group", "0")},
        b.series(size.of(10_000)),
    )


def names(b: Builder) -> None:
    """The names for searches, and the counts."""
    size = b.size
    for kind, count, within in (
        ("user", size.users, "''"),
        ("document", size.documents, _organization(size.large)),
        ("folder", size.folders, _organization(size.of(60_000) // 9 * 9)),
    ):
        item = b.id(kind, "n.i")
        words = (f"'{kind} number' || n.i", "'number' || n.i", item)
        for word in words:
            b.fill(
                access.AccessNameRow,
                {"kind": f"'{kind}'", "name": word, "organization_id": within, "item_id": item},
                b.series(count),
                order="2",
            )
    for kind, table in (
        ("membership", "model_membership"),
        ("group", "model_group"),
        ("groupMember", "model_group_member"),
        ("folder", "model_folder"),
        ("document", "model_document"),
        ("grant", "model_grant"),
    ):
        counted = f"(SELECT organization_id AS o, COUNT(*) AS c FROM {table} GROUP BY organization_id) AS n"
        values = {"organization_id": "n.o", "kind": f"'{kind}'", "records": "n.c"}
        b.fill(access.AccessCountRow, values, counted)
        whole = f"(SELECT SUM(records) AS c FROM access_count WHERE kind = '{kind}') AS n"
        b.fill(access.AccessCountRow, {**values, "organization_id": "''"}, whole)
    for kind, count in (("user", size.users), ("organization", 10)):
        b.fill(
            access.AccessCountRow,
            {"organization_id": "''", "kind": f"'{kind}'", "records": str(count)},
            "(SELECT 1) AS n",
        )


def _ledger(b: Builder) -> None:
    size = b.size
    b.fill(
        ledger_tables.LedgerRow,
        {
            "ledger_id": "1",
            "base_url": "'http://backend.bench'",
            "api_key_digest": "'0'",
            "created_at": str(NOW_MS),
            "verified_at": str(NOW_MS),
        },
        "(SELECT 1) AS n",
    )
    b.fill(
        ledger_tables.LedgerItemRow,
        {"ledger_id": "1", **item_values(b)},
        b.series(size.items),
        order="2, 3, 5",
    )
    b.fill(
        ledger_tables.ItemFailureRow,
        {
            "ledger_id": "1",
            "kind": "'document'",
            "organization_id": _organization(size.large),
            "item_id": b.id("document", "n.i"),
            "deleting": "FALSE",
            "failures": "10",
            "retry_at": str(NOW_MS),
            "parked": "n.i % 2 = 0",
            "message": _one_of(FAILURES),
            "message_digest": _one_of([message_digest(one) for one in FAILURES]),
        },
        b.series(size.of(500_000)),
    )


FAILURES = [*(f"the backend refused it {number}" for number in range(5)), "rarely said"]
"""Error messages of failed items. Only one item of ten thousand has the last one."""


def _one_of(texts: Sequence[str]) -> str:
    """The text of a failure; the last text is rare."""
    often = " ".join(f"WHEN {number} THEN '{text}'" for number, text in enumerate(texts[:-1]))
    return f"CASE WHEN n.i % 10000 = 9998 THEN '{texts[-1]}' ELSE CASE n.i % {len(texts) - 1} {often} END END"


def item_values(b: Builder) -> dict[str, str]:
    """The values of item ``n.i``: two thirds memberships, then documents."""
    users = b.size.items * 2 // 3
    return {
        "kind": f"CASE WHEN n.i < {users} THEN 'organizationUser' ELSE 'document' END",
        "organization_id": f"CASE WHEN n.i < {users} THEN {_organization(b.size.large)}"
        f" ELSE CASE WHEN n.i - {users} < {b.size.large} THEN 'org-0' ELSE 'org-' || (1 + (n.i - {users}) % 9) END END",
        "container_id": "''",
        "item_id": f"CASE WHEN n.i < {users} THEN {b.id('user', 'n.i')} ELSE {b.id('document', f'n.i - {users}')} END",
        "digest": "'d' || n.i",
    }


def _runs(b: Builder) -> None:
    size = b.size
    counts = (
        '{"organizationUser":{"add":{"planned":1000000,"done":999859,"held":141}},'
        '"document":{"add":{"planned":500000,"done":499990,"failed":10}}}'
    )
    plan = {
        "ledger_id": "1",
        "revision": "1",
        "ledger_revision": "1",
        "plan_hash": "'h'",
        "created_at": str(NOW_MS),
    }
    run = {
        "trigger": "'schedule'",
        "ledger_id": "1",
        "revision": "1",
        "verify": "FALSE",
        "status": "'done'",
        "calls": "5",
    }
    many = 3_000
    item = {
        "phase": "1",
        "action": "'add'",
        "operation": "'add_users'",
        "scope": "'[]'",
        "reason": "'it is new'",
    }
    number = b.id("20261001T000000000", "n.i")
    times = dict.fromkeys(("requested_at", "started_at", "finished_at"), f"{NOW_MS} - 900000 * ({many} - n.i)")
    b.fill(plan_tables.PlanRow, {**plan, "plan_id": number}, b.series(many))
    b.fill(runs_tables.RunRow, {**run, **times, "run_id": number, "plan_id": number}, b.series(many))
    b.fill(
        plan_tables.PlanItemRow,
        {
            **item,
            "plan_id": number,
            "ordinal": "m.i",
            "kind": "'document'",
            "organization_id": "'org-0'",
            "item_id": b.id("document", "(n.i + m.i) % 100"),
            "status": "'done'",
        },
        f"{b.series(many)} CROSS JOIN {b.series(5, 'm')}",
        order="1, 2",
    )
    b.fill(plan_tables.PlanRow, {**plan, "plan_id": f"'{BIG_PLAN}'"}, "(SELECT 1) AS n")
    hold = '"kind":"organizationUser","organizationId":"org-0","deletes":141,"below":0,"ledger":1000,"reason":"more"'
    held = f'{{"held":[{{{hold}}}]}}'
    b.fill(
        runs_tables.RunRow,
        {
            **run,
            "run_id": f"'{BIG_RUN}'",
            "plan_id": f"'{BIG_PLAN}'",
            "status": "'held'",
            "counts": f"'{counts}'",
            "report": f"'{held}'",
            "held_at": str(NOW_MS),
            "held_until": str(NOW_MS + 7 * 86_400_000),
            **dict.fromkeys(("requested_at", "started_at", "finished_at"), str(NOW_MS)),
        },
        "(SELECT 1) AS n",
    )
    b.fill(
        plan_tables.PlanItemRow,
        {
            **item,
            **item_values(b),
            "plan_id": f"'{BIG_PLAN}'",
            "ordinal": "n.i",
            "payload": """'{"name":"User Number' || n.i || '"}'""",
            "status": "CASE WHEN n.i < 141 THEN 'held' WHEN n.i % 100000 = 7 THEN 'failed' ELSE 'done' END",
        },
        b.series(size.items),
    )
    b.fill(
        plan_tables.PlanItemRow,
        {
            **item,
            "plan_id": f"'{BIG_PLAN}'",
            "ordinal": str(size.items),
            "kind": "'documentUser'",
            "organization_id": "'org-0'",
            "container_id": b.id("document", "0"),
            "item_id": b.id("user", "1"),
            "digest": "'d'",
            "access_role": "'viewer'",
            "status": "'done'",
        },
        "(SELECT 1) AS n",
    )


def _parts(b: Builder) -> None:
    """The parts of a plan, and the affected users."""
    alike = "plan_id, phase, kind, action, operation"
    for organization, also in (("''", ""), ("organization_id", ", organization_id")):
        b.fill(
            plan_tables.PlanPartRow,
            {
                **{name: f"n.{name}" for name in ("plan_id", "phase", "kind", "action", "operation")},
                "organization_id": "n.within",
                "first_ordinal": "n.first",
                "last_ordinal": "n.last",
                "items": "n.items",
            },
            f"(SELECT {alike}, {organization} AS within, MIN(ordinal) AS first, MAX(ordinal) AS last, COUNT(*) AS items"
            f" FROM plan_item GROUP BY {alike}{also}) AS n",
        )
    b.fill(
        plan_tables.PlanImpactRow,
        {
            "plan_id": f"'{BIG_PLAN}'",
            "organization_id": "'org-' || n.i",
            **dict.fromkeys(("gain", "people"), "1000 + n.i"),
            "lose": "0",
            "change": "0",
        },
        b.series(10),
    )


def _around(b: Builder) -> None:
    """Audit rows, activity per minute, a source and a revision."""
    # By the clock of the measurements, and by that of the tests.
    for end in (NOW_MS, round(NOON.timestamp()) * 1000):
        minute = f"{end // 60_000 * 60_000} - 60000 * n.i"
        b.fill(
            process_tables.NodeMinuteRow,
            {
                "node": "'node-' || m.i",
                "role": "'service'",
                "minute": minute,
                "seen_at": minute,
                "version": "'1'",
                "allowed": "300 + n.i % 60",
                "denied": "n.i % 40",
                "calls_2": "300",
                "calls_6": "3",
            },
            f"{b.series(max(b.size.of(43_200), 1_440))} CROSS JOIN {b.series(4, 'm')}",
        )
    b.fill(
        audit_tables.AuditRow,
        {
            "at": f"{NOW_MS} - 60000 * n.i",
            "actor": "'operator ' || (n.i % 20)",
            "role": "'approver'",
            "way": "'console'",
            "address": "'10.0.0.1'",
            "action": "CASE n.i % 4 WHEN 0 THEN 'approved' ELSE 'signed in' END",
            "subject": "''",
            "reason": "''",
            "outcome": "'done'",
            "request_id": "'r'",
        },
        b.series(b.size.of(100_000)),
    )
    b.fill(access.RevisionRow, {"revision": "1", "created_at": str(NOW_MS), "changes": "'{}'"}, "(SELECT 1) AS n")
    b.fill(
        directory_tables.DirectorySourceRow,
        {"source_id": "1", "name": "'people'", "position": "0"},
        "(SELECT 1) AS n",
    )
