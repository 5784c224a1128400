"""Query plans of webhooks: every statement uses an index, whatever the amount of other and old data."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, insert, text

from app.backend.schema import METADATA
from app.backend.storage.sqlite_statistics import ensure_statistics
from app.backend.webhooks import queues
from app.backend.webhooks.tables import (
    ADVANCED_WEBHOOK_CONFIG,
    WEBHOOK_CONFIG,
    WEBHOOK_DELIVERY,
    WEBHOOK_ENDPOINT,
    WEBHOOK_MESSAGE,
    WEBHOOK_QUEUE,
)
from app.foundation.database.engine import is_sqlite, writing

from .conftest import DOCUMENT, Post, Receiver

TABLES = (
    WEBHOOK_CONFIG,
    ADVANCED_WEBHOOK_CONFIG,
    WEBHOOK_ENDPOINT,
    WEBHOOK_QUEUE,
    WEBHOOK_MESSAGE,
    WEBHOOK_DELIVERY,
)
OTHERS, PAST = 3000, 6000


@contextmanager
def recorded(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    """The statements about webhooks that run in the block, with the parameters of their first row."""
    statements: list[tuple[str, Any]] = []

    def record(_: Connection, __: object, statement: str, parameters: Any, ___: object, many: bool) -> None:
        if any(f" {table.name} " in f" {statement} ".replace("\n", " ") for table in TABLES):
            statements.append((statement, parameters[0] if many else parameters))

    event.listen(engine, "before_cursor_execute", record)
    yield statements
    event.remove(engine, "before_cursor_execute", record)


def fill(post: Post, target: str, *, by_hand: bool) -> None:
    """Adds other customers with their configurations, and many old messages of this one."""
    key, now = post.tenant.ids["api_key"], int(post.clock.now.timestamp() * 1000)
    others = [f"other{number}" for number in range(OTHERS)]
    endpoint = {"endpoint_id": "ep_1", "url": "u", "disabled": False, "disabled_reason": "", "secret_sealed": "s"}
    queue = {"target": "ep_1", "due_at": None, "not_before": now, "holder": "", "failures": 0, "delivered_at": now}
    past = [{"api_key_id": key, "message_id": f"m{number}"} for number in range(PAST)]
    done = {"number": 0, "state": "delivered", "due_at": None, "attempts": 1}
    with writing(post.world.engine) as connection:

        def put(table: Any, rows: list[dict[str, Any]]) -> None:
            connection.execute(insert(table), rows)

        put(
            ADVANCED_WEBHOOK_CONFIG,
            [
                {"api_key_id": other, "is_enabled": True, "encrypt_data": False, "encode_data": False}
                | {"public_key": "", "enable_data_protection": False, "updated_at": now}
                for other in others
            ],
        )
        put(
            WEBHOOK_CONFIG,
            [
                {"api_key_id": other, "in_use": True, "config": "{}", "token_sealed": "", "updated_at": now}
                for other in others
            ],
        )
        put(
            WEBHOOK_ENDPOINT,
            [{"api_key_id": other, "created_at": now, "updated_at": now} | endpoint for other in others],
        )
        put(WEBHOOK_QUEUE, [{"api_key_id": other} | queue for other in others])
        put(WEBHOOK_MESSAGE, [row | {"type": "t", "payload": "{}", "created_at": now} for row in past])
        put(WEBHOOK_DELIVERY, [row | {"target": target} | done for row in past])
    if by_hand and is_sqlite(post.world.engine):
        ensure_statistics(post.world.engine, METADATA)
        post.world.engine.dispose()
        return
    with post.world.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))


@pytest.mark.parametrize("by_hand", [True, False], ids=["written", "analyzed"])
def test_every_statement_uses_an_index(post: Post, receiver: Receiver, by_hand: bool) -> None:
    post.enable()
    endpoint_id = post.endpoint(receiver.url)
    fill(post, endpoint_id, by_hand=by_hand)
    with recorded(post.world.engine) as statements:
        urls = {"rawNotificationUrl": receiver.url, "processedNotificationUrl": receiver.url}
        post.tenant("update_webhook_config", useWebhookService=True, webhookServiceConfig=urls)
        post.tenant("get_webhook_config")
        post.enable()
        post.endpoint(f"{receiver.url}/other", uid="u")
        page = post.tenant("list_advanced_webhook_endpoints", limit=1)
        page = post.tenant("list_advanced_webhook_endpoints", iterator=page["iterator"])
        post.tenant("list_advanced_webhook_endpoints", iterator=page["prevIterator"])
        post.tenant("update_advanced_webhook_endpoint", endpointId=endpoint_id, uid="v")
        post.secret(endpoint_id)
        post.begin_thread("t1")
        post.work()
        receiver.code = 410
        post.begin_thread("t2")
        post.work()
        post.tenant("delete_advanced_webhook_endpoint", endpointId=endpoint_id)
        assert queues.delete_old_messages(post.world.engine, int(post.clock.now.timestamp() * 1000) + 1) > 0

    assert len({statement for statement, _ in statements}) > 25
    with post.world.engine.connect() as connection:
        for statement, parameters in statements:
            if statement.lstrip().startswith("INSERT"):
                continue
            explain = "EXPLAIN QUERY PLAN " if is_sqlite(connection) else "EXPLAIN "
            found = connection.exec_driver_sql(explain + statement, parameters)
            plan = "\n".join(str(row[-1]) for row in found)
            for table in TABLES:
                name = table.name
                assert f"SCAN {name} " not in f"{plan} ".replace("\n", " \n"), f"{statement}\n{plan}"
                assert not re.search(rf"Seq Scan on {name}\b", plan), f"{statement}\n{plan}"
                if table in {WEBHOOK_MESSAGE, WEBHOOK_DELIVERY}:
                    # All rows of one API key are too many as well.
                    assert not re.search(rf"SEARCH {name} .*\(api_key_id=\?\)", plan), f"{statement}\n{plan}"


def test_the_number_of_statements_does_not_depend_on_the_events(post: Post, receiver: Receiver) -> None:
    post.enable()
    urls = {"rawNotificationUrl": receiver.url, "processedNotificationUrl": receiver.url}
    post.tenant("update_webhook_config", useWebhookService=True, webhookServiceConfig=urls)
    for _ in range(3):
        post.endpoint(receiver.url)
    numbers = []
    for size in (2, 200):
        threads = [
            {"commentData": [{"commentText": "Why?", "from": {"userId": "ada"}}], "annotationId": f"{size}-{number}"}
            for number in range(size)
        ]
        with recorded(post.world.engine) as statements:
            post.tenant("add_comment_annotations", **DOCUMENT, commentAnnotations=threads)
        numbers.append(len(statements))
    # A driver that sends rows in portions needs a few more.
    assert numbers[1] <= numbers[0] + 2
    assert len(post.states()) == 202 * 5
