"""The way of a database from the schema it has to the one this version needs.

Each program keeps its Alembic revisions in a ``migrations`` folder beside its tables, and which of them a database has
in a version table of its own. ``upgrade`` brings a database to the newest one in a single transaction, one process at a
time; ``state_of`` compares the two. Both refuse a database that is another program's.

Almost always there is nothing to do. Every command looks, so it looks without Alembic, which takes long to load.
"""

from collections.abc import Callable

from sqlalchemy import Connection, Engine, inspect

from app.foundation.database.compatibility import SchemaState, oldest_compatible
from app.foundation.database.engine import reading
from app.foundation.database.programs import Migrations, owner_of


def state_of(engine: Engine, migrations: Migrations) -> SchemaState:
    """The state of the database's schema.

    Raises ``SchemaNewerError`` if this version cannot use it any more, ``ForeignDatabaseError`` if it is another
    program's.
    """
    if _has_newest(engine, migrations):
        return SchemaState.CURRENT
    from app.foundation.database import alembic_revisions  # noqa: PLC0415 - Alembic takes long to load

    return alembic_revisions.state_of(engine, migrations)


def pending(engine: Engine, migrations: Migrations) -> bool:
    """Whether the database lacks revisions. Raises as ``state_of``."""
    return state_of(engine, migrations) is SchemaState.OLDER


def last_upgrade_is_compatible(engine: Engine, migrations: Migrations, before: str | None) -> bool:
    """Whether software whose newest revision is ``before`` can use the database."""
    with reading(engine) as connection:
        oldest = oldest_compatible(connection)
    order = migrations.revisions
    return before in order and oldest in order and order.index(before) >= order.index(oldest)


def revision_of(engine: Engine, migrations: Migrations) -> str | None:
    """The revision that the database has; None if it has none."""
    own = migrations.program.version_table
    with reading(engine) as connection:
        if not inspect(connection).has_table(own):
            return None
        revision: str | None = connection.exec_driver_sql(f"SELECT MAX(version_num) FROM {own}").scalar()  # noqa: S608 - our own table
    return revision


def is_new(engine: Engine) -> bool:
    """Whether the database has no table of any program of ours yet."""
    with reading(engine) as connection:
        tables = frozenset(inspect(connection).get_table_names())
    return owner_of(tables) is None


def upgrade(engine: Engine, migrations: Migrations, witness: Callable[[Connection], None] | None = None) -> bool:
    """Bring the database to the newest revision; whether there was anything to do. ``witness`` writes that down in the
    same transaction; where somebody was faster, it is not asked to.

    Raises as ``pending``, and ``SchemaUnknownError`` when the database does not hold what its revision makes.
    """
    if not pending(engine, migrations):
        return False
    from app.foundation.database import alembic_revisions  # noqa: PLC0415 - as above

    alembic_revisions.upgrade(engine, migrations, witness)
    return True


def _has_newest(engine: Engine, migrations: Migrations) -> bool:
    """Whether the database is the program's and has the newest revision, and no other."""
    own = migrations.program.version_table
    with reading(engine) as connection:
        tables = frozenset(inspect(connection).get_table_names())
        if own not in tables or owner_of(tables) != migrations.program:
            return False
        rows = connection.exec_driver_sql(f"SELECT version_num FROM {own}").all()  # noqa: S608 - our own table
    return [row[0] for row in rows] == [migrations.newest]
