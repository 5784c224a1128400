"""The file source.

``.jsonl`` (or ``.ndjson``) has one record per line, and is streamed. ``.json``, ``.yaml`` and ``.yml`` have an object
with a list per kind, and are read into memory. Each may be gzipped, with ``.gz`` after the other suffix.

The read fails if the file cannot be read to its end, or if it changes meanwhile.
"""

import gzip
import os
import stat
import zlib
from functools import partial
from pathlib import Path
from typing import IO, cast

from app.directory.documents import read_json, read_yaml
from app.directory.jsonl import read_lines
from app.directory.source import EVERYTHING, End, Reading, ReadRequest, Verdict

_READERS = {
    ".jsonl": read_lines,
    ".ndjson": read_lines,
    ".json": read_json,
    ".yaml": read_yaml,
    ".yml": read_yaml,
}


class FileSource:
    """A directory in one file."""

    def __init__(self, path: Path, *, name: str = "", require_end: bool = False) -> None:
        """``require_end``: a read of JSON Lines without an end record is partial."""
        self._path = path
        self._require_end = require_end
        self._name = name or str(path)

    @property
    def name(self) -> str:
        return self._name

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:  # noqa: ARG002 - every read is a full one
        if _is_folder(self._path):
            yield End(Verdict.FAILED, f"{self._path}: is a folder; name the file in it")
            return
        suffixes = [suffix.lower() for suffix in self._path.suffixes]
        zipped = suffixes[-1:] == [".gz"]
        reader = _READERS.get("".join(suffixes[:-1][-1:] if zipped else suffixes[-1:]))
        if reader is read_lines:
            reader = partial(read_lines, require_end=self._require_end)
        if reader is None:
            endings = ", ".join(_READERS)
            yield End(Verdict.FAILED, f"{self._path}: the name must end in {endings} (each may be followed by .gz)")
            return
        try:
            # A pipe or a device might block, or never end.
            if not stat.S_ISREG(self._path.stat().st_mode):
                yield End(Verdict.FAILED, f"{self._path}: is not a regular file")
                return
            with self._path.open("rb") as file:
                before = os.fstat(file.fileno())
                if zipped and before.st_size == 0:
                    yield End(Verdict.FAILED, f"{self._path}: is empty, and no gzip archive")
                    return
                # GzipFile is a binary stream in all but its declared type.
                stream = cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if zipped else file
                for step in reader(stream, str(self._path)):
                    if isinstance(step, End) and _changed(before, os.fstat(file.fileno())):
                        yield End(Verdict.FAILED, f"{self._path}: was written to while it was being read")
                        return
                    yield step
        except OSError as error:
            yield End(Verdict.FAILED, f"{self._path}: {error.strerror or error}")
        except (EOFError, zlib.error) as error:
            yield End(Verdict.FAILED, f"{self._path}: the archive cannot be read to its end: {error}")


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _changed(before: os.stat_result, after: os.stat_result) -> bool:
    return (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns)
