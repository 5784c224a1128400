"""Moves the rows of a document to another document id, in batches.

``DEPENDENT_TABLES`` lists every table with a document id, which a test checks. Each batch is an index lookup.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, select, update

from app.backend.collaboration.tables import (
    ACTIVITY,
    COMMENT_ANNOTATION,
    NOTIFICATION,
    NOTIFICATION_USER,
    REACTION,
    RECORDING,
)
from app.backend.editor.tables import EDITOR_DATA
from app.backend.judgments.store import begin_generation
from app.backend.judgments.tables import JUDGMENT
from app.backend.resources.tables import USER_ENTRY
from app.backend.scope import Scope, within, within_ids
from app.backend.storage.rows import among


@dataclass(frozen=True, slots=True, kw_only=True)
class DependentTable:
    """A table whose rows belong to documents. ``key`` distinguishes the rows of one document."""

    table: Table
    key: str
    column: str = "document_id"
    level: str | None = None
    """Limits the rows to this value of ``level``."""
    may_conflict: bool = False
    """Whether the new document may have a row with the same key."""
    drops_conflicting: bool = False
    """Whether a row is deleted if the new document has one with its key. Otherwise it is not moved."""
    companions: tuple[Table, ...] = ()
    """Tables whose rows repeat the document of the row with the same key."""
    batch: int = 500
    """The number of rows in a batch."""
    on_moved: Callable[[Connection, str], None] | None = None
    """Called with the API key after rows have moved."""

    def at(self, scope: Scope, document_id: str) -> ColumnElement[bool]:
        """The rows of this document."""
        rows = and_(within(self.table, scope), self.table.c[self.column] == document_id)
        return rows if self.level is None else and_(rows, self.table.c.level == self.level)


DEPENDENT_TABLES: Sequence[DependentTable] = (
    # Access first, because users need it for everything else.
    DependentTable(
        table=USER_ENTRY,
        key="user_id",
        column="container_id",
        level="document",
        may_conflict=True,
        drops_conflicting=True,
    ),
    # A row may have megabytes.
    DependentTable(table=EDITOR_DATA, key="editor_id", may_conflict=True, batch=20),
    DependentTable(table=COMMENT_ANNOTATION, key="annotation_id"),
    DependentTable(table=REACTION, key="reaction_id"),
    DependentTable(table=RECORDING, key="recording_id"),
    # A notification may have a thousand users.
    DependentTable(table=NOTIFICATION, key="notification_id", companions=(NOTIFICATION_USER,), batch=50),
    DependentTable(table=ACTIVITY, key="activity_id"),
    DependentTable(table=JUDGMENT, key="seq", on_moved=begin_generation),
)
"""In the order of the move."""


def move_batch(connection: Connection, scope: Scope, document_id: str, new_document_id: str) -> int:
    """Moves one batch of one table. Returns the number of rows: 0 if there is nothing left to move."""
    for dependent in DEPENDENT_TABLES:
        moved = _move_batch_of(connection, dependent, scope, document_id, new_document_id)
        if moved:
            if dependent.on_moved is not None:
                dependent.on_moved(connection, scope.api_key_id)
            return moved
    return 0


def has_data(connection: Connection, scope: Scope, document_id: str) -> bool:
    """Whether any table has rows of the document."""
    for dependent in DEPENDENT_TABLES:
        query = select(dependent.table.c[dependent.key]).where(dependent.at(scope, document_id)).limit(1)
        if connection.scalar(query) is not None:
            return True
    return False


def _move_batch_of(
    connection: Connection, dependent: DependentTable, scope: Scope, document_id: str, new_document_id: str
) -> int:
    key = dependent.table.c[dependent.key]
    rows = dependent.at(scope, document_id)
    if dependent.may_conflict:
        conflicting = select(key).where(dependent.at(scope, new_document_id)).correlate(None).scalar_subquery()
        if dependent.drops_conflicting:
            connection.execute(delete(dependent.table).where(rows, key.in_(conflicting)))
        else:
            rows = and_(rows, key.not_in(conflicting))
    keys = list(connection.scalars(select(key).where(rows).limit(dependent.batch)))
    if not keys:
        return 0
    connection.execute(
        update(dependent.table)
        .where(dependent.at(scope, document_id), among(connection, key, keys))
        .values({dependent.column: new_document_id})
    )
    for table in dependent.companions:
        connection.execute(
            update(table)
            .where(within_ids(connection, scope, table.c[dependent.key], keys))
            .values(document_id=new_document_id)
        )
    return len(keys)
