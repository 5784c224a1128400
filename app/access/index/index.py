"""The index of a node: keeps its file in step with the access model, and answers from it.

All processes of a node share a folder:

==================  ===============================================================================
``lock``            locked by the process that maintains the index; when it ends, another takes over
``current``         the name of the file in use
``*.mdb``           the file (``app.access.index.file``); changes are written into it, a new build into a new file
``confirmed``       when the maintainer last saw that this file has the database's current revision
``crashes``         the stacks of processes that crashed; a crash in the index leads to a new file
``wake``            a pipe; writing to it ends the wait of the process that maintains the index
==================  ===============================================================================

Each process runs ``AccessIndex.run`` in a thread. Permission calls are answered from the index as long as it was
confirmed recently, or while the database cannot be reached, for at most ``max_staleness`` seconds. Otherwise they are
answered from the database.
"""

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from threading import Event, Lock
from uuid import uuid4

import lmdb
import structlog
from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.access.decision.decide import QuestionLike
from app.access.decision.view import AccessView
from app.access.index.confirmations import Confirmations
from app.access.index.crashes import has_crashed
from app.access.index.entries import all_entries, changed_entries
from app.access.index.file import DAMAGE, IndexDamagedError, IndexFile, Stamp, create_file
from app.access.index.folders import Folders
from app.access.index.index_view import IndexView
from app.access.index.turns import DatabaseTurns
from app.access.index.waiting import RevisionWaiter, pause_after
from app.access.refresh.change_log import ACCESS_CHANGE, MAX_LOGGED
from app.access.revisions import REVISION, latest_revision
from app.access.sql_view import SqlView
from app.foundation.clock import Clock
from app.foundation.database.engine import reading
from app.foundation.database.errors import log_fields
from app.foundation.database.programs import SchemaNewerError
from app.foundation.database.response_timeout import allow_long_statements
from app.foundation.database.statements import prefer_indexes
from app.foundation.files import make_folder, replace_file

_FILE_NAME = re.compile(r"[0-9a-f]{32}\.mdb")

_log = structlog.stdlib.get_logger(__name__)

SUSPECT = 2.0
"""Seconds without a confirmation after which each process checks the database itself."""
FRESH = 10.0
"""Seconds without a confirmation after which only an index without a database answers."""
OVERDUE = 1.0
"""Seconds without a response after which requests no longer wait for a turn at the database."""
HANGS = 5.0
"""Seconds without a response after which the database counts as unreachable. If the network drops packets, the error
follows after 14 seconds: 9 for an open connection, and 5 for the next attempt to connect."""

_BUILD_TIMEOUT = 1_800.0
"""Seconds for a statement of a build. The first rows of a large directory may take minutes."""


class Condition(Enum):
    """Who answers permission calls, by the last check. The result of a check determines the next condition:

    =================================================  ===============================================
    the file has the newest revision                   ``CURRENT``
    the file lacks it                                  ``BEHIND``
    the index failed                                   ``BEHIND``, but ``INCOMPATIBLE`` stays
    the database cannot be reached                     ``CURRENT``, but ``INCOMPATIBLE`` stays
    a newer version has changed the database's schema  ``INCOMPATIBLE``
    =================================================  ===============================================
    """

    CURRENT = "the index answers, unless it is too stale"
    BEHIND = "the database answers"
    INCOMPATIBLE = "requests are refused"


@dataclass(frozen=True, slots=True)
class IndexState:
    """The state of the index, for health checks and metrics."""

    revision: int
    """0: there is no index."""
    staleness: float | None
    """Seconds since the index had the database's current revision. None: never."""
    is_used: bool
    """Whether permission calls are answered from it."""
    is_database_reachable: bool


