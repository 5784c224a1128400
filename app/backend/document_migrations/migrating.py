"""Moves a document's data to a new id, in steps that survive the crash of a process.

A migration is a row with a lease. Each step moves one batch (see ``document_data``) and renews the lease in the same
transaction, so writers never wait long. When a process dies, its lease expires and another process continues after the
last step. Rows that arrive under the old id meanwhile move as well: the old document is deleted in the transaction that
finds it empty.
"""

from typing import Any, NoReturn

import structlog
from sqlalchemy import ColumnElement, Connection, Row, Select, and_, delete, select, update
from sqlalchemy.exc import DBAPIError

from app.backend.document_migrations.document_data import has_data, move_batch
from app.backend.document_migrations.tables import DOCUMENT_MIGRATION
from app.backend.http.call import Backend
from app.backend.ids import new_id
from app.backend.resources import user_entries
from app.backend.resources.containers import document_exists
from app.backend.resources.tables import DOCUMENT
from app.backend.resources.user_entries import EntryContainer
from app.backend.scope import Scope, within
from app.backend.storage.locks import lock_for_writing
from app.contract.documents import MigrationState
from app.foundation.clock import epoch_ms
from app.foundation.database.engine import reading
from app.foundation.database.errors import cause_of

_log = structlog.stdlib.get_logger(__name__)

LEASE_MS = 60_000
"""Much longer than a step."""
TRIES = 5
"""The number of processes that may crash in one step before the migration fails."""
POLL_SECONDS = 30.0
"""The interval at which a server looks for migrations with an expired lease."""
RETENTION_MS = 30 * 24 * 60 * 60 * 1000
"""How long a completed migration is kept. A failed one is kept until it is restarted."""
_PAUSE = 0.002
"""Seconds between two steps, for other writers."""

Migration = Row[str, str, str, str, str, int]
_COLUMNS = (
    DOCUMENT_MIGRATION.c.api_key_id,
    DOCUMENT_MIGRATION.c.migration_id,
    DOCUMENT_MIGRATION.c.organization_id,
    DOCUMENT_MIGRATION.c.document_id,
    DOCUMENT_MIGRATION.c.new_document_id,
    DOCUMENT_MIGRATION.c.tries,
)


def migrate_all(backend: Backend) -> None:
    """Runs every migration without a valid lease to its end, one after the other."""
    owner = new_id(backend.entropy)
    try:
        _delete_old(backend)
        while (migration := _claim(backend, owner)) is not None:
            _run_steps(backend, migration, owner)
    except DBAPIError as error:
        # The database is unavailable or busy. A later poll continues after the lease has expired.
        _log.warning("migrations_interrupted", problem=type(error.orig).__name__, reason=cause_of(error))


def run_migrations(backend: Backend) -> NoReturn:
    """Runs new migrations at once, and continues abandoned ones at regular intervals. Needs its own thread."""
    while True:
        try:
            migrate_all(backend)
        except Exception:  # noqa: BLE001 - the thread must go on
            _log.exception("migrations_failed")
        backend.migrations_due.wait(POLL_SECONDS)
        backend.migrations_due.clear()


def step(backend: Backend, migration: Migration, owner: str) -> bool:
    """Moves one batch in its own transaction. Returns True if this owner has nothing more to do."""
    scope = Scope(migration.api_key_id, migration.organization_id)
    old, new = migration.document_id, migration.new_document_id
    with backend.writing() as connection:
        lock_for_writing(connection, migration.api_key_id)
        now = _now(backend)
        if not _renew(connection, migration, owner, now):
            return True
        if not document_exists(connection, scope, new):
            # It was deleted in the meantime. The remaining rows stay at the old document.
            _end(connection, migration, "failed", now)
            return True
        user_entries.drop_expired(connection, scope, EntryContainer("document", new), now)
        if move_batch(connection, scope, old, new):
            return False
        if has_data(connection, scope, old):
            _end(connection, migration, "failed", now)
            return True
        _copy_later_changes(connection, scope, old, new)
        connection.execute(delete(DOCUMENT).where(within(DOCUMENT, scope), DOCUMENT.c.document_id == old))
        _end(connection, migration, "completed", now)
        return True


