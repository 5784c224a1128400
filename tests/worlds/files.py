"""Directories in files."""

from pathlib import Path

from app.directory.file import FileSource
from app.directory.settings import FileSourceSettings


def file_source(path: Path, name: str = "") -> FileSource:
    """The source of a file. Its name is the path by default."""
    return FileSource(FileSourceSettings(type="file", path=path, name=name))
