"""The move of everything on a document to a new id, safe against processes that die in the middle.

A migration is a row. Whoever works on it holds a lease, which each step renews in the step's own transaction; when a
process dies its lease ends and another one goes on from where the last step ended. A step moves one batch (see
``document_data``), so writers never wait long. What comes in under the old id meanwhile moves along: the old document
goes in the very transaction that finds nothing on it any more.
"""

from collections.abc import Collection

import structlog
from sqlalchemy import ColumnElement, Connection, Row, and_, delete, insert, or_, select, update
from sqlalchemy.exc import DBAPIError

from app.backend.document_migrations.document_data import move_some, tables_with_data
from app.backend.document_migrations.tables import DOCUMENT_MIGRATION
from app.backend.http.call import Backend
from app.backend.http.dispatch import lock_for_writing
from app.backend.ids import new_id
from app.backend.resources import user_entries
from app.backend.resources.containers import document_exists, require_document
from app.backend.resources.tables import DOCUMENT
from app.backend.resources.user_entries import EntryContainer
from app.backend.scope import Scope, delete_within, within
from app.contract.documents import MigrationState
from app.contract.errors import AlreadyExists, InvalidArgument
from app.foundation.clock import Sleep, epoch_ms
from app.foundation.database.engine import reading
from app.foundation.database.errors import cause_of

LEASE_MS = 60_000
"""Far more than a step takes."""
TRIES = 5
"""How many processes may die of one step."""
LOOK_SECONDS = 30.0
"""How often a server looks for what another one left."""
KEPT_MS = 30 * 24 * 60 * 60 * 1000
"""How long the status of a migration that is done can be asked for. One that failed waits to be gone on with."""
_PAUSE = 0.002
"""Between two steps, so that others who write get their turn."""

Migration = Row[str, str, str, str, str, int]
_COLUMNS = (
    DOCUMENT_MIGRATION.c.api_key_id,
    DOCUMENT_MIGRATION.c.migration_id,
    DOCUMENT_MIGRATION.c.organization_id,
    DOCUMENT_MIGRATION.c.document_id,
    DOCUMENT_MIGRATION.c.new_document_id,
    DOCUMENT_MIGRATION.c.tries,
)


def begin(connection: Connection, backend: Backend, scope: Scope, ids: tuple[str, str], now: int) -> str:
    """Notes that a document is to move from the first id to the second; the migration's id. The document is there
    under both from now on.

    One that is under way, or that failed, with the same two ids is gone on with. Raises ``NotFound``, ``AlreadyExists``
    and ``InvalidArgument``.
    """
    document_id, new_document_id = ids
    if document_id == new_document_id:
        raise InvalidArgument("data.newDocumentId: must differ from documentId")
    require_document(connection, scope, document_id)
    same = _same(connection, scope, document_id, new_document_id)
    if same is None or not same.open:
        _refuse_those_under_way(connection, scope, ids)
    if same is not None:
        if not document_exists(connection, scope, new_document_id):
            _copy_document(connection, scope, document_id, new_document_id)
        if not same.open:
            _set(connection, scope.api_key_id, same.migration_id, status="pending", open=True, tries=0, updated_at=now)
        return str(same.migration_id)
    if document_exists(connection, scope, new_document_id):
        raise AlreadyExists("data.newDocumentId: Document already exists.")
    _copy_document(connection, scope, document_id, new_document_id)
    migration_id = f"mig_{new_id(backend.entropy)}"
    connection.execute(
        insert(DOCUMENT_MIGRATION).values(
            **scope.columns(),
            migration_id=migration_id,
            document_id=document_id,
            new_document_id=new_document_id,
            status="pending",
            open=True,
            created_at=now,
            updated_at=now,
        )
    )
    return migration_id


def forget_migrations(connection: Connection, api_key_id: str, organization_ids: Collection[str]) -> None:
    """Deletes the migrations in these organizations of one API key."""
    delete_within(connection, DOCUMENT_MIGRATION, api_key_id, organization_ids)


def state_of(connection: Connection, scope: Scope, migration_id: str) -> MigrationState | None:
    """How far a migration is; None when there is none of that id in the organization."""
    return connection.scalar(
        select(DOCUMENT_MIGRATION.c.status).where(
            within(DOCUMENT_MIGRATION, scope), DOCUMENT_MIGRATION.c.migration_id == migration_id
        )
    )