def _delete_old(backend: Backend) -> None:
    limit = _now(backend) - RETENTION_MS
    old = and_(DOCUMENT_MIGRATION.c.status == "completed", DOCUMENT_MIGRATION.c.updated_at < limit)
    with reading(backend.engine) as connection:
        if connection.execute(select(DOCUMENT_MIGRATION.c.migration_id).where(old).limit(1)).one_or_none() is None:
            return
    with backend.writing() as connection:
        connection.execute(delete(DOCUMENT_MIGRATION).where(old))


def _run_steps(backend: Backend, migration: Migration, owner: str) -> None:
    try:
        while not step(backend, migration, owner):
            backend.sleep(_PAUSE)
    except DBAPIError:
        raise
    except Exception:  # noqa: BLE001 - after any error the migration fails
        # It must not block the other migrations.
        _log.exception("migration_failed", migration=migration.migration_id)
        with backend.writing() as connection:
            _end(connection, migration, "failed", _now(backend))


def _claim(backend: Backend, owner: str) -> Migration | None:
    """Takes the lease of a migration for ``owner``. None if there is none without a valid lease."""
    while True:
        now = _now(backend)
        free = and_(DOCUMENT_MIGRATION.c.open.is_(True), DOCUMENT_MIGRATION.c.lease_until <= now)
        with reading(backend.engine) as connection:
            migration = connection.execute(
                select(*_COLUMNS).where(free).order_by(DOCUMENT_MIGRATION.c.lease_until).limit(1)
            ).one_or_none()
        if migration is None:
            return None
        with backend.writing() as connection:
            # Of several processes that read this row, the first one gets the lease.
            claimed = connection.execute(
                update(DOCUMENT_MIGRATION)
                .where(_is(migration), free)
                .values(
                    lease_owner=owner,
                    lease_until=now + LEASE_MS,
                    status="in_progress",
                    tries=DOCUMENT_MIGRATION.c.tries + 1,
                    updated_at=now,
                )
            )
            if claimed.rowcount and migration.tries < TRIES:
                return migration
            if claimed.rowcount:
                _end(connection, migration, "failed", now)


def _renew(connection: Connection, migration: Migration, owner: str, now: int) -> bool:
    """Renews the lease, and resets the number of tries. Returns False if ``owner`` has lost the lease."""
    renewed = connection.execute(
        update(DOCUMENT_MIGRATION)
        .where(
            _is(migration),
            DOCUMENT_MIGRATION.c.open.is_(True),
            DOCUMENT_MIGRATION.c.lease_owner == owner,
        )
        .values(lease_until=now + LEASE_MS, tries=0, updated_at=now)
    )
    return bool(renewed.rowcount)


def _end(connection: Connection, migration: Migration, status: MigrationState, now: int) -> None:
    ended = {"status": status, "open": False, "lease_owner": "", "lease_until": 0, "updated_at": now}
    connection.execute(update(DOCUMENT_MIGRATION).where(_is(migration)).values(ended))


def _is(migration: Migration) -> ColumnElement[bool]:
    table = DOCUMENT_MIGRATION.c
    return and_(table.api_key_id == migration.api_key_id, table.migration_id == migration.migration_id)


def _copy_later_changes(connection: Connection, scope: Scope, document_id: str, new_document_id: str) -> None:
    """Copies changes of the old document since it was copied, such as a restriction of access."""
    old = connection.execute(document_row(scope, document_id)).mappings().one_or_none()
    new = connection.execute(document_row(scope, new_document_id)).mappings().one()
    if old is not None and old["updated_at"] > new["updated_at"]:
        changes = {name: old[name] for name in ("folder_id", "own_access_type", "payload", "updated_at")}
        is_new = DOCUMENT.c.document_id == new_document_id
        connection.execute(update(DOCUMENT).where(within(DOCUMENT, scope), is_new).values(changes))


def document_row(scope: Scope, document_id: str) -> Select[Any]:
    """A query of a document's row."""
    return select(DOCUMENT).where(within(DOCUMENT, scope), DOCUMENT.c.document_id == document_id)


def _now(backend: Backend) -> int:
    return epoch_ms(backend.clock())
