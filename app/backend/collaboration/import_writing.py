"""Imported records written, each in the place of one with its id.

A batch of records of one kind and one organization takes a fixed number of statements.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, Table, bindparam, delete, func, insert, select, update

from app.backend.collaboration import activities, comments, notifications, threads
from app.backend.collaboration.comments import Reaction, StoredComment
from app.backend.collaboration.import_records import (
    CommentRecord,
    Record,
)
from app.backend.collaboration.notifications import NewNotification
from app.backend.collaboration.tables import (
    COMMENT,
    COMMENT_ANNOTATION,
    NOTIFICATION,
    NOTIFICATION_USER,
    REACTION,
    RECORDING,
)
from app.backend.collaboration.threads import Thread
from app.backend.scope import Scope, within
from app.backend.storage import json_sets
from app.backend.storage.json_sets import among
from app.backend.storage.rows import insert_rows, update_rows
from app.contract.errors import InvalidArgument

RecordT = TypeVar("RecordT", bound=Record)
_ELSEWHERE = "annotationId: is a thread of another document"


class Placed(NamedTuple):
    """A record with its kind and the number of its line."""

    line: int
    kind: str
    record: Any


class Refused(NamedTuple):
    """A record that cannot be written, and why."""

    line: int
    problem: str


def write(connection: Connection, scope: Scope, kind: str, records: Sequence[Placed], now: int) -> list[Refused]:
    """Writes records of one kind and one organization, whose documents are there. Of two with one id the last stands.

    What has no time of its own happened ``now``.
    """
    last = {placed.record.record_id: placed for placed in records}
    return _WRITERS[kind](connection, scope, list(last.values()), now)


def _write_annotations(connection: Connection, scope: Scope, records: Sequence[Placed], now: int) -> list[Refused]:
    there = threads.load_threads(connection, scope, [placed.record.annotation_id for placed in records])
    refused: list[Refused] = []
    new: list[Thread] = []
    changed: list[Thread] = []
    for line, _, record in records:
        thread = there.get(record.annotation_id)
        if thread is not None and thread.document_id != record.document_id:
            refused.append(Refused(line, _ELSEWHERE))
            continue
        made = Thread(record.annotation_id, record.document_id, created_at=_time(record.created_at, now))
        made.updated_at = made.created_at
        made.comment_bytes = 0 if thread is None else thread.comment_bytes
        try:
            made.update(record, "record")
        except InvalidArgument as error:
            refused.append(Refused(line, error.message.removeprefix("record.")))
            continue
        (new if thread is None else changed).append(made)
    threads.insert_threads(connection, scope, new)
    threads.update_threads(connection, scope, changed)
    update_rows(connection, COMMENT_ANNOTATION, ("created_at",), map(scope.row, changed))
    threads.add_participants(connection, scope, [(one.annotation_id, one.assigned_to) for one in new])
    threads.refresh_participants(connection, scope, [one.annotation_id for one in changed])
    return refused


def _write_comments(connection: Connection, scope: Scope, records: Sequence[Placed], now: int) -> list[Refused]:
    there = threads.load_threads(connection, scope, {placed.record.annotation_id for placed in records})
    refused: list[Refused] = []
    made: list[StoredComment] = []
    new: dict[str, Thread] = {}
    for line, _, record in records:
        thread = there.get(record.annotation_id) or new.get(record.annotation_id)
        if thread is None:
            created_at = _time(record.created_at, now)
            thread = new[record.annotation_id] = Thread(
                record.annotation_id, record.document_id, created_at=created_at, updated_at=created_at
            )
        elif thread.document_id != record.document_id:
            refused.append(Refused(line, _ELSEWHERE))
            continue
        made.append(_comment(line, record, now))
    threads.insert_threads(connection, scope, new.values())
    replaced = _replace_comments(connection, scope, made)
    comments.insert_comments(connection, scope, made)
    threads.add_participants(connection, scope, [(one.annotation_id, one.author_id) for one in made])
    threads.refresh_participants(connection, scope, list(replaced))
    grown: dict[str, int] = {annotation_id: -size for annotation_id, size in replaced.items()}
    for one in made:
        grown[one.annotation_id] = grown.get(one.annotation_id, 0) + one.size
    _grow(connection, scope, grown)
    return refused


def _write_reactions(connection: Connection, scope: Scope, records: Sequence[Placed], now: int) -> list[Refused]:
    rows = []
    for _, _, record in records:
        payload = record.unknown_fields() | {"from": record.from_.to_wire()}
        if record.icon is not None:
            payload["icon"] = record.icon
        reaction = Reaction(
            record.reaction_id,
            record.document_id,
            record.annotation_id or "",
            record.comment_id or "",
            record.from_.user_id,
            payload,
            _time(record.created_at, now),
        )
        rows.append(scope.row(reaction))
    _replace(connection, scope, REACTION, "reaction_id", rows)
    return []


def _write_recordings(connection: Connection, scope: Scope, records: Sequence[Placed], now: int) -> list[Refused]:
    rows = []
    for _, _, record in records:
        rows.append(
            scope.columns()
            | {
                "recording_id": record.recording_id,
                "document_id": record.document_id,
                "user_id": record.from_.user_id,
                "payload": json_sets.dump(record.unknown_fields() | {"from": record.from_.to_wire()}),
                "created_at": _time(record.created_at, now),
            }
        )
    _replace(connection, scope, RECORDING, "recording_id", rows)
    return []


def _write_notifications(connection: Connection, scope: Scope, records: Sequence[Placed], now: int) -> list[Refused]:
    rows = []
    user_rows = []
    for _, _, record in records:
        readers = dict.fromkeys(record.read_by_user_ids or ())
        persists = set(record.persist_read_for_user_ids or ())
        row = notifications.row(
            scope,
            NewNotification(
                record.id,
                record.document_id,
                record.location_id or "",
                notifications.payload_of(record),
                _time(record.timestamp, now),
            ),
        )
        rows.append(row | {"readers": len(readers)})
        for user_id in dict.fromkeys([*(user.user_id for user in record.notify_users or ()), *readers]):
            is_read = user_id in readers
            user_rows.append(
                notifications.user_row(row, user_id)
                | {"read_at": row["created_at"] if is_read else None, "persists": is_read and user_id in persists}
            )
    ids = [str(row["notification_id"]) for row in rows]
    connection.execute(
        delete(NOTIFICATION_USER).where(
            within(NOTIFICATION_USER, scope), among(connection, NOTIFICATION_USER.c.notification_id, ids)
        )
    )
    _replace(connection, scope, NOTIFICATION, "notification_id", rows)
    insert_rows(connection, NOTIFICATION_USER, user_rows)
    return []


def _write_activities(connection: Connection, scope: Scope, records: Sequence[Placed], now: int) -> list[Refused]:
    rows = []
    for _, _, record in records:
        rows.append(activities.row_of_input(scope, record.document_id, record.id, record, now))
    activities.write_activities(connection, scope, rows)
    return []


_Writer = Callable[[Connection, Scope, Sequence[Placed], int], list[Refused]]

_WRITERS: Mapping[str, _Writer] = MappingProxyType(
    {
        "annotation": _write_annotations,
        "comment": _write_comments,
        "reaction": _write_reactions,
        "recording": _write_recordings,
        "notification": _write_notifications,
        "activity": _write_activities,
    }
)


def _time(given: int | None, now: int) -> int:
    return now if given is None else given


def _comment(line: int, record: CommentRecord, now: int) -> StoredComment:
    created_at = _time(record.created_at, now)
    payload = record.unknown_fields() | {"commentText": record.comment_text, "from": record.from_.to_wire()}
    payload |= json_sets.without_none(commentHtml=record.comment_html, agent=record.agent)
    return StoredComment(
        record.annotation_id,
        record.comment_id,
        number=line,
        author_id=record.from_.user_id,
        payload=payload,
        created_at=created_at,
        updated_at=created_at,
    )


def _replace_comments(connection: Connection, scope: Scope, made: Sequence[StoredComment]) -> dict[str, int]:
    """Deletes the comments that others take the place of; how long they were together, by thread."""
    wanted = {(one.annotation_id, one.comment_id) for one in made}
    query = select(COMMENT.c.annotation_id, COMMENT.c.comment_id, func.length(COMMENT.c.payload).label("size")).where(
        within(COMMENT, scope),
        among(connection, COMMENT.c.annotation_id, {pair[0] for pair in wanted}),
        among(connection, COMMENT.c.comment_id, {pair[1] for pair in wanted}),
    )
    sizes: dict[str, int] = {}
    gone = []
    for row in connection.execute(query):
        if (row.annotation_id, row.comment_id) in wanted:
            sizes[row.annotation_id] = sizes.get(row.annotation_id, 0) + int(row.size)
            gone.append({"thread": row.annotation_id, "key": row.comment_id})
    if gone:
        connection.execute(
            delete(COMMENT).where(
                within(COMMENT, scope),
                COMMENT.c.annotation_id == bindparam("thread"),
                COMMENT.c.comment_id == bindparam("key"),
            ),
            gone,
        )
    return sizes


def _grow(connection: Connection, scope: Scope, grown: Mapping[str, int]) -> None:
    if grown:
        connection.execute(
            update(COMMENT_ANNOTATION)
            .where(within(COMMENT_ANNOTATION, scope), COMMENT_ANNOTATION.c.annotation_id == bindparam("key"))
            .values(comment_bytes=COMMENT_ANNOTATION.c.comment_bytes + bindparam("more")),
            [{"key": annotation_id, "more": more} for annotation_id, more in grown.items()],
        )


def _replace(connection: Connection, scope: Scope, table: Table, key: str, rows: Sequence[dict[str, object]]) -> None:
    ids = [str(row[key]) for row in rows]
    connection.execute(delete(table).where(within(table, scope), among(connection, table.c[key], ids)))
    connection.execute(insert(table), list(rows))
