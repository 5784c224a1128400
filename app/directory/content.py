"""Reads the content of files, and of objects in object stores. Either may be gzipped.

The read fails if the content cannot be read to its end, or if it changes meanwhile.
"""

import gzip
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path, PurePath
from typing import IO, TypeVar, cast

from app.directory.connector import ReadError
from app.directory.connectors.objects.settings import StoreSettings
from app.directory.connectors.objects.stored import StoredObject
from app.directory.source import Answered, End, Verdict

_Step = TypeVar("_Step")
_Reader = Callable[[IO[bytes], str], Iterator[_Step]]
"""Gets the content and its name, and ends with an ``End``."""


def read_content(
    path: Path | str, reader: _Reader[_Step], *, since: str = "", store: StoreSettings | None = None, shown: str = ""
) -> Iterator[_Step | End]:
    """The steps of ``reader``, which gets the content of a file or an object, and its name.

    ``path``: a path, or the URL of an object, which is in ``store``. The cursor is the ETag of an object: if ``since``
    is still its ETag, nothing changed, and it is not read. ``shown``: the name. Default: the path.
    """
    name = shown or str(path)
    if is_folder(path):
        yield End(Verdict.FAILED, f"{name}: is a folder; name the file in it")
        return
    try:
        yield from (
            _of_file(path, reader, name)
            if isinstance(path, Path)
            else _of_object(path, reader, store or StoreSettings(), since)
        )
    except ReadError as error:
        yield error.end
    except OSError as error:
        yield End(Verdict.FAILED, f"{name}: {error.strerror or error}")
    except (EOFError, zlib.error) as error:
        yield End(Verdict.FAILED, f"{name}: the archive cannot be read to its end: {error}")


def _of_file(path: Path, reader: _Reader[_Step], name: str) -> Iterator[_Step | End]:
    # A pipe or a device might block, or never end.
    if not stat.S_ISREG(path.stat().st_mode):
        raise ReadError(f"{name}: is not a regular file")
    with path.open("rb") as file:
        before = os.fstat(file.fileno())
        for step in reader(_unpacked(file, path, name, before.st_size), name):
            if isinstance(step, End) and _changed(before, os.fstat(file.fileno())):
                raise ReadError(f"{name}: was written to while it was being read")
            yield step


def _of_object(url: str, reader: _Reader[_Step], store: StoreSettings, since: str) -> Iterator[_Step | End]:
    stored = StoredObject(url, store)
    if since == stored.etag:
        yield End(Verdict.COMPLETE, "", stored.etag, Answered.CHANGES)
        return
    for step in reader(_unpacked(BufferedReader(stored), url, url, stored.size), url):
        if isinstance(step, End) and (step.verdict is Verdict.COMPLETE or step.except_malformed):
            yield step._replace(cursor=stored.etag)
        else:
            yield step


def _unpacked(file: IO[bytes], path: Path | str, name: str, size: int) -> IO[bytes]:
    """The content, unpacked if the path ends in ``.gz``. ``size``: of the file, in bytes."""
    if PurePath(path).suffix.lower() != ".gz":
        return file
    if size == 0:
        raise ReadError(f"{name}: is empty, and no gzip archive")
    # GzipFile is a binary stream in all but its declared type.
    return cast("IO[bytes]", gzip.GzipFile(fileobj=file))


def is_folder(path: Path | str) -> bool:
    try:
        return isinstance(path, Path) and path.is_dir()
    except OSError:
        return False


def _changed(before: os.stat_result, after: os.stat_result) -> bool:
    return (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns)
