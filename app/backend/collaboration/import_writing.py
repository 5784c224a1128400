"""Writes imported records and replaces those with the same id.

A batch of records of one kind in one organization takes a fixed number of statements, and one more for each thread
with replaced comments.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, delete, func, select, update

from app.backend.collaboration import activities, comments, notifications, threads
from app.backend.collaboration.comments import Reaction, StoredComment
from app.backend.collaboration.tables import (
    COMMENT,
    COMMENT_ANNOTATION,
    NOTIFICATION,
    NOTIFICATION_USER,
    REACTION,
    RECORDING,
)
from app.backend.collaboration.threads import Thread
from app.backend.scope import Scope, delete_rows, within, within_ids
from app.backend.storage import json_columns
from app.backend.storage.rows import Writable, among, insert_rows
from app.contract.errors import InvalidArgument
from app.foundation.batches import grouped

_WRONG_DOCUMENT = "annotationId: is a thread of another document"


class ImportLine(NamedTuple):
    """A parsed line of the file."""

    number: int
    kind: str
    record: Any


class LineProblem(NamedTuple):
    """The reason why a line cannot be imported."""

    number: int
    problem: str


def write(connection: Connection, scope: Scope, kind: str, lines: Sequence[ImportLine], now: int) -> list[LineProblem]:
    """Writes records of one kind in one organization, whose documents exist. The last of equal ids wins. Records
    without a time get ``now``."""
    write_lines, *id_fields = _WRITERS[kind]
    last = {tuple(getattr(line.record, name) for name in id_fields): line for line in lines}
    return write_lines(connection, scope, list(last.values()), now) or []


def _write_annotations(
    connection: Connection, scope: Scope, lines: Sequence[ImportLine], now: int
) -> list[LineProblem]:
    existing = threads.load_threads(connection, scope, [line.record.annotation_id for line in lines])
    problems: list[LineProblem] = []
    written: list[Thread] = []
    for number, _, record in lines:
        old = existing.get(record.annotation_id)
        if old is not None and old.document_id != record.document_id:
            problems.append(LineProblem(number, _WRONG_DOCUMENT))
            continue
        created_at = _time(record.created_at, now)
        thread = Thread(record.annotation_id, record.document_id, created_at=created_at, updated_at=created_at)
        thread.comment_bytes = 0 if old is None else old.comment_bytes
        try:
            thread.update(record, "")
        except InvalidArgument as error:
            problems.append(LineProblem(number, error.message))
            continue
        written.append(thread)
    _replace(connection, scope, COMMENT_ANNOTATION, "annotation_id", [scope.row(thread) for thread in written])
    threads.refresh_participants(connection, scope, [thread.annotation_id for thread in written])
    return problems


def _write_comments(connection: Connection, scope: Scope, lines: Sequence[ImportLine], now: int) -> list[LineProblem]:
    existing = threads.load_threads(connection, scope, {line.record.annotation_id for line in lines})
    problems: list[LineProblem] = []
    new: dict[str, Thread] = {}
    written: list[StoredComment] = []
    for number, _, record in lines:
        annotation_id, created_at = record.annotation_id, _time(record.created_at, now)
        thread = existing.get(annotation_id) or new.get(annotation_id)
        if thread is None:
            new[annotation_id] = Thread(annotation_id, record.document_id, created_at=created_at, updated_at=created_at)
        elif thread.document_id != record.document_id:
            problems.append(LineProblem(number, _WRONG_DOCUMENT))
            continue
        comment = StoredComment(annotation_id, record.comment_id, number, created_at=created_at, updated_at=created_at)
        comment.update(record)
        written.append(comment)
    threads.insert_threads(connection, scope, new.values())
    _delete_replaced(connection, scope, written)
    comments.insert_comments(connection, scope, written)
    annotation_ids = list(dict.fromkeys(comment.annotation_id for comment in written))
    threads.refresh_participants(connection, scope, annotation_ids)
    of_thread = within(COMMENT, scope) & (COMMENT.c.annotation_id == COMMENT_ANNOTATION.c.annotation_id)
    size = select(func.coalesce(func.sum(func.length(COMMENT.c.payload)), 0)).where(of_thread).scalar_subquery()
    changed = within_ids(connection, scope, COMMENT_ANNOTATION.c.annotation_id, annotation_ids)
    connection.execute(update(COMMENT_ANNOTATION).where(changed).values(comment_bytes=size))
    return problems


def _delete_replaced(connection: Connection, scope: Scope, new: Sequence[StoredComment]) -> None:
    """Deletes the stored comments with these ids, with one statement for each of their threads: PostgreSQL may read the
    whole thread for each statement."""
    keys = {(comment.annotation_id, comment.comment_id) for comment in new}
    table = COMMENT.c
    query = select(table.annotation_id, table.comment_id).where(
        within_ids(connection, scope, table.annotation_id, {annotation_id for annotation_id, _ in keys}),
        among(connection, table.comment_id, {comment_id for _, comment_id in keys}),
    )
    stored = grouped((row.annotation_id, row.comment_id) for row in connection.execute(query) if tuple(row) in keys)
    for annotation_id, comment_ids in stored.items():
        replaced = within_ids(connection, scope, table.comment_id, comment_ids)
        connection.execute(delete(COMMENT).where(replaced, table.annotation_id == annotation_id))


def _write_reactions(connection: Connection, scope: Scope, lines: Sequence[ImportLine], now: int) -> None:
    rows = []
    for _, _, record in lines:
        payload = record.unknown_fields() | {"from": record.from_.to_wire()}
        reaction = Reaction(
            record.reaction_id,
            record.document_id,
            record.annotation_id or "",
            record.comment_id or "",
            record.from_.user_id,
            payload | json_columns.without_none(icon=record.icon),
            _time(record.created_at, now),
        )
        rows.append(scope.row(reaction))
    _replace(connection, scope, REACTION, "reaction_id", rows)


def _write_recordings(connection: Connection, scope: Scope, lines: Sequence[ImportLine], now: int) -> None:
    rows = [
        scope.columns()
        | {
            "recording_id": record.recording_id,
            "document_id": record.document_id,
            "user_id": record.from_.user_id,
            "payload": json_columns.dump(record.unknown_fields() | {"from": record.from_.to_wire()}),
            "created_at": _time(record.created_at, now),
        }
        for _, _, record in lines
    ]
    _replace(connection, scope, RECORDING, "recording_id", rows)


def _write_notifications(connection: Connection, scope: Scope, lines: Sequence[ImportLine], now: int) -> None:
    rows: list[Writable] = []
    user_rows: list[Writable] = []
    for _, _, record in lines:
        readers = dict.fromkeys(record.read_by_user_ids or ())
        persisting = set(record.persist_read_for_user_ids or ())
        row = notifications.notification_row(
            scope,
            record.id,
            notifications.payload_of(record),
            _time(record.timestamp, now),
            document_id=record.document_id,
            location_id=record.location_id or "",
        )
        rows.append(row | {"readers": len(readers)})
        for user_id in dict.fromkeys([*(user.user_id for user in record.notify_users or ()), *readers]):
            user_row = notifications.user_row(row, user_id)
            if user_id in readers:
                user_row |= {"read_at": row["created_at"], "persists": user_id in persisting}
            user_rows.append(user_row)
    _replace(connection, scope, NOTIFICATION, "notification_id", rows)
    delete_rows(connection, scope, NOTIFICATION_USER.c.notification_id, [str(row["notification_id"]) for row in rows])
    insert_rows(connection, NOTIFICATION_USER, user_rows)


def _write_activities(connection: Connection, scope: Scope, lines: Sequence[ImportLine], now: int) -> None:
    rows = [activities.activity_row(scope, record.document_id, record.id, record, now) for _, _, record in lines]
    activities.write_activities(connection, scope, rows)


_Writer = Callable[[Connection, Scope, Sequence[ImportLine], int], list[LineProblem] | None]

_WRITERS: Mapping[str, tuple[_Writer, *tuple[str, ...]]] = MappingProxyType(
    {
        "annotation": (_write_annotations, "annotation_id"),
        "comment": (_write_comments, "annotation_id", "comment_id"),
        "reaction": (_write_reactions, "reaction_id"),
        "recording": (_write_recordings, "recording_id"),
        "notification": (_write_notifications, "id"),
        "activity": (_write_activities, "id"),
    }
)
"""The writer of each kind, and the fields that identify a record in its organization."""


def _time(time: int | None, now: int) -> int:
    return now if time is None else time


def _replace(connection: Connection, scope: Scope, table: Table, key: str, rows: Sequence[Writable]) -> None:
    delete_rows(connection, scope, table.c[key], [str(row[key]) for row in rows])
    insert_rows(connection, table, rows)
