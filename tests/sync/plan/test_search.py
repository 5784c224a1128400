"""Searches for items of a plan by index."""

import json
import re
from itertools import product
from random import Random
from typing import Any

from flask import Flask
from pydantic import SecretStr
from sqlalchemy import insert, text

from app.foundation.audit import Audit
from app.foundation.database.engine import is_sqlite, reading, writing
from app.http.throttle import FailedCredentials
from app.http.tokens import TokenSet
from app.service.admin.auth import AdminAuth
from app.service.admin.resync import resync_blueprint
from app.service.refusals import Refusals
from app.sync.ledger.failure_lists import FailureGroup, FailureKey, failures_page
from app.sync.ledger.failures import message_digest
from app.sync.ledger.journal import call_of_item
from app.sync.ledger.tables import CallRow, ItemFailureRow
from app.sync.plan.changed_users import changed_users
from app.sync.plan.fields import all_fields
from app.sync.plan.listing import item_history, list_changes, read_change
from app.sync.plan.parts import parts_of
from app.sync.plan.search import ItemFilter, count, find
from app.sync.plan.stored_access import access_ids, list_access
from app.sync.plan.tables import PlanAccessRow, PlanItemRow, PlanRow
from app.sync.plan.user_impact import affected, largest_impact
from app.sync.runs.lifecycle import Runs
from app.sync.runs.tables import RunRow
from tests.backend.plans import plan, recorded
from tests.sync.plan.test_summary import ORGANIZATIONS, company
from tests.worlds.plan_parts import note_parts
from tests.worlds.planning import PlanningWorld

TABLES = ("plan_item", "plan_part", "plan_impact", "plan_access", "call", "run", "item_failure")
ITEMS = 12_000


def test_items_are_found_by_each_filter(world: PlanningWorld) -> None:
    world.set_directory(company())
    world.apply(world.plan(), refuses="add_documents")
    made = world.plan()
    items = world.items(made)
    ranges = (
        (None, "planned", "waiting", "failed"),
        (None, "documentUser", "organization", "group"),
        (None, "add", "update", "delete"),
        (None, "acme", 'quo"ted', "nobody"),
        (None, "u1", "acme", "d0"),
    )
    with reading(world.engine) as connection:
        for status, kind, action, organization_id, item_id in product(*ranges):
            wanted = ItemFilter(
                status=status, kind=kind, action=action, organization_id=organization_id, item_id=item_id
            )
            expected = [
                item.ordinal
                for item in items
                if status in {None, item.status}
                and kind in {None, item.kind}
                and action in {None, item.action}
                and organization_id in {None, item.organization_id}
                and item_id in {None, item.item_id}
            ]
            assert find(connection, made.plan_id, wanted, after=None, limit=1_000) == expected, wanted
            # Of parts the number is known without a count.
            most = 3 if status is not None or item_id is not None else len(expected)
            if not wanted.is_everything:
                assert count(connection, made.plan_id, wanted, limit=3) == min(most, len(expected))
            pages: list[int] = []
            while page := find(connection, made.plan_id, wanted, after=pages[-1] if pages else None, limit=7):
                pages += page
            assert pages == expected
        of_one = ItemFilter(organization_id=ORGANIZATIONS[0], kind="document")
        assert {one.item_id for one in list_changes(connection, made.plan_id, criteria=of_one)} == {"d0", "d1"}


def test_failures_are_found_by_each_filter(world: PlanningWorld) -> None:
    draw = Random(7)
    keys = product(("document", "folderUser", "organization"), ("acme", "beta"), ("", "c"), "abcdefgh", (False, True))
    with writing(world.engine) as connection:
        rows = []
        for kind, organization_id, container_id, item_id, deleting in keys:
            key = {"kind": kind, "organization_id": organization_id, "container_id": container_id, "item_id": item_id}
            message = draw.choice(("no", "not today", 'the "backend" is full'))
            rest = {"fingerprint": "", "failures": 1, "retry_at": 0, "parked": draw.random() < 0.5}
            text_columns = {"message": message, "message_digest": message_digest(message)}
            rows.append({"ledger_id": world.ledger_id, **key, "deleting": deleting, **rest, **text_columns})
        connection.execute(insert(ItemFailureRow), rows)
        other = {"ledger_id": world.ledger_id + 1, "parked": True, "message": "no", "message_digest": ""}
        connection.execute(insert(ItemFailureRow), [rows[0] | other])
    with reading(world.engine) as connection:
        for parked, of_kind, within, like_message in product(
            (True, False), (None, "folderUser", "group"), (None, "acme", "nobody"), (None, "no", "another")
        ):
            like = FailureGroup(kind=of_kind, organization_id=within, message=like_message)
            expected = sorted(
                tuple(row[name] for name in ("kind", "organization_id", "container_id", "item_id", "deleting"))
                for row in rows
                if row["parked"] is parked
                and of_kind in {None, row["kind"]}
                and within in {None, row["organization_id"]}
                and like_message in {None, row["message"]}
            )
            pages: list[Any] = []
            while page := failures_page(
                connection,
                world.ledger_id,
                parked=parked,
                like=like,
                after=FailureKey(*pages[-1]) if pages else None,
                limit=7,
            ):
                pages += [(one.kind, one.organization_id, one.container_id, one.item_id, one.deleting) for one in page]
                assert all(one.parked is parked and like_message in {None, one.message} for one in page)
            assert pages == expected, like


