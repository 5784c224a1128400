"""Items that somebody chose one by one, as a temporary table for the statements that are about those alone."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from sqlalchemy import Connection

from app.foundation.database.statements import run, statement


class ItemKey(NamedTuple):
    """What identifies an item."""

    kind: str
    organization_id: str
    container_id: str
    item_id: str


_TABLE = """
CREATE TEMPORARY TABLE chosen (
  kind TEXT NOT NULL,
  organization_id TEXT NOT NULL,
  container_id TEXT NOT NULL,
  item_id TEXT NOT NULL,
  PRIMARY KEY (kind, organization_id, container_id, item_id)
) @keyed
"""

_FILL = "INSERT INTO chosen VALUES (:kind, :organization_id, :container_id, :item_id)"

_IS_CHOSEN = """EXISTS (
    SELECT 1 FROM chosen WHERE chosen.kind = {row}.kind AND chosen.organization_id = {row}.organization_id
    AND chosen.container_id = {row}.container_id AND chosen.item_id = {row}.item_id)"""


@contextmanager
def chosen(connection: Connection, items: Sequence[ItemKey], row: str) -> Iterator[str]:
    """Within it, the condition that ``row``, a table with the columns of an item, is one of these; of none: any."""
    if not items:
        yield "TRUE"
        return
    run(connection, _TABLE)
    connection.execute(statement(connection, _FILL), [item._asdict() for item in dict.fromkeys(items)])
    yield _IS_CHOSEN.replace("{row}", row)
    run(connection, "DROP TABLE chosen")
