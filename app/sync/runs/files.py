"""The uploaded files of previews.

A service stores the file with the queued run, so that a worker on any host can read it. The end of the run deletes it.
"""

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, func, insert, select

from app.directory.file import ENDINGS
from app.foundation.database import statements
from app.sync.runs.run import RunError
from app.sync.runs.tables import RunFileRow

MAX_FILE_BYTES = 8 * 1024 * 1024
MAX_FILES = 10
"""The most files of queued and running previews. Uploads at the same moment can exceed it."""

_FILE = RunFileRow.__table__

_DELETE_OF_ENDED = "DELETE FROM run_file WHERE run_id NOT IN (SELECT run_id FROM run WHERE finished_at IS NULL)"


class TooManyFilesError(RunError):
    """``MAX_FILES`` files are stored already."""


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A directory file, and the source that it replaces."""

    name: str
    """A plain name without folders, with an ending that the file source reads."""
    source: str
    """Empty: all sources."""
    content: bytes

    @property
    def ending(self) -> str:
        """The ending in lower case, as ``.yaml`` or ``.yaml.gz``. Empty: the file source does not read such files."""
        name = self.name.lower()
        return next((end for plain in ENDINGS for end in (plain, f"{plain}.gz") if name.endswith(end)), "")


def plain_name(name: str) -> str:
    """The name of an uploaded file without folders and without characters that are not usual in names.

    The last 100 characters: the ending decides how the file is read.
    """
    last = name.replace("\\", "/").rpartition("/")[2]
    return "".join(each if each.isalnum() or each in "._- ()" else "_" for each in last).strip(". ")[-100:]


def store_file(connection: Connection, run_id: str, file: UploadedFile) -> None:
    """Stores the file of a queued run. Raises ``TooManyFilesError``."""
    delete_files_of_ended_runs(connection)
    if connection.execute(select(func.count()).select_from(_FILE)).scalar_one() >= MAX_FILES:
        raise TooManyFilesError(f"{MAX_FILES} previews of files are waiting already; try again when they have ended")
    values = {"name": file.name, "source": file.source, "content": file.content}
    connection.execute(insert(_FILE).values(run_id=run_id, **values))


def delete_files_of_ended_runs(connection: Connection) -> None:
    """Deletes what workers of older versions left: they end runs and do not delete the files."""
    statements.run(connection, _DELETE_OF_ENDED)


def file_of(connection: Connection, run_id: str) -> UploadedFile | None:
    """The file of a run. None: the run reads the configured sources."""
    row = connection.execute(select(_FILE).where(_FILE.c.run_id == run_id)).first()
    return None if row is None else UploadedFile(row.name, row.source, bytes(row.content))


def write_file(file: UploadedFile, folder: Path) -> Path:
    """Writes the file into a folder, under a name of its own: the uploaded one may be too long for the file system."""
    path = folder / f"directory{file.ending}"
    path.write_bytes(file.content)
    return path
