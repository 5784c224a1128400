"""The source that reads a directory from a database.

Queries that are called after a kind (``documents``) give records, with columns named as fields. Others give objects, of
which rules make records. All of them are run in one snapshot. Before the first row is read each query is looked at: its
columns must be ones that can be used.
"""

from collections.abc import Callable

from app.directory.connector import Connector, Objects, ObjectsEnd, Wanted
from app.directory.connectors.sql.cursor import NoCursorError
from app.directory.connectors.sql.reading import SqlDatabase, SqlRead
from app.directory.connectors.sql.trouble import SqlTroubleError
from app.directory.source import EVERYTHING, Answered, End, Malformed, Reading, ReadRequest, Source, Verdict
from app.foundation.text import counted


class SqlConnector:
    """The queries of a database that are not called after kinds, as objects."""

    def __init__(self, database: SqlDatabase) -> None:
        self._database = database

    def read(self, wanted: Wanted, request: ReadRequest = EVERYTHING) -> Objects:
        try:
            with self._database.open(request, wanted.attributes) as read:
                yield from ObjectsOfRead(read).read(wanted, request)
        except SqlTroubleError as trouble:
            yield ObjectsEnd(Verdict.FAILED, str(trouble), login_refused=trouble.login_refused)
        except NoCursorError as error:
            yield ObjectsEnd(Verdict.FAILED, f"the cursor {error}", answered=Answered.CURSOR_REFUSED)


class ObjectsOfRead:
    """The same within a read that has begun."""

    def __init__(self, read: SqlRead) -> None:
        self._read = read

    def read(self, wanted: Wanted, request: ReadRequest = EVERYTHING) -> Objects:  # noqa: ARG002 - the read knows it
        """What was asked for when the read was opened."""
        malformed = unnamed = 0
        try:
            for rows in self._read.all_rows:
                if rows.query.kind is not None or rows.query.name not in wanted.attributes:
                    continue
                for step in rows.objects(self._read.taken(rows), tell_lost=self._read.answered is not None):
                    if type(step) is Malformed:
                        malformed += 1
                        unnamed += step.object is None
                    yield step
        except SqlTroubleError as trouble:
            yield ObjectsEnd(Verdict.FAILED, str(trouble), login_refused=trouble.login_refused)
            return
        if malformed:
            reason, cursor = counted(malformed, "malformed row"), "" if unnamed else self._read.cursor
            yield ObjectsEnd(Verdict.PARTIAL, reason, cursor, self._read.answered, except_malformed=not unnamed)
        else:
            yield ObjectsEnd(Verdict.COMPLETE, cursor=self._read.cursor, answered=self._read.answered)


class SqlSource:
    """A database whose queries give records, and perhaps others of which rules make some."""

    def __init__(
        self,
        name: str,
        database: SqlDatabase,
        *,
        wanted: Wanted | None = None,
        mapped: Callable[[Connector], Source] | None = None,
    ) -> None:
        """``mapped`` makes a source of the objects of the other queries, whose rules want ``wanted``."""
        self._name = name
        self._database = database
        self._wanted = wanted or Wanted()
        self._mapped = mapped

    @property
    def name(self) -> str:
        return self._name

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        try:
            with self._database.open(request, self._wanted.attributes) as read:
                yield from self._read(read, request)
        except SqlTroubleError as trouble:
            yield End(Verdict.FAILED, str(trouble), login_refused=trouble.login_refused)
        except NoCursorError as error:
            yield End(Verdict.FAILED, f"the cursor {error}", answered=Answered.CURSOR_REFUSED)

    def _read(self, read: SqlRead, request: ReadRequest) -> Reading:
        malformed = unnamed = 0
        for rows in read.all_rows:
            if rows.query.kind is None:
                continue
            for step in read.records(rows):
                if type(step) is Malformed:
                    malformed += 1
                    unnamed += step.object is None
                yield step
        mapped = End(Verdict.COMPLETE)
        if self._mapped is not None:
            for one in self._mapped(ObjectsOfRead(read)).read(request):
                if isinstance(one, End):
                    mapped = one
                else:
                    yield one
        if mapped.verdict is Verdict.FAILED:
            yield mapped
        elif malformed or mapped.verdict is Verdict.PARTIAL:
            told = [counted(malformed, "malformed row")] if malformed else []
            excepted = not unnamed and (mapped.verdict is Verdict.COMPLETE or mapped.except_malformed)
            yield End(
                Verdict.PARTIAL,
                "; ".join([*told, *filter(None, [mapped.reason])]),
                read.cursor if excepted else "",
                read.answered,
                except_malformed=excepted,
            )
        else:
            yield End(Verdict.COMPLETE, cursor=read.cursor, answered=read.answered)
