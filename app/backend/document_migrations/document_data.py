"""What hangs on a document, and its way to another id.

Every table that names documents stands in the list below (a test sees to it). Rows move some at a time, each batch
through an index, whatever there is of others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, select, update
from sqlalchemy.sql.selectable import ScalarSelect

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
from app.backend.scope import Scope, within
from app.backend.storage import json_sets


def _nothing_else(connection: Connection, api_key_id: str) -> None:
    """Nobody has to be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hanging:
    """A table whose rows hang on documents. ``key`` tells a row from the others of its document."""

    table: Table
    key: str
    column: str = "document_id"
    level: str | None = None
    """The value of ``level`` in the rows that are meant, where the table has others."""
    may_meet: bool = False
    """Whether a row at the new id can be in the way of one of the same key."""
    gives_way: bool = False
    """Whether a row that meets one at the new id is dropped: the newer word stands. Otherwise it stays where it is."""
    companions: tuple[Table, ...] = ()
    """Tables whose rows repeat the document of the row with the same key."""
    batch: int = 500
    """How many rows go at a time."""
    moved: Callable[[Connection, str], None] = _nothing_else
    """Called with the API key when rows have moved."""

    def at(self, scope: Scope, document_id: str) -> ColumnElement[bool]:
        """The rows that hang on this document."""
        rows = and_(within(self.table, scope), self.table.c[self.column] == document_id)
        return rows if self.level is None else and_(rows, self.table.c.level == self.level)


HANGING: Sequence[Hanging] = (
    # Access first: the other data is of no use to those who cannot get in.
    Hanging(table=USER_ENTRY, key="user_id", column="container_id", level="document", may_meet=True, gives_way=True),
    # One can be megabytes long.
    Hanging(table=EDITOR_DATA, key="editor_id", may_meet=True, batch=20),
    Hanging(table=COMMENT_ANNOTATION, key="annotation_id"),
    Hanging(table=REACTION, key="reaction_id"),
    Hanging(table=RECORDING, key="recording_id"),
    # One can be for a thousand users.
    Hanging(table=NOTIFICATION, key="notification_id", companions=(NOTIFICATION_USER,), batch=50),
    Hanging(table=ACTIVITY, key="activity_id"),
    Hanging(table=JUDGMENT, key="seq", moved=begin_generation),
)
"""In the order in which they move."""


def move_some(connection: Connection, scope: Scope, document_id: str, new_document_id: str) -> int:
    """Moves one batch of one table; how many rows. 0: nothing is left that can move."""
    for hanging in HANGING:
        moved = _move_batch(connection, hanging, scope, document_id, new_document_id)
        if moved:
            hanging.moved(connection, scope.api_key_id)
            return moved
    return 0


def tables_with_data(connection: Connection, scope: Scope, document_id: str) -> list[str]:
    """In which tables something hangs on the document."""
    return [
        hanging.table.name
        for hanging in HANGING
        if connection.scalar(select(hanging.table.c[hanging.key]).where(hanging.at(scope, document_id)).limit(1))
        is not None
    ]


def _move_batch(connection: Connection, hanging: Hanging, scope: Scope, document_id: str, new_document_id: str) -> int:
    key = hanging.table.c[hanging.key]
    rows = hanging.at(scope, document_id)
    if hanging.may_meet:
        there = _keys_at(hanging, scope, new_document_id)
        if hanging.gives_way:
            connection.execute(delete(hanging.table).where(rows, key.in_(there)))
        else:
            rows = and_(rows, key.not_in(there))
    keys = list(connection.scalars(select(key).where(rows).limit(hanging.batch)))
    if not keys:
        return 0
    chosen = json_sets.integers if isinstance(keys[0], int) else json_sets.texts
    for table in (hanging.table, *hanging.companions):
        named = table.c[hanging.key].in_(chosen(connection, keys))
        # Only the table itself has its rows' level; the companions' keys say enough.
        where = (
            and_(hanging.at(scope, document_id), named) if table is hanging.table else and_(within(table, scope), named)
        )
        column = hanging.column if table is hanging.table else "document_id"
        connection.execute(update(table).where(where).values({column: new_document_id}))
    return len(keys)


def _keys_at(hanging: Hanging, scope: Scope, document_id: str) -> ScalarSelect[object]:
    other = hanging.table.alias("other")
    rows = [within(other, scope), other.c[hanging.column] == document_id]  # type: ignore[arg-type]  # an alias has columns, too
    if hanging.level is not None:
        rows.append(other.c.level == hanging.level)
    return select(other.c[hanging.key]).where(*rows).scalar_subquery()
