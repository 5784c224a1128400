"""Determines which program owns a database, and whether this version can use its schema.

An upgrade stores the oldest revision whose software can still use the database. A process of an older version continues
if it has that revision, and stops using the database if not.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, inspect, select

from app.foundation.database.engine import reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program with its own database."""

    name: str
    version_table: str
    """The table that contains the database's revision."""
    first_table: str
    """A table that the program's first revision creates, and no other program does."""
    setting: str
    """The setting with the database's URL."""


USHER = Program(
    name="Usher itself", version_table="usher_version", first_table="access_revision", setting="database_url"
)
SELF_HOSTED_BACKEND = Program(
    name="the self-hosted backend",
    version_table="backend_version",
    first_table="workspace_attempt",
    setting="self_hosted_backend.database_url",
)


@dataclass(frozen=True, slots=True)
class Migrations:
    """The revisions of one program, in a folder with Alembic's layout, and the newest tables."""

    program: Program
    folder: Path
    schema: str
    """The module with ``METADATA``, all tables of the program. It is loaded to create a database."""

    def metadata(self) -> MetaData:
        metadata: MetaData = import_module(self.schema).METADATA
        return metadata

    def revisions(self) -> list[str]:
        """All revisions in the order of their names, which is that of upgrades. ``migrations.py`` explains why Alembic
        does not read them."""
        return sorted(file.name.partition("_")[0] for file in (self.folder / "versions").glob("[0-9]*.py"))


COMPATIBILITY_TABLE = "schema_compatibility"
"""Contains the oldest revision whose software can still use an upgraded database."""

COMPATIBILITY = Table(COMPATIBILITY_TABLE, MetaData(), Column("oldest_revision", String, primary_key=True))

SHARED_VERSION_TABLE = "alembic_version"
"""The version table of both programs in 1.0.0. Other software uses the same name."""


class SchemaError(RuntimeError):
    """This version cannot use the tables of the database. The text is one line with advice."""


class SchemaNewerError(SchemaError):
    """A newer version upgraded the database, and this version cannot use it any more."""

    problem = "a newer version of Usher upgraded the database, and this version cannot use it any more"
    advice = "install the newer version, or restore a backup"

    def __init__(self) -> None:
        super().__init__(f"{self.problem}: {self.advice}")


class SchemaUnknownError(SchemaError):
    """The tables do not match the database's revision."""


class ForeignDatabaseError(RuntimeError):
    """The database belongs to another program. The text is one line that names it and the setting to change."""


def owner_of(tables: Collection[str]) -> Program | None:
    """The program that owns a database with these tables. None if neither does."""
    programs = (USHER, SELF_HOSTED_BACKEND)
    versioned = next((program for program in programs if program.version_table in tables), None)
    return versioned or next((program for program in programs if program.first_table in tables), None)


def has_shared_version_table(connection: Connection, program: Program) -> bool:
    """Whether it is the program's database with the version table of 1.0.0. Raises ``ForeignDatabaseError`` if the
    database is that of other software."""
    tables = frozenset(inspect(connection).get_table_names())
    owner = owner_of(tables)
    if owner is not None and owner != program:
        raise ForeignDatabaseError(_refusal(f"belongs to {owner.name}", program))
    if program.version_table in tables or SHARED_VERSION_TABLE not in tables:
        return False
    if owner is None and revision_in(connection, SHARED_VERSION_TABLE):
        raise other_software(program)
    return owner == program


def revision_in(connection: Connection, version_table: str) -> str | None:
    """The revision in this table. None without the table or a row."""
    if not inspect(connection).has_table(version_table):
        return None
    return connection.exec_driver_sql(f"SELECT MAX(version_num) FROM {version_table}").scalar()  # noqa: S608 - a constant


def other_software(program: Program) -> ForeignDatabaseError:
    return ForeignDatabaseError(_refusal("holds the tables of other software", program))


def _refusal(owner: str, program: Program) -> str:
    return f"the database {owner}: give {program.name} one of its own ({program.setting})"


# Compatibility.


class SchemaState(Enum):
    """A database's schema, compared with that of this version."""

    CURRENT = "current"
    OLDER = "older"
    """An upgrade is pending."""
    NEWER = "newer"
    """A newer version upgraded it, and this version can still use it."""


def oldest_compatible(connection: Connection) -> str | None:
    """The oldest revision whose software can use the database. None if the database does not state it."""
    if not inspect(connection).has_table(COMPATIBILITY_TABLE):
        return None
    return connection.execute(select(COMPATIBILITY.c.oldest_revision)).scalar()


class SchemaGuard:
    """Refuses a database that a newer version made incompatible. It queries it once a second at most."""

    INTERVAL = 1.0

    def __init__(self, engine: Engine, newest: str, monotonic: Callable[[], float]) -> None:
        """``newest``: the newest revision of this version."""
        self._engine, self._newest, self._monotonic = engine, newest, monotonic
        self._next_query = float("-inf")

    def check(self) -> None:
        """Raises ``SchemaNewerError`` if this version cannot use the database."""
        now = self._monotonic()
        if now < self._next_query:
            return
        with reading(self._engine) as connection:
            oldest = connection.execute(select(COMPATIBILITY.c.oldest_revision)).scalar()
        if oldest is not None and oldest > self._newest:
            raise SchemaNewerError
        self._next_query = now + self.INTERVAL
