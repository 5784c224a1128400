"""The spool: who is a member of what, worked out set-wise on disk.

A directory names members by names (a DN, a ``memberUid``), and tells of groups before or after those who are in them.
So a read puts down each object's names, the names of its members, and what rules have to know of it; when all has been
read, members are looked up by joins, through nested groups and around cycles.

It is one SQLite file. For a full read it is made anew, in no memory to speak of, and takes the place of the one before
when the read has ended. What changed since is entered into it, and it says which groups that touches: those that name
somebody who changed, and those above. It remembers to which cursor it belongs, and the touched groups since the cursor
before: whoever could not use the last changes asks for them once more.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple, Self

import orjson
from filelock import FileLock

from app.directory.connector import DirectoryObject
from app.directory.mapping import spool_tables
from app.directory.source import ObjectId

_BATCH = 1_000
"""Rows that are written together."""

_PATIENCE = 5.0
"""Seconds to wait for another connection to the file."""


class SpoolError(Exception):
    """The spool cannot be used; the text is one line that says why."""


class Member(NamedTuple):
    """Somebody in a group, as a row of the spool has them."""

    number: int
    set: str
    known_by: str
    place: str
    packed: bytes | None

    @property
    def id(self) -> ObjectId:
        """The object that they are."""
        return ObjectId(self.set, self.known_by)

    @property
    def value(self) -> Mapping[str, object]:
        """What ``member`` is in expressions."""
        return orjson.loads(self.packed) if self.packed is not None else {}


_COLUMNS = "number, set_name, id, place, member"
"""Those of a ``Member``."""


class Held(NamedTuple):
    """An object in which members are looked up."""

    number: int
    id: ObjectId
    place: str
    value: dict[str, object]
    """What ``it`` is in expressions."""
    seen: bool
    """Whether this read told of it."""


class Spool:
    """An open spool. Whatever changes it is one transaction, which ``keep`` makes lasting and ``close`` drops.

    Its methods raise ``sqlite3.Error`` (a full disk).
    """

    def __init__(
        self,
        path: Path,
        *,
        fresh: bool,
        replace: Callable[[Path], None] | None = None,
        lock: FileLock | None = None,
    ) -> None:
        """``fresh``: it is made anew, and ``replace`` puts it where it is kept (None: nowhere)."""
        self._path = path
        self._fresh = fresh
        self._replace = replace
        self._lock = lock
        # As with the lock: any thread may close it.
        self._connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        self._round = 1
        self._number = 0
        self._cursor_before = ""
        self._objects: list[tuple[object, ...]] = []
        self._names: list[tuple[str, int]] = []
        if fresh:
            # Nothing of it counts before it is whole, so it need not survive anything.
            self._connection.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA temp_store=FILE;")
            self._connection.execute("BEGIN")
            self._run(spool_tables.TABLES)

    def begin_changes(self, cursor: str, digest: str) -> bool:
        """Whether it belongs to this cursor, or did before its last changes; "": whether it is one at all."""
        self._connection.execute("BEGIN IMMEDIATE")
        belongs = self._connection.execute("SELECT digest, cursor, cursor_before, round FROM belongs").fetchone()
        if belongs is None or belongs[0] != digest or (cursor and cursor not in belongs[1:3]):
            return False
        if cursor in ("", belongs[1]):
            self._connection.execute("DELETE FROM pending")
        self._cursor_before = cursor
        self._round = belongs[3] + 1
        self._run(spool_tables.INDEXES_OF_CHANGES, "CREATE TEMP TABLE touched (name TEXT PRIMARY KEY)")
        return True

    # What a read puts in.

    def put(
        self, thing: DirectoryObject, *, value: Mapping[str, object] | None, member: Mapping[str, object] | None
    ) -> None:
        """An object: with ``value``, if members are looked up in it, with ``member``, if it may be one."""
        row = (
            *(thing.id.set, thing.id.id, thing.place, value is not None),
            None if value is None else orjson.dumps(value),
            None if member is None else orjson.dumps(member, option=orjson.OPT_SORT_KEYS),
            self._round,
        )
        if not self._fresh:
            self._change(thing, row)
            return
        self._number += 1
        self._objects.append((self._number, *row))
        self._names += [(name, self._number) for name in thing.names]
        if value is not None:
            self._put_members(self._number, thing.members)
        if len(self._objects) >= _BATCH:
            self._write()

    def _put_members(self, number: int, names: Sequence[str]) -> None:
        """All of an object: there may be hundreds of thousands."""
        for start in range(0, len(names), _BATCH):
            some = names[start : start + _BATCH]
            if "\0" in "".join(some):
                # Of such a text the library would take what is before it.
                self._connection.executemany("INSERT INTO member VALUES (?, ?)", [(number, name) for name in some])
            else:
                # Several times as fast as row by row.
                packed = orjson.dumps(some).decode()
                self._connection.execute("INSERT INTO member SELECT ?, value FROM json_each(?)", (number, packed))

    def remove(self, gone: ObjectId) -> None:
        """An object that is gone."""
        row = self._row(gone)
        if row is not None:
            self._touch(self._names_of(row[0]))
            for statement in (
                "DELETE FROM name WHERE object = ?",
                "DELETE FROM member WHERE object = ?",
                "DELETE FROM pending WHERE object = ?",
                "DELETE FROM object WHERE number = ?",
            ):
                self._connection.execute(statement, (row[0],))

    def remove_unseen(self) -> None:
        """All objects are gone of which this read told nothing, because it told of all that there are."""
        unseen = self._connection.execute("SELECT set_name, id FROM object WHERE round < ?", (self._round,)).fetchall()
        for set_name, id_ in unseen:
            self.remove(ObjectId(set_name, id_))

    def make_ready(self) -> None:
        """All has been put in: from here on it can be asked."""
        if self._fresh:
            self._write()
            self._run(spool_tables.INDEXES)
            if self._connection.execute(spool_tables.ANY_TWICE).fetchone() is not None:
                for table, column in (("name", "object"), ("member", "object"), ("object", "number")):
                    self._connection.execute(spool_tables.TWICE.format(table, column))
            self._run(
                spool_tables.AMBIGUOUS,
                spool_tables.EDGES.format("TABLE"),
                "CREATE INDEX temp.edge_outer ON edge (outer_object, inner_object)",
                spool_tables.NESTED,
            )
        else:
            self._run(
                spool_tables.TOUCHED,
                spool_tables.AMBIGUOUS,
                spool_tables.EDGES.format("VIEW"),
                spool_tables.NESTED_OF_CHANGES,
            )
        self._run("CREATE INDEX temp.nested_outer ON nested (outer_object, inner_object)")

    # What it is asked.

    def all_held(self) -> Iterator[Held]:
        """All objects in which members are looked up."""
        return self._held("holds")

    def held_to_tell(self) -> Iterator[Held]:
        """Those that this read told of, and those that its changes touch."""
        return self._held("holds AND (round = ? OR number IN (SELECT object FROM pending))", self._round)

    def _held(self, condition: str, *values: object) -> Iterator[Held]:
        columns = "number, set_name, id, place, value, round"
        statement = f"SELECT {columns} FROM object WHERE {condition} ORDER BY number"  # noqa: S608 - one of two
        with closing(self._connection.execute(statement, values)) as rows:
            for number, set_name, id_, place, value, round_ in rows:
                yield Held(number, ObjectId(set_name, id_), place, orjson.loads(value), round_ == self._round)

    def members(self, held: int) -> Iterator[Member]:
        """The members of an object, those of nested ones included, each once."""
        with closing(self._connection.execute(spool_tables.MEMBERS.format(_COLUMNS), {"object": held})) as rows:
            yield from map(Member._make, rows)

    def ambiguous(self) -> tuple[int, str]:
        """The number of members whose name belongs to two objects, and one of the names."""
        count, example = self._connection.execute(spool_tables.AMBIGUOUS_MEMBERS).fetchone()
        return count, example or ""

    def nowhere(self) -> tuple[int, str]:
        """How many members are named that were told nowhere, and one of the names."""
        count, example = self._connection.execute(spool_tables.NOWHERE).fetchone()
        return count, example or ""

    def chain(self, held: int, member: int) -> list[str]:
        """The places of the groups through which somebody is a member: the object's own first."""
        came_from: dict[int, int] = {}
        reached = [held]
        seen = {held}
        while reached:
            following = []
            for outer in reached:
                if self._holds_directly(outer, member):
                    chain = [outer]
                    while chain[-1] != held:
                        chain.append(came_from[chain[-1]])
                    return [self._place(number) for number in reversed(chain)]
                for (inner,) in self._connection.execute(
                    "SELECT inner_object FROM nested WHERE outer_object = ? ORDER BY 1", (outer,)
                ).fetchall():
                    if inner not in seen:
                        seen.add(inner)
                        came_from[inner] = outer
                        following.append(inner)
            reached = following
        return []

    # How it ends.

    def keep(self, cursor: str, digest: str) -> None:
        """Makes it lasting, as belonging to this cursor. Raises ``SpoolError``, ``OSError``."""
        if self._fresh and (self._replace is None or not cursor):
            return
        self._connection.execute("DELETE FROM belongs")
        self._connection.execute(
            "INSERT INTO belongs VALUES (?, ?, ?, ?)", (digest, cursor, self._cursor_before, self._round)
        )
        self._connection.execute("COMMIT")
        if self._fresh and self._replace is not None:
            self._connection.close()
            self._replace(self._path)

    def close(self) -> None:
        """Drops what was not kept."""
        with suppress(sqlite3.Error):
            self._connection.close()
        if self._fresh:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Rows.

    def _run(self, *scripts: str) -> None:
        """The statements, within the transaction (which ``executescript`` would end)."""
        for script in scripts:
            for statement in script.split(";"):
                self._connection.execute(statement)

    def _write(self) -> None:
        self._connection.executemany("INSERT INTO object VALUES (?, ?, ?, ?, ?, ?, ?, ?)", self._objects)
        self._connection.executemany("INSERT INTO name VALUES (?, ?)", self._names)
        self._objects, self._names = [], []

    def _change(self, thing: DirectoryObject, row: tuple[object, ...]) -> None:
        """Enters an object, and touches its names where somebody above may see the difference."""
        was = self._row(thing.id)
        if was is None:
            cursor = self._connection.execute(
                "INSERT INTO object (set_name, id, place, holds, value, member, round) VALUES (?, ?, ?, ?, ?, ?, ?)",
                row,
            )
            number = int(cursor.lastrowid or 0)
            changed = True
        else:
            number = was[0]
            changed = (bool(was[1]), was[2]) != (row[3], row[5])
            self._connection.execute(
                "UPDATE object SET place = ?, holds = ?, value = ?, member = ?, round = ? WHERE number = ?",
                (*row[2:], number),
            )
        before = self._names_of(number)
        names = set(thing.names)
        members = set(thing.members) if row[3] else set()
        held = {name for (name,) in self._connection.execute("SELECT name FROM member WHERE object = ?", (number,))}
        self._differ("name", number, before, names)
        self._differ("member", number, held, members)
        if changed or members != held:
            self._touch(before | names)
        else:
            self._touch(before ^ names)

    def _differ(self, table: str, number: int, before: set[str], after: set[str]) -> None:
        self._connection.executemany(
            f"DELETE FROM {table} WHERE object = ? AND name = ?",  # noqa: S608 - one of two tables
            [(number, name) for name in before - after],
        )
        self._connection.executemany(
            f"INSERT INTO {table} (object, name) VALUES (?, ?)",  # noqa: S608 - as above
            [(number, name) for name in after - before],
        )

    def _row(self, id_: ObjectId) -> tuple[int, int, bytes | None] | None:
        row: tuple[int, int, bytes | None] | None = self._connection.execute(
            "SELECT number, holds, member FROM object WHERE id = ? AND set_name = ?", (id_.id, id_.set)
        ).fetchone()
        return row

    def _names_of(self, number: int) -> set[str]:
        return {name for (name,) in self._connection.execute("SELECT name FROM name WHERE object = ?", (number,))}

    def _touch(self, names: Iterable[str]) -> None:
        self._connection.executemany("INSERT OR IGNORE INTO touched VALUES (?)", [(name,) for name in names])

    def _holds_directly(self, outer: int, member: int) -> bool:
        statement = "SELECT 1 FROM edge WHERE outer_object = ? AND inner_object = ? LIMIT 1"
        return self._connection.execute(statement, (outer, member)).fetchone() is not None

    def _place(self, number: int) -> str:
        place: str = self._connection.execute("SELECT place FROM object WHERE number = ?", (number,)).fetchone()[0]
        return place
