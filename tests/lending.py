"""Connections to a process's own PostgreSQL databases, which engines of its tests lend one after the other.

A new connection knows no catalog yet and has none of the temporary tables of a refresh: to make both anew takes
PostgreSQL longer than most tests do. So what an engine closes goes, reset as a pooler would, to the next one of this
process that connects to the same database. Other processes, and other databases, have connections of their own.
"""

import os
import select
from threading import Lock
from typing import Any

import psycopg
from sqlalchemy import Dialect, Engine, Pool, event
from sqlalchemy.pool import ConnectionPoolEntry

_LENT_MOST = 8
"""So many are kept, of all databases: the server takes a hundred, of several processes."""

_RESET = "SELECT pg_advisory_unlock_all(); RESET ALL; UNLISTEN *; DEALLOCATE ALL"

_SHADOWED = """
SELECT 1 FROM pg_class
WHERE relnamespace = pg_my_temp_schema() AND relkind = 'r' AND relname NOT LIKE 'refresh%' LIMIT 1
"""
"""Whether temporary tables stand before lasting ones: a dry run's connection is that run's alone."""


class Lent(psycopg.Connection[Any]):
    """A connection that is kept when it is closed."""

    owner = 0
    """The process that opened it, which is the only one to keep it; 0: nobody does."""
    asked = ""
    """What it was asked for with: whoever it is lent to asks for the same."""
    known: dict[Any, Any]
    """What the pool remembered of it."""

    def close(self) -> None:
        if self.owner == os.getpid() and not self.closed and _LENDER.takes_back(self):
            return
        super().close()

    def end(self) -> None:
        """Closes it for good."""
        super().close()

    def looks_new(self) -> bool:
        """Resets it; whether it is as good as new then."""
        try:
            self.rollback()
            self.autocommit, self.read_only, self.isolation_level = True, None, None
            self.execute(_RESET)
            is_shadowed = self.execute(_SHADOWED).fetchone() is not None
            self.autocommit = False
        except psycopg.Error:
            return False
        return not is_shadowed and self.info.transaction_status == psycopg.pq.TransactionStatus.IDLE

    def lives(self) -> bool:
        """Whether nobody has ended it meanwhile: PostgreSQL would have said so."""
        return not self.closed and not select.select([self.fileno()], [], [], 0)[0]


class Lender:
    """The connections that are free now, by database."""

    def __init__(self) -> None:
        self._free: dict[str, list[Lent]] = {}
        self._lock = Lock()

    def lends(self, database: str) -> None:
        """From now on connections to it are kept."""
        with self._lock:
            self._free[database] = []

    def ends(self, database: str) -> None:
        """They are not any more, and those that are free are closed."""
        with self._lock:
            free = self._free.pop(database, [])
        for connection in free:
            connection.end()

    def free(self, database: str) -> list[int]:
        """The servers' processes that nobody works with."""
        with self._lock:
            return [one.info.backend_pid for one in self._free.get(database, []) if one.lives()]

    def connect(self, dialect: Dialect, _: object, arguments: list[Any], given: dict[str, Any]) -> Lent | None:
        """Instead of the driver; None: that is not one of ours."""
        database = given.get("dbname", "")
        if dialect.name != "postgresql" or arguments:
            return None
        with self._lock:
            if database not in self._free:
                return None
            asked = repr(sorted(given.items()))
            for found in [one for one in self._free[database] if one.asked == asked and one.owner == os.getpid()]:
                self._free[database].remove(found)
                if found.lives():
                    return found
        made = Lent.connect(**given)
        made.owner, made.asked, made.known = os.getpid(), asked, {}
        return made

    def takes_back(self, connection: Lent) -> bool:
        """Whether it is kept; of too many, the one goes that nobody has asked for the longest."""
        database = connection.info.dbname
        if database not in self._free or not connection.looks_new():
            return False
        too_many: list[Lent] = []
        with self._lock:
            free = self._free.pop(database, None)
            if free is None:
                return False
            # The databases stand in the order in which something was last given back.
            self._free[database] = free
            free.append(connection)
            if sum(map(len, self._free.values())) > _LENT_MOST:
                too_many.append(next(filter(None, self._free.values())).pop(0))
        for one in too_many:
            one.end()
        return True


_LENDER = Lender()


def lender() -> Lender:
    """That of this process."""
    return _LENDER


def lend_connections() -> None:
    """Every engine of this process borrows from now on."""
    event.listen(Engine, "do_connect", _LENDER.connect)
    event.listen(Pool, "connect", _remember)
    event.listen(Pool, "close", _keep)
    event.listen(Pool, "detach", _let_go)


def _remember(connection: object, entry: ConnectionPoolEntry) -> None:
    if isinstance(connection, Lent):
        entry.info.update(connection.known)


def _let_go(connection: object, _: ConnectionPoolEntry) -> None:
    if isinstance(connection, Lent):
        # Usher takes a connection out of its pool where what is left there must be gone.
        connection.owner = 0


def _keep(connection: object, entry: ConnectionPoolEntry) -> None:
    if isinstance(connection, Lent):
        connection.known = dict(entry.info)
