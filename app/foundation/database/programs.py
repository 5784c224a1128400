"""The programs that keep tables in a database, their revisions, and by which tables one sees whose a database is."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One that has a database of its own."""

    name: str
    version_table: str
    """Where it keeps which of its revisions a database has."""
    first_table: str
    """One that its first revision makes, and no other program does."""
    setting: str
    """The setting that names its database."""


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
    """The revisions of one program, in a folder with Alembic's layout."""

    program: Program
    folder: Path

    @property
    def revisions(self) -> list[str]:
        """All revisions in their order, which need not be that of their numbers. Alembic would load slowly."""
        files = (self.folder / "versions").glob("[0-9]*.py")
        after = {_stated("down_revision", text): _stated("revision", text) for text in (f.read_text() for f in files)}
        found: list[str] = []
        revision = after.get(None)
        while revision is not None:
            found.append(revision)
            revision = after.get(revision)
        return found

    @property
    def newest(self) -> str:
        """The last revision; empty if there is none."""
        return next(reversed(self.revisions), "")


def _stated(name: str, text: str) -> str | None:
    found = re.search(rf'^{name} = "(\w+)"', text, re.MULTILINE)
    return found[1] if found else None


COMPATIBILITY_TABLE = "schema_compatibility"
"""Where an upgraded database states the oldest revision whose software can still use it."""

SHARED_VERSION_TABLE = "alembic_version"
"""Where both programs kept their revision in 1.0.0; other software uses the name as well."""


class SchemaError(RuntimeError):
    """A database whose tables this version cannot work with; the text is one line that says what to do."""


class SchemaNewerError(SchemaError):
    """The database was upgraded by a newer version of this software, and this version cannot use it any more."""

    def __init__(self) -> None:
        super().__init__(
            "a newer version of Usher upgraded the database, and this version cannot use it any more:"
            " install the newer version, or restore a backup"
        )


class SchemaUnknownError(SchemaError):
    """The database does not hold what its revision makes."""


class ForeignDatabaseError(RuntimeError):
    """The database is somebody else's; the text is one line that says whose, and which setting to mend."""


def owner_of(tables: Collection[str]) -> Program | None:
    """Whose a database with these tables is; None when it is nobody's of ours."""
    programs = (USHER, SELF_HOSTED_BACKEND)
    versioned = next((program for program in programs if program.version_table in tables), None)
    return versioned or next((program for program in programs if program.first_table in tables), None)
