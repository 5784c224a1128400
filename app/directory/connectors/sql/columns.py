"""The columns of a query, against the fields of the kind of record that it gives."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from decimal import Decimal
from functools import partial

from app.access.kinds import KINDS
from app.access.records import Sort
from app.directory.casting import check_field_names
from app.directory.connectors.sql.snapshot import NotReadableError
from app.directory.connectors.sql.trouble import SqlTroubleError
from app.directory.connectors.sql.values import NotPlainError, plain, time_text
from app.directory.fields import MalformedRecordError
from app.foundation.text import quoted

Convert = Callable[[object], object]
"""From what the driver gives to a plain value. Raises ``NotPlainError``."""

_NUMBERED = re.compile(r"(.+):\d+")
"""How SQLite calls the second of two columns of one name."""


def check_columns(query: str, columns: Sequence[str], own: Sequence[str], kind: str | None, database: str) -> None:
    """Looks at a query before it is read. ``own`` are the columns that its settings name (key, cursor, …).

    Raises ``SqlTroubleError`` for columns of one name, for one that is named and not there, and, where the query gives
    a ``kind`` of record, for needed fields that are missing and for columns that are no field.
    """
    where = f"queries.{query}"
    twice = sorted({name for name in columns if columns.count(name) > 1} | set(_numbered(columns)))
    if twice:
        raise SqlTroubleError(f"{where}: several columns are called {_list(twice)}; give each a name of its own")
    for name in own:
        if name not in columns:
            raise SqlTroubleError(
                f"{where}: has no column {quoted(name)}; it has {_list(columns)}{_folded(database, columns)}"
            )
    if kind is None:
        return
    fields = [name for name in columns if is_field(name, own, kind)]
    try:
        check_field_names(kind, fields)
    except MalformedRecordError as error:
        folded = _folded(database, columns, error)
        says = f"{str(error).rstrip('?')}{folded}" if folded else error
        raise SqlTroubleError(f"{where}: the column {says}") from None
    missing = missing_fields(kind, fields)
    if missing:
        raise SqlTroubleError(
            f"{where}: lacks {missing}, which {kind} records need; give a column that name{_folded(database, columns)}"
        )


def is_field(column: str, own: Iterable[str], kind: str) -> bool:
    """Whether a column is part of the record: those that only the settings name are not."""
    return column in KINDS[kind].field_names or column not in own


def missing_fields(kind: str, given: Sequence[str]) -> str:
    """Those that every record of the kind needs, in words; empty when none is missing."""
    described = KINDS[kind]
    missing = [field.name for field in described.fields if field.is_needed and field.name not in given]
    for group in described.alternatives:
        names = [field.name for field in group]
        if not set(names) & set(given):
            missing.append(f"one of {' or '.join(names)}")
    return ", ".join(missing)


def _numbered(columns: Sequence[str]) -> Iterable[str]:
    for name in columns:
        found = _NUMBERED.fullmatch(name)
        if found and found[1] in columns:
            yield found[1]


def _list(names: Iterable[str]) -> str:
    return ", ".join(quoted(name) for name in names)


def _folded(database: str, columns: Iterable[str], error: MalformedRecordError | None = None) -> str:
    """What to know about PostgreSQL, where it may have made the names small: a name with a capital stood in quotes."""
    if database != "postgresql" or any(name != name.lower() for name in columns):
        return ""
    meant = str(error).rpartition("did you mean ")[2].rstrip("?") if error is not None else "documentId"
    name = meant if meant.isalnum() else "documentId"
    return f'; PostgreSQL makes names small that stand in no quotes: write AS "{name}"'


def converters(kind: str | None, columns: Iterable[str], zone: tzinfo) -> Mapping[str, Convert]:
    """What makes plain values of each column; of a field, such ones as the field can have."""
    fields = KINDS[kind].fields if kind is not None else ()
    of_fields = {field.name: _OF_SORTS.get(field.sort, _anything) for field in fields}
    return {name: partial(of_fields.get(name, _anything), zone) for name in columns}


def takes_texts(kind: str | None, columns: Iterable[str]) -> frozenset[str]:
    """The columns of which texts are converted, too; all other texts are plain as they are."""
    fields = KINDS[kind].fields if kind is not None else ()
    return frozenset(field.name for field in fields if field.sort in {Sort.TIME, Sort.ALIASES}) & frozenset(columns)


def _anything(zone: tzinfo, value: object) -> object:
    if isinstance(value, NotReadableError):
        raise NotPlainError(str(value))
    return plain(value, zone)


def _words(zone: tzinfo, value: object) -> object:
    """Keys are numbers in most databases, and text in records."""
    given = _anything(zone, value)
    return str(given) if isinstance(given, int | float) and not isinstance(given, bool) else given


def _flag(zone: tzinfo, value: object) -> object:
    """Not every database knows true and false."""
    given = _anything(zone, value)
    return _FLAGS.get(value, given) if isinstance(value, int | Decimal | bytes) else given


def _time(zone: tzinfo, value: object) -> object:
    """Without a zone it is taken for ``zone``, as times of columns that are typed so."""
    given = _anything(zone, value)
    if given == "infinity":
        return None
    if not isinstance(given, str):
        return given
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        return given
    # A date alone is left as it is, and refused: nobody knows whether its day still counts.
    if moment.tzinfo is not None or len(given) < len("2027-01-31T18:00"):
        return given
    return time_text(moment, zone)


def _names(zone: tzinfo, value: object) -> object:
    """A list, or a text that is one in JSON, as databases without lists have it, or one name."""
    given = _anything(zone, value)
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given) if given.startswith("[") else [given]
    except (ValueError, RecursionError):
        return [given]


_OF_SORTS: Mapping[Sort, Callable[[tzinfo, object], object]] = {
    Sort.ID: _words,
    Sort.TEXT: _words,
    Sort.ALIAS: _words,
    Sort.ALIASES: _names,
    Sort.FLAG: _flag,
    Sort.TIME: _time,
}

_FLAGS: Mapping[object, bool] = {0: False, 1: True, b"\0": False, b"\1": True}
