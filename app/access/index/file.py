"""An index file: an LMDB environment with the entries of one revision.

Any number of processes read it while one writes. A write is one transaction, so a reader sees exactly one revision.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice, takewhile
from pathlib import Path
from typing import NamedTuple, cast

import lmdb

from app.access.index.layout import LAYOUT
from app.foundation.files import make_file

_MAP_BYTES = 256 << 30
"""The size of the mapping, and the maximum size of a file. All processes map the same size, so that no process has to
follow the growth of another's mapping. It is address space, not memory."""
_MAX_READERS = 2048
"""Concurrent transactions of all processes."""
_READER_BYTES = 64
"""LMDB's size of a reader in the lock file."""
_SPARE_TRANSACTIONS = 16
"""Read transactions that LMDB keeps for reuse."""
_FILLED_AT_ONCE = 50_000
"""The entries of one transaction that fills a new file."""
_STAMP = b"\0"
"""The key of the stamp. No entry begins with it."""

DAMAGE = (
    lmdb.CorruptedError,
    lmdb.CursorFullError,
    lmdb.InvalidError,
    lmdb.MapResizedError,
    lmdb.PageFullError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
)
"""The errors of a damaged file. Others, such as too many open files, have causes outside of it."""


class Stamp(NamedTuple):
    """A revision and when it was created: a database restored from a backup may use a number again."""

    revision: int
    created_at: int


class IndexDamagedError(Exception):
    """The file is no index of this version, it is damaged, or it cannot be read."""


class IndexFile:
    """One file, open in one process. Open it after a fork."""

    def __init__(self, path: Path, *, new: bool = False) -> None:
        """Raises ``IndexDamagedError``, and ``lmdb.Error`` for other reasons. ``new``: creates an empty file, which
        ``fill`` makes durable."""
        self.path = path
        if not new and not path.exists():
            raise IndexDamagedError("the file is missing")
        if new:
            # LMDB maps the table of readers. A write to a page without a block on a full disk kills the process.
            readers = path.with_name(f"{path.name}-lock")
            make_file(readers)
            readers.write_bytes(bytes(_READER_BYTES * _MAX_READERS))
        try:
            self._environment = lmdb.open(
                str(path),
                subdir=False,
                create=new,
                sync=not new,
                mode=0o600,
                map_size=_MAP_BYTES,
                max_readers=_MAX_READERS,
                max_spare_txns=_SPARE_TRANSACTIONS,
            )
            self.free_slots()
            self.expect_no_other_writer()
            if not new:
                self._check()
        except DAMAGE as error:
            raise IndexDamagedError(str(error)) from error

    def free_slots(self) -> None:
        """Frees the slots of killed processes in the table of readers. They keep the pages of the revisions that these
        processes read, and no process can open the file if all slots are in use."""
        self._environment.reader_check()

    def expect_no_other_writer(self) -> None:
        """Remembers the file as it is: ``has_other_writer`` reports writes after that."""
        self._written_at = self._modified_at()

    @property
    def has_other_writer(self) -> bool:
        """Whether another program has written to the file since ``expect_no_other_writer``, or deleted it."""
        return self._modified_at() != self._written_at

    def _modified_at(self) -> int | None:
        try:
            return self.path.stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def _check(self) -> None:
        # Reading a page after the end of a truncated file would kill the process.
        pages = self._environment.info()["last_pgno"] + 1
        if self.path.stat().st_size < pages * self._environment.stat()["psize"]:
            raise IndexDamagedError("the file is truncated")
        with self.reading() as (_, stamp):
            if stamp is None:
                raise IndexDamagedError("the file is incomplete, or of another version")

    @contextmanager
    def reading(self) -> Iterator[tuple["IndexReader", Stamp | None]]:
        """A read transaction: its entries, and the stamp of its revision. Raises ``lmdb.Error``."""
        try:
            transaction = self._environment.begin()
        except lmdb.ReadersFullError:
            self.free_slots()
            transaction = self._environment.begin()
        with transaction:
            yield IndexReader(transaction), _stamp(transaction.get(_STAMP))

    @property
    def stamp(self) -> Stamp | None:
        """The stamp of the current revision."""
        with self.reading() as (_, stamp):
            return stamp

    def fill(self, stamp: Stamp, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Stores all entries of a new file, and makes them durable. Raises ``lmdb.Error``."""
        remaining = iter(entries)
        # Each transaction keeps its pages in memory. Nobody reads a new file before it is complete.
        while batch := list(islice(remaining, _FILLED_AT_ONCE)):
            with self._environment.begin(write=True) as transaction, transaction.cursor() as cursor:
                cursor.putmulti(batch)
        with self._environment.begin(write=True) as transaction:
            transaction.put(_STAMP, _stamp_value(stamp))
        self._environment.sync(True)

    @contextmanager
    def writing(self, before: Stamp, stamp: Stamp) -> Iterator["IndexWriter"]:
        """A write transaction that leads from one revision to another. It is rolled back if the block raises.

        Raises ``lmdb.Error``, and ``IndexDamagedError`` if the file has another revision than ``before``.
        """
        try:
            with self._environment.begin(write=True) as transaction:
                if _stamp(transaction.get(_STAMP)) != before:
                    raise IndexDamagedError("another process has written to the file")
                yield IndexWriter(transaction)
                transaction.put(_STAMP, _stamp_value(stamp))
        finally:
            self.expect_no_other_writer()

    def close(self) -> None:
        """Closes the file. No transaction may be open."""
        self._environment.close()


class IndexReader:
    """The entries inside of a read transaction."""

    __slots__ = ("_transaction", "get")

    def __init__(self, transaction: lmdb.Transaction) -> None:
        self._transaction = transaction
        self.get = cast("Callable[[bytes], bytes | None]", transaction.get)
        """Returns the value of a key."""

    def items_below(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The entries whose keys begin with ``prefix``."""
        with self._transaction.cursor() as cursor:
            if cursor.set_range(prefix):
                items = ((bytes(key), bytes(value)) for key, value in cursor.iternext())
                yield from takewhile(lambda item: item[0].startswith(prefix), items)


class IndexWriter(IndexReader):
    """The entries inside of a write transaction."""

    __slots__ = ()

    def store(self, key: bytes, value: bytes | None) -> None:
        """Stores an entry. None deletes it."""
        if value is None:
            self._transaction.delete(key)
        else:
            self._transaction.put(key, value)


def create_file(path: Path, stamp: Stamp, entries: Iterable[tuple[bytes, bytes]]) -> None:
    """Creates a file with these entries, or none if it raises ``lmdb.Error`` or another error."""
    file = IndexFile(path, new=True)
    try:
        file.fill(stamp, entries)
    except BaseException:
        # On a full disk, other programs need the space.
        path.unlink(missing_ok=True)
        raise
    finally:
        file.close()


def _stamp_value(stamp: Stamp) -> bytes:
    return f"{LAYOUT} {stamp.revision} {stamp.created_at}".encode()


def _stamp(value: bytes | None) -> Stamp | None:
    if value is None:
        return None
    try:
        layout, revision, created_at = map(int, value.split())
    except ValueError:
        return None
    return Stamp(revision, created_at) if layout == LAYOUT else None
