"""Checks the folder of the index, and the file of the decision log."""

from pathlib import Path

from app.commands.bootstrap.databases import index_folder
from app.commands.doctor.database import check_space
from app.commands.doctor.finding import Finding, Findings, ok, problem
from app.foundation.database import errors
from app.foundation.database.url import DatabaseUrlError
from app.service.provider.decision_log import STDOUT
from app.settings import Settings

_MOUNTS = Path("/proc/self/mounts")
_NETWORK = (
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "gpfs", "glusterfs", "afs", "beegfs", "ocfs2", "gfs2"),
    *("fuse.glusterfs", "fuse.sshfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone"),
)
"""The types of file systems that several machines may share."""


def check_files(settings: Settings, *, mounts: Path = _MOUNTS) -> Findings:
    """``mounts``: the table of mounted file systems."""
    try:
        folder = index_folder(settings)
    except DatabaseUrlError:
        return  # The check of the database reports it.
    yield _check_index(folder, mounts)
    log = settings.provider.decision_log.path
    if log not in {"", STDOUT}:
        yield _check_log(Path(log))


def _check_index(folder: Path, mounts: Path) -> Finding:
    nearest = _nearest(folder)
    kind = _type_of(nearest, mounts)
    advice = "let index.path name a folder on a local disk to which this user may write"
    if kind in _NETWORK:
        return problem("index", f"{folder} is on a network file system ({kind}): the index would be damaged", advice)
    without = "permission calls are answered only while the database is available"
    if not _is_folder(nearest):
        return problem("index", f"{folder}: {nearest} is not a directory, so {without}", advice)
    if not errors.is_writable(nearest):
        return problem("index", f"{folder} cannot be written to, so {without}", advice)
    return check_space("index", folder) or ok(
        "index", str(folder) if _exists(folder) else f"usher serve creates {folder}"
    )


def _check_log(file: Path) -> Finding:
    nearest = file if _exists(file) else _nearest(file.parent)
    advice = "let provider.decision_log.path name a file that this user may write to"
    if _is_folder(file):
        return problem("decision log", f"{file} is a directory", advice)
    if not _exists(file) and not _is_folder(nearest):
        return problem("decision log", f"{file}: {nearest} is not a directory", advice)
    if not errors.is_writable(nearest):
        return problem("decision log", f"{nearest} cannot be written to: decisions are not logged", advice)
    return check_space("decision log", file) or ok("decision log", str(file))


def _nearest(path: Path) -> Path:
    """The path itself if it exists, otherwise the nearest one above it that does."""
    return next(candidate for candidate in (path, *path.absolute().parents) if _exists(candidate))


def _exists(path: Path) -> bool:
    """Whether this user can see the path, which takes the right to search the folders above it."""
    try:
        return path.exists()
    except PermissionError:
        return False


def _is_folder(path: Path) -> bool:
    return _exists(path) and path.is_dir()


def _type_of(path: Path, mounts: Path) -> str:
    """The type of the file system of an existing path. Empty if it is unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    types = {Path(fields[1].replace("\\040", " ")): fields[2] for fields in map(str.split, lines) if len(fields) > 2}
    real = path.resolve()
    return next((types[folder] for folder in (real, *real.parents) if folder in types), "")