class AccessIndex:
    """The index of a node, in one of its processes."""

    def __init__(
        self,
        engine: Engine,
        folder: Path,
        *,
        clock: Clock,
        max_staleness: float = 0,
        turns: int = 1_000,
        check_schema: Callable[[], None] = lambda: None,
        observe_delay: Callable[[float], None] = lambda _: None,
        uptime: Callable[[], float] = lambda: time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)),
    ) -> None:
        """``max_staleness``: seconds for which calls are answered while the database cannot be reached. 0: any time.
        ``turns``: requests of this process that may use the database at the same time.
        ``check_schema`` raises ``SchemaNewerError`` if this version can no longer use the database. ``observe_delay``
        gets the seconds from the creation of a revision until this node answers by it."""
        self._engine = engine
        self._folder = folder
        self._clock = clock
        self._uptime = uptime
        self._max_staleness = max_staleness
        self._check_schema = check_schema
        self._observe_delay = observe_delay
        self._confirmations = Confirmations(folder / "confirmed", clock=clock, uptime=uptime)
        self._waiter = RevisionWaiter(engine, folder / "wake")
        self._lock_file: int | None = None
        """The descriptor of the lock file, if this process maintains the index."""
        self._file: IndexFile | None = None
        self._lookup_lock = Lock()
        self.turns = DatabaseTurns(turns, lambda: self._reaches_database(OVERDUE))
        self._folders_of: tuple[str, Stamp] | None = None
        """The file and the revision of ``_folders``."""
        self._folders = Folders()
        self._condition = Condition.CURRENT
        self._is_unreachable = False
        """Whether the last check failed to reach the database."""
        self._waits_since: float | None = None
        """When the current check began, until the database responds to it. None: no check waits."""

    # Permission calls

    @contextmanager
    def view(self, questions: Sequence[QuestionLike], min_revision: int = 0) -> Iterator[AccessView]:
        """The view of one revision, at least ``min_revision`` if the database has it."""
        file = self._file
        if file is not None and self._is_usable():
            try:
                # Threads would switch at each lookup. One call at a time is one and a half times as fast.
                with self._lookup_lock, file.reading() as (entries, stamp):
                    if stamp is not None and stamp.revision >= min_revision:
                        yield IndexView(entries, stamp.revision, questions, self._get_folders(file, stamp))
                        return
            except lmdb.Error as error:
                if isinstance(error, DAMAGE):
                    self._discard(file.path.name, error)
                raise IndexDamagedError(str(error)) from error
        with self.turns.take():
            self._check_schema()
            with reading(self._engine) as connection:
                yield SqlView(connection)

    @contextmanager
    def free_turn(self) -> Iterator[None]:
        """A turn at the database for health checks and metrics, which do not wait for one.

        Raises ``NoTurnError``, or SQLAlchemy's ``TimeoutError`` if the database was not reached at the last check.
        """
        if not self._reaches_database():
            raise PoolTimeout("the database cannot be reached")
        with self.turns.take(wait=0):
            yield

    def _get_folders(self, file: IndexFile, stamp: Stamp) -> Folders:
        """The folders of this revision in this file that were looked up before."""
        of_revision = (file.path.name, stamp)
        if self._folders_of != of_revision or self._folders.is_full:
            self._folders_of, self._folders = of_revision, Folders()
        return self._folders

    def wait_for(self, revision: int, timeout: float = 1.0) -> None:
        """Waits at most ``timeout`` seconds until all processes of this node answer by the revision."""
        until = self._uptime() + timeout
        while 0 < self.state.revision < revision and self._uptime() < until:
            self._waiter.wake()
            time.sleep(0.005)

    def _is_usable(self) -> bool:
        staleness = self._staleness()
        if self._condition is not Condition.CURRENT or staleness is None:
            return False
        if staleness <= FRESH:
            return True
        # A database that was reached last is asked: the thread may hang, or have ended.
        return not self._reaches_database() and (not self._max_staleness or staleness <= self._max_staleness)

    def _reaches_database(self, within: float = HANGS) -> bool:
        since = self._waits_since
        return not self._is_unreachable and (since is None or self._uptime() - since <= within)

    def _staleness(self) -> float | None:
        file = self._file
        return None if file is None else self._confirmations.staleness(file.path.name)

    @property
    def state(self) -> IndexState:
        """The state of the index."""
        file, stamp = self._file, None
        if file is not None:
            with suppress(lmdb.Error):
                stamp = file.stamp
        return IndexState(
            revision=stamp.revision if stamp else 0,
            staleness=self._staleness(),
            is_used=stamp is not None and self._is_usable(),
            is_database_reachable=self._reaches_database(),
        )

    # Maintenance

    def run(self, stop: Event) -> None:
        """Keeps the index up to date until ``stop`` is set."""
        failure, failures = "", 0
        while not stop.is_set():
            try:
                self.update()
                failure = ""
            except Exception as error:  # noqa: BLE001 - whatever it is, calls are answered from the database
                self._fall_behind()
                if failure != repr(error):
                    failure = repr(error)
                    is_expected = isinstance(error, OSError | lmdb.Error | IndexDamagedError)
                    fields = {"reason": str(error)} if is_expected else log_fields(error)
                    _log.warning("index_failed", folder=str(self._folder), **fields)
            failures = failures + 1 if failure or self._is_unreachable else 0
            if self._lock_file is None or failures or not self._waiter.wait(stop):
                stop.wait(pause_after(failures))
        self._release()

    def update(self) -> None:
        """Brings the index up to date once, or adopts what the maintaining process did.

        Raises ``lmdb.Error``, ``IndexDamagedError`` and ``OSError`` if the file cannot be written or read, and
        ``SQLAlchemyError`` if the database works, but a newer revision cannot be read from it.
        """
        try:
            self._follow()
        except DAMAGE as error:
            if self._file is not None:
                self._discard(self._file.path.name, error)
            raise

    def _follow(self) -> None:
        """Compares the file with the database, and brings it up to date."""
        self._adopt()
        if not self._maintains():
            staleness = self._staleness()
            if staleness is not None and staleness < SUSPECT:
                self._condition, self._is_unreachable = Condition.CURRENT, False
                return
        # An update, and even more a build, takes time in which the database can get a newer revision.
        moment = self._confirmations.now()
        self._waits_since = self._uptime()
        newest: Stamp | None = None
        try:
            self._check_schema()
            with reading(self._engine) as connection:
                revision, created_at = latest_revision(connection)
                newest = None if created_at is None else Stamp(revision, created_at)
                self._catch_up(connection, newest)
        except SchemaNewerError:
            self._condition = Condition.INCOMPATIBLE
        except SQLAlchemyError as error:
            # Without the database, the last revision that the file has is the newest one.
            if self._condition is Condition.BEHIND:
                self._condition = Condition.CURRENT
            was_reachable, self._is_unreachable = not self._is_unreachable, True
            if newest is not None and not self._has(newest) and self._database_answers():
                # The file lacks a revision, so that the database must answer.
                self._fall_behind()
                self._is_unreachable = False
                raise
            if was_reachable:
                _log.warning("index_without_database", error=type(error).__name__)
            return
        finally:
            self._waits_since = None
        if self._condition is Condition.CURRENT and self._file is not None:
            self._confirmations.confirm(self._file.path.name, moment, write=self._lock_file is not None)

    def _catch_up(self, connection: Connection, newest: Stamp | None) -> None:
        """Brings the file up to the newest revision, if this process maintains it. The database was reached."""
        # This may take longer than a check.
        self._waits_since, self._is_unreachable = None, False
        if not self._has(newest):
            self._fall_behind()
            if newest is not None and self._maintains():
                allow_long_statements(connection)
                self._bring_up_to(connection, newest)
        self._condition = Condition.CURRENT if self._has(newest) else Condition.BEHIND

    def _fall_behind(self) -> None:
        """The database answers until the file has the newest revision."""
        if self._condition is Condition.CURRENT:
            self._condition = Condition.BEHIND

    def _database_answers(self) -> bool:
        """Whether a new transaction can read."""
        try:
            with reading(self._engine) as connection:
                connection.execute(select(1))
        except SQLAlchemyError:
            return False
        return True

    def _has(self, stamp: Stamp | None) -> bool:
        """Whether the file in use has this revision."""
        file = self._file
        return file is not None and stamp is not None and file.stamp == stamp

    def _maintains(self) -> bool:
        """Whether this process maintains the index. It begins to if no other process does."""
        path = self._folder / "lock"
        if self._lock_file is not None and not _is_at(path, self._lock_file):
            # If the folder was deleted, another process may have locked a new file.
            self._release()
        if self._lock_file is None:
            make_folder(self._folder)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return False
            self._lock_file = descriptor
            if self._file is not None:
                self._file.expect_no_other_writer()
        return True

    def _adopt(self) -> None:
        """Opens the file in use, and reads when it was confirmed."""
        if has_crashed(self._folder):
            self._discard(self._current(), IndexDamagedError("a process crashed while it used the file"))
        name = self._current()
        if not name:
            self._file = None
            return
        file = self._file
        if file is None or file.path.name != name:
            # Requests may still read the file before; it is closed with the last of them.
            self._file = None
            try:
                self._file = IndexFile(self._folder / name)
            except IndexDamagedError as error:
                self._discard(name, error)
        else:
            file.free_slots()
            if self._lock_file is not None and file.has_other_writer:
                self._discard(name, IndexDamagedError("another program has written to the file"))
        if self._lock_file is None or self._confirmations.staleness(name) is None:
            self._confirmations.read(name)

    def _current(self) -> str:
        """The name of the file in use. Empty if there is none."""
        try:
            name = (self._folder / "current").read_text(encoding="ascii")
        except (FileNotFoundError, UnicodeDecodeError):
            return ""
        return name if _FILE_NAME.fullmatch(name) else ""

    def _discard(self, name: str, error: Exception) -> None:
        """Stops the use of a damaged file, in all processes. The maintainer builds a new one."""
        self._file = None
        # The maintainer may just have replaced the file.
        if self._current() == name:
            _log.warning("index_damaged", error=str(error), folder=str(self._folder))
            (self._folder / "current").unlink(missing_ok=True)

    def _bring_up_to(self, connection: Connection, newest: Stamp) -> None:
        """Writes the changes up to the newest revision into the file, or builds a new file."""
        file = self._file
        stamp = None if file is None else file.stamp
        if stamp == newest:
            return
        if file is not None and stamp is not None and _is_logged(connection, stamp, newest):
            prefer_indexes(connection)
            with file.writing(stamp, newest) as writer:
                for key, value in changed_entries(connection, stamp.revision, writer):
                    writer.store(key, value)
        else:
            self._build(connection, newest)
        # Only updates: the time of a first build depends on the size of the directory.
        if stamp is not None:
            self._observe_delay(max(0.0, self._clock().timestamp() - newest.created_at / 1000))

    def _build(self, connection: Connection, newest: Stamp) -> None:
        """Builds a new file beside the one in use, and puts it in its place."""
        allow_long_statements(connection, _BUILD_TIMEOUT)
        for path in self._folder.glob("*.mdb*"):
            if self._file is None or not path.name.startswith(self._file.path.name):
                path.unlink(missing_ok=True)
        path = self._folder / f"{uuid4().hex}.mdb"
        create_file(path, newest, all_entries(connection))
        replace_file(self._folder / "current", path.name.encode())
        self._adopt()

    def close(self) -> None:
        """Closes the file, and lets another process maintain the index. No view may be open."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._release()

    def _release(self) -> None:
        """Lets another process maintain the index."""
        self._waiter.close()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None


def _is_logged(connection: Connection, stamp: Stamp, newest: Stamp) -> bool:
    """Whether the change log contains everything that happened after ``stamp``, and not too much."""
    has_revision = select(REVISION.c.created_at).where(REVISION.c.revision == stamp.revision)
    logged = select(func.count()).where(REVISION.c.revision > stamp.revision, REVISION.c.logged)
    changes = select(func.count()).where(ACCESS_CHANGE.c.revision > stamp.revision)
    return (
        connection.execute(has_revision).scalar() == stamp.created_at
        and connection.execute(logged).scalar() == newest.revision - stamp.revision
        and connection.execute(changes).scalar_one() <= MAX_LOGGED
    )


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the open file is still the one at the path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