def test_failures_are_found_by_the_backends_message(world: PlanningWorld) -> None:
    world.set_directory(company())
    world.apply(world.plan(), refuses="add_documents")
    with reading(world.engine) as connection:
        every = failures_page(connection, world.ledger_id, parked=False)
        assert every
        for message in {one.message for one in every}:
            alike = failures_page(connection, world.ledger_id, parked=False, like=FailureGroup(message=message))
            assert alike == [one for one in every if one.message == message]


def large(world: PlanningWorld) -> None:
    """Three plans of which one is large, with calls, failures and a run for each."""
    users = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :items) SELECT"
    with writing(world.engine) as connection:
        for plan_id, items in (("large", ITEMS), ("one", 10), ("two", 10)):
            connection.execute(
                insert(PlanRow).values(
                    plan_id=plan_id, ledger_id=1, revision=1, ledger_revision=1, plan_hash="", created_at=0
                )
            )
            connection.execute(
                text(
                    f"""
                    INSERT INTO plan_item (plan_id, ordinal, phase, action, kind, organization_id, container_id,
                      item_id, operation, scope, reason, status, message, digest, parent_id, access_type,
                      access_role, disabled, payload, in_force, was)
                    {users} :plan_id, i, CASE WHEN i <= :items / 2 THEN 50 ELSE 120 END,
                      CASE WHEN i <= :items / 2 THEN 'add' ELSE 'delete' END,
                      CASE WHEN i <= :items / 2 THEN 'organizationUser' ELSE 'folderUser' END, 'acme',
                      CASE WHEN i <= :items / 2 THEN '' ELSE 'f' END, 'u' || CAST(i AS TEXT),
                      CASE WHEN i <= :items / 2 THEN 'add_users' ELSE 'delete_users' END, '[]', '',
                      CASE WHEN i % 100 = 0 THEN 'failed' WHEN i < 50 THEN 'waiting' ELSE 'done' END, '', 'd', '', '',
                      '', FALSE, '', '', '' FROM n
                    """
                ),
                {"plan_id": plan_id, "items": items},
            )
            note_parts(connection, plan_id)
            run_row = {"run_id": f"run-{plan_id}", "trigger": "schedule", "status": "done", "requested_at": 0}
            connection.execute(insert(RunRow).values(plan_id=plan_id, ledger_id=world.ledger_id, **run_row))
        calls = [
            {"run_id": "run-large", "plan_id": "large", "ledger_id": 1, "operation": "add_users", "sent_at": 0}
            | {"ordinals": str(list(range(first, first + 10))), "first_ordinal": first}
            for first in range(1, ITEMS, 10)
        ]
        connection.execute(insert(CallRow), calls)
        failure = {"ledger_id": world.ledger_id, "kind": "folder", "organization_id": "acme", "container_id": ""}
        failure |= {"deleting": False, "fingerprint": "", "failures": 10, "retry_at": 0, "message": "no"}
        connection.execute(
            insert(ItemFailureRow),
            [failure | {"item_id": f"f{number}", "parked": number % 100 == 0} for number in range(3_000)],
        )
        for table in (PlanItemRow, CallRow, ItemFailureRow):
            if not is_sqlite(connection):
                connection.execute(text(f"ANALYZE {table.__tablename__}"))


