"""Applies the objects that a directory pushes: each replaces the records that it provided before, in one transaction.

Reads of the source that began before do not undo it (``app.access.refresh.pushed_keys``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, update

from app.access.records import Record
from app.access.refresh.push_sequences import count_push
from app.access.refresh.pushed_keys import OBJECT, store_pushed_keys
from app.access.refresh.pushes import PushAuditHook
from app.access.refresh.reads import CHANGES, COMPLETE, PARTIAL, StagedRead
from app.access.refresh.refresh import Refresh
from app.access.refresh.source_changes import compute_source_changes, total
from app.access.refresh.sources import SOURCE
from app.access.refresh.staging import Staging
from app.access.refresh.tables import REFRESH_TABLES
from app.foundation.database.statements import json_list, run

# The kinds of records that these objects provide.
_KINDS = " UNION ALL ".join(
    tables.text(
        "SELECT '{kind}' WHERE EXISTS (SELECT 1 FROM {source}"
        " WHERE source_id = :source_id AND origin <> '' AND origin IN (@list(origins)))"
    )
    for tables in REFRESH_TABLES
)


@dataclass(frozen=True, slots=True)
class PushedObject:
    """What an object of a source provides from now on."""

    place: str
    records: Sequence[tuple[Record, str]] = ()
    """Records, each with the number of its rule."""
    is_malformed: bool = False
    """Whether it is malformed, and also keeps what it provided before."""
    is_disabled: bool = False
    """Whether what a malformed object keeps is disabled."""
    is_new: bool = False
    """Whether it provided nothing before."""


def _stage_objects(staging: Staging, source_id: int, objects: Mapping[str, PushedObject]) -> list[str]:
    """Stages the records of objects. Returns the origins of those that may have provided records before."""
    staging.open_source(source_id)
    for origin, object_ in objects.items():
        for record, rule in object_.records:
            staging.add(record, object_.place, origin=origin, rule=rule)
        if object_.is_malformed:
            staging.add_malformed(origin, disabled=object_.is_disabled)
    earlier = [origin for origin, object_ in objects.items() if not object_.is_new]
    staging.replace_objects([origin for origin in earlier if not objects[origin].is_malformed])
    return earlier


def apply_objects(
    refresh: Refresh,
    connection: Connection,
    source_id: int,
    objects: Mapping[str, PushedObject],
    *,
    by: str,
    now_ms: int,
    audit_hook: PushAuditHook | None = None,
) -> int:
    """Replaces the records of objects (origin → object) in the transaction of ``Refresh.changing``. Returns the
    revision. ``by``: the fingerprint of the token."""
    earlier = _stage_objects(refresh.staging, source_id, objects)
    read = StagedRead(
        source_id=source_id,
        name="",
        # A partial read removes nothing.
        verdict=COMPLETE if earlier else PARTIAL,
        answered=CHANGES,
        malformed=sum(object_.is_malformed for object_ in objects.values()),
    )
    origins = {"source_id": source_id, "origins": json_list(earlier)}
    before = run(connection, _KINDS, origins).scalars() if earlier else ()
    kinds = {*before} | {record.kind for object_ in objects.values() for record, _ in object_.records}
    compute_source_changes(connection, [read], of=[tables for tables in REFRESH_TABLES if tables.kind in kinds])

    counts = refresh.write_records(connection)
    changes = total(counts)
    records = {"records": SOURCE.c.records + changes.added - changes.removed}
    is_read = SOURCE.c.reads_begun != SOURCE.c.read_in_force
    updated = update(SOURCE).where(SOURCE.c.source_id == source_id).values(records).returning(is_read)
    if connection.execute(updated).scalar_one():
        store_pushed_keys(connection, source_id, ((OBJECT, (origin,)) for origin in objects), only_pushed=True)
    pushes = count_push(connection, source_id, by=by, now_ms=now_ms)
    if audit_hook is not None:
        audit_hook(connection, asdict(changes), pushes)
    return refresh.merge(connection, counts).revision