def migrate_all(backend: Backend) -> None:
    """Goes on with every migration that nobody works on, one after the other, each to its end."""
    owner = new_id(backend.entropy)
    try:
        _forget_old(backend)
        while (migration := _claim(backend, owner)) is not None:
            _carry_through(backend, migration, owner)
    except DBAPIError as error:
        # The database is away or busy: whoever looks next once the lease has ended goes on.
        log = structlog.stdlib.get_logger(__name__)
        log.warning("migrations_interrupted", problem=type(error.orig).__name__, reason=cause_of(error))


def poll_migrations(backend: Backend, sleep: Sleep) -> None:
    """Goes on with what others left behind, again and again; for a thread of its own."""
    while True:
        backend.background.wake(lambda: migrate_all(backend))
        sleep(LOOK_SECONDS)


def step(backend: Backend, migration: Migration, owner: str) -> bool:
    """Moves one batch in a transaction of its own. True when there is nothing more to do for this owner."""
    scope = Scope(migration.api_key_id, migration.organization_id)
    old, new = migration.document_id, migration.new_document_id
    with backend.writing() as connection:
        lock_for_writing(connection, migration.api_key_id)
        now = _now(backend)
        if not _renew(connection, migration, owner, now):
            return True
        if not document_exists(connection, scope, new):
            # Somebody deleted it meanwhile. What has not moved stays where it is.
            _end(connection, migration, "failed", now)
            return True
        user_entries.drop_expired(connection, scope, EntryContainer("document", new), now)
        if move_some(connection, scope, old, new):
            return False
        if tables_with_data(connection, scope, old):
            _end(connection, migration, "failed", now)
            return True
        _take_over_changes(connection, scope, old, new)
        connection.execute(delete(DOCUMENT).where(within(DOCUMENT, scope), DOCUMENT.c.document_id == old))
        _end(connection, migration, "completed", now)
        return True


def _forget_old(backend: Backend) -> None:
    old = and_(DOCUMENT_MIGRATION.c.status == "completed", DOCUMENT_MIGRATION.c.updated_at < _now(backend) - KEPT_MS)
    with reading(backend.engine) as connection:
        if connection.execute(select(DOCUMENT_MIGRATION.c.migration_id).where(old).limit(1)).one_or_none() is None:
            return
    with backend.writing() as connection:
        connection.execute(delete(DOCUMENT_MIGRATION).where(old))


def _carry_through(backend: Backend, migration: Migration, owner: str) -> None:
    try:
        while not step(backend, migration, owner):
            backend.sleep(_PAUSE)
    except DBAPIError:
        raise
    except Exception:  # noqa: BLE001 - any failure has the same consequence: it is given up
        # One that cannot be carried through must not stand in the way of the others.
        structlog.stdlib.get_logger(__name__).exception("migration_failed", migration=migration.migration_id)
        with backend.writing() as connection:
            _end(connection, migration, "failed", _now(backend))


def _claim(backend: Backend, owner: str) -> Migration | None:
    """A migration that is now ``owner``'s to work on."""
    while True:
        now = _now(backend)
        free = and_(DOCUMENT_MIGRATION.c.open.is_(True), DOCUMENT_MIGRATION.c.lease_until <= now)
        with reading(backend.engine) as connection:
            found = connection.execute(
                select(*_COLUMNS).where(free).order_by(DOCUMENT_MIGRATION.c.lease_until).limit(1)
            ).one_or_none()
        if found is None:
            return None
        with backend.writing() as connection:
            # Of several who found it the first one gets it: for the others it is not free any more.
            claimed = connection.execute(
                update(DOCUMENT_MIGRATION)
                .where(_is(found.api_key_id, found.migration_id), free)
                .values(
                    lease_owner=owner,
                    lease_until=now + LEASE_MS,
                    status="in_progress",
                    tries=DOCUMENT_MIGRATION.c.tries + 1,
                    updated_at=now,
                )
            )
            if claimed.rowcount and found.tries < TRIES:
                return found
            if claimed.rowcount:
                _end(connection, found, "failed", now)