def test_no_statement_of_a_page_reads_through_a_plan(world: PlanningWorld) -> None:
    large(world)
    filters = [
        ItemFilter(),
        ItemFilter(status="failed"),
        ItemFilter(kind="folderUser"),
        ItemFilter(kind="folderUser", status="waiting"),
        ItemFilter(action="add", organization_id="acme", status="failed"),
        ItemFilter(organization_id="acme"),
        ItemFilter(item_id="u7000"),
        ItemFilter(item_id="u7000", status="done", kind="folderUser"),
    ]
    with recorded(world.engine, TABLES) as statements, reading(world.engine) as connection:
        for wanted in filters:
            for after in (None, ITEMS // 2):
                list_changes(connection, "large", criteria=wanted, after=after, limit=51)
            if not wanted.is_everything:
                count(connection, "large", wanted, limit=1_001)
        item = read_change(connection, "large", 7_000)
        assert item is not None
        assert [item] == list_changes(connection, "large", after=6_999, limit=1)
        assert len(item_history(connection, item, limit=20)) == 1
        all_fields(connection, item, item.was)
        found = call_of_item(connection, "large", 7_000)
        assert found is not None
        parts_of(connection, "large")
        parts_of(connection, "large", "acme")
        largest_impact(connection, "large", 10)
        affected(connection, "large")
        changed_users(connection, "large")
        list_access(connection, "large", after=100)
        failures_page(
            connection, world.ledger_id, parked=True, after=FailureKey("folder", "acme", "", "f100", deleting=False)
        )
        failures_page(
            connection, world.ledger_id, parked=True, like=FailureGroup(kind="folder", organization_id="acme")
        )
    assert len(statements) > 40
    with reading(world.engine) as connection:
        if not is_sqlite(connection):
            # So few items are quick to read through; whether there is another way is the question.
            connection.execute(text("SET LOCAL enable_seqscan = off"))
        for statement, parameters in statements:
            query_plan = plan(connection, statement, parameters)
            bad = [
                line
                for line in query_plan.splitlines()
                if re.search(r"SCAN (plan_item|p|i|plan_part|plan_access|call|item_failure)\b(?! USING)", line)
                or re.search(r"Seq Scan on (plan_item|call|item_failure)\b", line)
                # A page of ordinals is little.
                or ("TEMP B-TREE" in line and "ordinal IN" not in statement)
            ]
            assert bad == [], (statement, query_plan)
            # Of an id what one plan has, never what all plans have.
            assert not re.search(r"Index Cond: \(\(item_id\)", query_plan), (statement, query_plan)


def test_changes_of_a_kind_over_http_are_one_range_of_the_plan(world: PlanningWorld) -> None:
    large(world)
    runs = Runs(world.engine, world.time, Random(1))
    app = Flask("changes")
    tokens = TokenSet([SecretStr("let-me-in")], FailedCredentials())
    app.register_blueprint(
        resync_blueprint(runs, AdminAuth(tokens, Audit(world.time), Refusals(Audit(world.time), world.engine)))
    )
    client = app.test_client()
    client.environ_base["HTTP_AUTHORIZATION"] = "Bearer let-me-in"
    first, token = f"/resync/run-large/changes?kind=folderUser&pageSize={_PAGE}", ""
    with recorded(world.engine, ("plan_item", "plan_part")) as statements:
        for page in range(2):
            body = client.get(f"{first}&pageToken={token}" if token else first).get_json()
            begin = ITEMS // 2 + page * _PAGE + 1
            assert [one["id"] for one in body["changes"]] == [f"u{number}" for number in range(begin, begin + _PAGE)]
            token = body["nextPageToken"]
    found = [(statement, parameters) for statement, parameters in statements if "ordinal >" in statement]
    # The first part of that kind begins in the middle of the plan: the query skips everything before it.
    assert len(found) == 2
    assert str(ITEMS // 2) in str(found[0][1])
    with reading(world.engine) as connection:
        if not is_sqlite(connection):
            for way in ("seqscan", "bitmapscan", "sort"):
                connection.execute(text(f"SET LOCAL enable_{way} = off"))
        for statement, parameters in statements:
            query_plan = plan(connection, statement, parameters)
            assert not re.search(r"SCAN plan_|Seq Scan|Filter: .*kind", query_plan), query_plan
        for statement, parameters in found:
            query_plan = plan(connection, statement, parameters)
            is_range = r"SEARCH plan_item USING .*\(plan_id=\? AND ordinal>\? AND ordinal<\?\)"
            of_postgresql = r"Index (Only )?Scan using pk_plan_item.*\n.*Index Cond: .*plan_id.*ordinal > .*ordinal <= "
            assert re.search(is_range, query_plan) or re.search(of_postgresql, query_plan), query_plan
            assert "TEMP B-TREE" not in query_plan
            assert "Sort" not in query_plan


_PAGE = 100


def test_first_ids_of_an_access_change_are_read_alone(world: PlanningWorld) -> None:
    users = [f'u{number}"\\é' for number in range(120)]
    row = {"plan_id": "p", "kind": "document", "resources": 1, "resource_ids": '["d"]', "names": "{}", "pairs": 120}
    changed = (("", "viewer", "gain"), ("viewer", "", "lose"), ("viewer", "editor", "change"))
    with writing(world.engine) as connection:
        for ordinal, (before, after, effect) in enumerate(changed, 1):
            values = {"ordinal": ordinal, "before": before, "after": after, "organization_id": effect}
            ids = json.dumps(users, ensure_ascii=ordinal == 1)
            connection.execute(insert(PlanAccessRow.__table__).values(**row, **values, users=120, user_ids=ids))
    with reading(world.engine) as connection:
        assert [found.user_ids for found in list_access(connection, "p", first_ids=3)] == [users[:3]] * 3
        assert [found.user_ids for found in list_access(connection, "p")] == [users] * 3
        for ordinal, (_, _, effect) in enumerate(changed, 1):
            for found in (
                list_access(connection, "p", effect=effect),
                list_access(connection, "p", organization_id=effect),
            ):
                assert [each.ordinal for each in found] == [ordinal]
        assert list_access(connection, "p", effect="gain", organization_id="lose") == []
        paged: list[tuple[int, str]] = []
        while more := access_ids(connection, "p", 2, "user_ids", after=len(paged) - 1, limit=50):
            paged += more
        assert paged == list(enumerate(users))
        assert access_ids(connection, "p", 2, "resource_ids") == [(0, "d")]
        assert access_ids(connection, "p", 9, "user_ids") == []