def _renew(connection: Connection, migration: Migration, owner: str, now: int) -> bool:
    """Whether the migration is still ``owner``'s, and is so for another while. Its step counts as done with this
    transaction, so the tries begin anew.
    """
    renewed = connection.execute(
        update(DOCUMENT_MIGRATION)
        .where(
            _is(migration.api_key_id, migration.migration_id),
            DOCUMENT_MIGRATION.c.open.is_(True),
            DOCUMENT_MIGRATION.c.lease_owner == owner,
        )
        .values(lease_until=now + LEASE_MS, tries=0, updated_at=now)
    )
    return bool(renewed.rowcount)


def _end(connection: Connection, migration: Migration, status: MigrationState, now: int) -> None:
    _set(
        connection,
        migration.api_key_id,
        migration.migration_id,
        status=status,
        open=False,
        lease_owner="",
        lease_until=0,
        updated_at=now,
    )


def _set(connection: Connection, api_key_id: str, migration_id: str, **values: object) -> None:
    connection.execute(update(DOCUMENT_MIGRATION).where(_is(api_key_id, migration_id)).values(**values))


def _is(api_key_id: str, migration_id: str) -> ColumnElement[bool]:
    return and_(DOCUMENT_MIGRATION.c.api_key_id == api_key_id, DOCUMENT_MIGRATION.c.migration_id == migration_id)


def _same(connection: Connection, scope: Scope, document_id: str, new_document_id: str) -> Row[str, bool] | None:
    """The newest migration between these two ids that has not come to its end."""
    return connection.execute(
        select(DOCUMENT_MIGRATION.c.migration_id, DOCUMENT_MIGRATION.c.open)
        .where(
            within(DOCUMENT_MIGRATION, scope),
            DOCUMENT_MIGRATION.c.document_id == document_id,
            DOCUMENT_MIGRATION.c.new_document_id == new_document_id,
            DOCUMENT_MIGRATION.c.status != "completed",
        )
        .order_by(DOCUMENT_MIGRATION.c.created_at.desc())
        .limit(1)
    ).one_or_none()


def _refuse_those_under_way(connection: Connection, scope: Scope, ids: tuple[str, str]) -> None:
    """A document moves from one id to one other at a time."""
    under_way = connection.scalar(
        select(DOCUMENT_MIGRATION.c.migration_id)
        .where(
            within(DOCUMENT_MIGRATION, scope),
            or_(DOCUMENT_MIGRATION.c.document_id.in_(ids), DOCUMENT_MIGRATION.c.new_document_id.in_(ids)),
            DOCUMENT_MIGRATION.c.open.is_(True),
        )
        .limit(1)
    )
    if under_way is not None:
        raise AlreadyExists(f"data.documentId: another migration of these documents is under way ({under_way})")


def _copy_document(connection: Connection, scope: Scope, document_id: str, new_document_id: str) -> None:
    query = select(DOCUMENT).where(within(DOCUMENT, scope), DOCUMENT.c.document_id == document_id)
    row = connection.execute(query).mappings().one()
    connection.execute(insert(DOCUMENT).values({**row, "document_id": new_document_id}))


def _take_over_changes(connection: Connection, scope: Scope, document_id: str, new_document_id: str) -> None:
    """What was changed at the old document since it was copied: above all, nobody's restriction gets lost."""
    if not document_exists(connection, scope, document_id):
        return
    old, new = _document(connection, scope, document_id), _document(connection, scope, new_document_id)
    if old.updated_at > new.updated_at:
        connection.execute(
            update(DOCUMENT)
            .where(within(DOCUMENT, scope), DOCUMENT.c.document_id == new_document_id)
            .values(
                folder_id=old.folder_id,
                own_access_type=old.own_access_type,
                payload=old.payload,
                updated_at=old.updated_at,
            )
        )


def _document(connection: Connection, scope: Scope, document_id: str) -> Row[str]:
    query = select(DOCUMENT).where(within(DOCUMENT, scope), DOCUMENT.c.document_id == document_id)
    return connection.execute(query).one()


def _now(backend: Backend) -> int:
    return epoch_ms(backend.clock())
