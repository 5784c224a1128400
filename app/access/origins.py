"""Finds the origins of records: the rows of the sources from which records of the access model were merged.

The rules: ``app/access/README.md``, "Origins".

They explain decisions and records to operators. Decisions do not use them. The number of statements does not depend on
the number of records.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any

import orjson
from sqlalchemy import Connection, Engine, Row

from app.access.decision.explain import Explanation
from app.access.kinds import KINDS
from app.access.record_tables import TABLES_OF_KIND
from app.access.records import Key, Record, User
from app.access.refresh.fills import add_fill, is_disabling_sql, is_visible_sql
from app.access.refresh.sources import UNCONFIGURED_POSITION
from app.access.source_tables import SOURCE_TABLES, object_of_origin
from app.access.tables import access_keys
from app.foundation.database.engine import reading
from app.foundation.database.statements import json_list, json_lists, run
from app.foundation.text import quoted

# A cross join stops SQLite from reading the source's table to look its rows up in the list.
_ROWS = """
SELECT s.*, d.name AS source_name, d.position, @part(requested.value, {number}) AS number
FROM (@list(keys)) AS requested CROSS JOIN {source} s JOIN directory_source d ON d.source_id = s.source_id
WHERE {same}
ORDER BY d.position, s.origin @bytes, LENGTH(s.rule), s.rule @bytes
"""

# In the order of precedence, as in the merge, except that the user's own source is not first.
_FILLS = """
SELECT f.*, d.name AS source_name, d.position, @part(requested.value, 2) AS number
FROM (@list(keys)) AS requested CROSS JOIN source_fill f JOIN directory_source d ON d.source_id = f.source_id
WHERE f.user_id = @part(requested.value, 0) AND f.user_alias = @part(requested.value, 1) AND {is_visible}
ORDER BY d.position, f.user_alias @bytes, f.origin @bytes, LENGTH(f.rule), f.rule @bytes
"""

# Fills that disable a user by an alias that other users have, or that the user had.
_ALIAS_DISABLES = """
SELECT f.*, d.name AS source_name, d.position, b.user_id AS bound_user, EXISTS (
  SELECT 1 FROM model_user_alias a WHERE a.alias = b.user_alias AND a.user_id = b.user_id) AS has_alias
FROM (@list(users)) AS requested CROSS JOIN fill_binding b CROSS JOIN source_fill f
JOIN directory_source d ON d.source_id = f.source_id
WHERE b.user_id = requested.value AND f.user_alias = b.user_alias AND f.user_alias <> '' AND f.source_id = b.source_id
AND {is_disabling} AND (
  NOT EXISTS (SELECT 1 FROM model_user_alias a WHERE a.alias = b.user_alias AND a.user_id = b.user_id)
  OR EXISTS (SELECT 1 FROM model_user_alias o WHERE o.alias = b.user_alias AND o.user_id <> b.user_id))
ORDER BY d.position, f.user_alias @bytes, f.origin @bytes, LENGTH(f.rule), f.rule @bytes
"""

_ALIASES = """
SELECT a.alias, a.user_id FROM model_user_alias a WHERE a.user_id IN (@list(users)) AND NOT EXISTS (
  SELECT 1 FROM model_user_alias b WHERE b.alias = a.alias AND b.user_id <> a.user_id)
ORDER BY a.alias @bytes
"""

_ABSENT: tuple[object, ...] = (None, "", ())
"""The values of absent fields."""


@dataclass(frozen=True, slots=True)
class RecordOrigin:
    """A row of a source from which a record of the access model was merged."""

    source: str
    """The source's name."""
    retained: bool
    """Whether the source is no longer configured."""
    place: str
    """The place of the row when it last changed: ``file:line``, a DN, a query and row, a push and its item."""
    object_set: str
    """The set of the object that the row was made from. Empty if the source has no objects."""
    object_id: str
    """The object's id. Empty if the source has no objects or the id was too long to store."""
    rule: str
    """The number of the mapping rule that made the record. Empty if no rule did."""
    provides: tuple[str, ...]
    """The fields whose value in the access model it provides, by their wire names."""
    alias: str = ""
    """The alias of a disabling fill, if other users have it or the user no longer has it. Otherwise empty."""
    has_alias: bool = False
    """Whether the user has this alias now."""

    def __str__(self) -> str:
        """For messages: the source, the object, and the rule that made the record."""
        # The places of a query's rows contain its name.
        has_set = not self.object_set or self.place.startswith(f"{self.object_set}, ")
        parts = [self.place if has_set else f"{self.object_set} {self.place}"]
        if self.object_id and self.object_id != self.place:
            parts.append(f"id {self.object_id}")
        if self.rule:
            parts.append(f"rule {self.rule}")
        # A file's places begin with its path, which is its name unless it has one.
        name = "" if self.place.startswith(f"{self.source}:") else f"{self.source}: "
        if self.alias:
            holders = "that several users have" if self.has_alias else "that this user had"
            parts.append(f"under {quoted(self.alias)}, an alias {holders}")
        return f"{name}{', '.join(parts)}{' (retained)' if self.retained else ''}"

    def to_wire(self) -> dict[str, object]:
        """As a JSON object. Fields that do not apply are null."""
        return {
            "source": self.source,
            "retained": self.retained,
            "place": self.place,
            "set": self.object_set or None,
            "id": self.object_id or None,
            "rule": int(self.rule) if self.rule.isdecimal() else self.rule or None,
            "gives": list(self.provides),
            "alias": self.alias or None,
        }


Origins = Mapping[Key, Sequence[RecordOrigin]]
"""Key of a record → its origins, the source that owns it first."""


def path_with_origins(explanation: Explanation, origins: Origins) -> list[dict[str, object]]:
    """The records that led to a decision, each with its ``origins``, which are empty if they no longer exist."""
    return [
        {**wire, "origins": [origin.to_wire() for origin in origins.get(record.key, ())]}
        for wire, record in zip(explanation.path, explanation.records, strict=True)
    ]


def load_origins(engine: Engine, records: Iterable[Record]) -> Origins:
    """Calls ``find_origins`` in its own transaction."""
    with reading(engine) as connection:
        return find_origins(connection, records)


def find_origins(connection: Connection, records: Iterable[Record]) -> Origins:
    """The origins of records of the access model."""
    by_key = {record.key: record for record in records}
    origins: dict[Key, Sequence[RecordOrigin]] = {}
    aliases = _find_aliases(connection, by_key.values())
    for kind, group in groupby(sorted(by_key.values(), key=attrgetter("kind")), key=attrgetter("kind")):
        of_kind = list(group)
        winning = _winning_rows(_find_rows(connection, kind, of_kind, aliases))
        users = [record for record in of_kind if isinstance(record, User)] if winning else []
        fills = _find_fills(connection, users, aliases) if users else {}
        disables = _find_alias_disables(connection, users) if users else {}
        for key, rows in winning.items():
            record = by_key[key]
            if isinstance(record, User):
                of_user = _user_origins(record, rows[0], fills.get(key, ()))
                origins[key] = [*of_user, *disables.get(record.user_id, ())]
            elif KINDS[kind].has_extra_fields:
                # Only the first row was used.
                origins[key] = [_origin(rows[0], _fields_with_values(kind, rows[0]))]
            else:
                origins[key] = [_origin(row, _same_fields(record, row)) for row in rows]
    return origins


def _find_aliases(connection: Connection, records: Iterable[Record]) -> Mapping[str, Sequence[str]]:
    """User → the aliases that no other user has."""
    users = {user_id for record in records if (user_id := getattr(record, "user_id", None))}
    by_user: dict[str, list[str]] = {}
    for row in run(connection, _ALIASES, {"users": json_list(sorted(users))}):
        by_user.setdefault(row.user_id, []).append(row.alias)
    return by_user


def _find_rows(
    connection: Connection, kind: str, records: Sequence[Record], aliases: Mapping[str, Sequence[str]]
) -> Iterator[tuple[Key, Row[Any]]]:
    """The sources' rows with the keys of the records, or with an alias of the user instead of the id."""
    keys, may_use_alias = access_keys(KINDS[kind]), KINDS[kind].may_use_alias
    columns = (*keys, "user_alias") if may_use_alias else keys
    requested: list[tuple[str, ...]] = []
    for number, record in enumerate(records):
        ids = {name: getattr(record, name) or "" for name in keys} | {"user_alias": ""}
        aliased = aliases.get(ids.get("user_id", ""), ()) if may_use_alias else ()
        alternatives = [ids, *(ids | {"user_id": "", "user_alias": alias} for alias in aliased)]
        requested.extend((*(key[name] for name in columns), str(number)) for key in alternatives)
    for row in run(
        connection,
        _ROWS,
        {"keys": json_lists(requested)},
        source=SOURCE_TABLES[kind].name,
        number=str(len(columns)),
        same=" AND ".join(f"s.{name} = @part(requested.value, {number})" for number, name in enumerate(columns)),
    ):
        yield records[int(row.number)].key, row


def _find_fills(
    connection: Connection, users: Sequence[User], aliases: Mapping[str, Sequence[str]]
) -> dict[Key, list[Row[Any]]]:
    """Key → the fills of the user, by position."""
    requested: list[tuple[str, ...]] = []
    for number, user in enumerate(users):
        requested.append((user.user_id, "", str(number)))
        requested.extend(("", alias, str(number)) for alias in aliases.get(user.user_id, ()))
    by_user: dict[Key, list[Row[Any]]] = {}
    for row in run(connection, _FILLS, {"keys": json_lists(requested)}, is_visible=is_visible_sql("f")):
        by_user.setdefault(users[int(row.number)].key, []).append(row)
    return by_user


def _find_alias_disables(connection: Connection, users: Sequence[User]) -> dict[str, list[RecordOrigin]]:
    """User → the fills that disable them by an alias that other users have, or that the user had."""
    by_user: dict[str, list[RecordOrigin]] = {}
    parameters = {"users": json_list(user.user_id for user in users)}
    for row in run(connection, _ALIAS_DISABLES, parameters, is_disabling=is_disabling_sql("f")):
        origin = replace(_origin(row, ["disabled"]), alias=row.user_alias, has_alias=bool(row.has_alias))
        by_user.setdefault(row.bound_user, []).append(origin)
    return by_user


def _winning_rows(rows_of_records: Iterable[tuple[Key, Row[Any]]]) -> dict[Key, list[Row[Any]]]:
    """Key → the rows of the most authoritative source that provides it, without those that a pushed row hides."""
    winning: dict[Key, list[Row[Any]]] = {}
    pushed: set[tuple[Any, ...]] = set()
    for key, row in rows_of_records:
        rows = winning.setdefault(key, [])
        # Under one key a pushed row comes first.
        row_key = (*key, getattr(row, "user_alias", ""), row.source_id)
        if (not rows or rows[0].source_id == row.source_id) and row_key not in pushed:
            rows.append(row)
        if not row.origin:
            pushed.add(row_key)
    return winning


def _fields_with_values(kind: str, row: Row[Any]) -> list[str]:
    """The fields of a row that have a value, without its key."""
    record = TABLES_OF_KIND[kind].record_from_row(row)
    fields = [field for field in KINDS[kind].fields if field not in KINDS[kind].keys]
    names = [field.name for field in fields if getattr(record, field.attribute) not in _ABSENT]
    extra_fields: Mapping[str, object] = getattr(record, "extra_fields", {})
    return [*names, *(name for name, value in sorted(extra_fields.items()) if value not in _ABSENT)]


def _same_fields(record: Record, row: Row[Any]) -> list[str]:
    """The fields, without its key, in which a record has the value of the row."""
    kind = KINDS[record.kind]
    source = TABLES_OF_KIND[record.kind].record_from_row(row)
    fields = [field for field in kind.fields if field not in kind.keys]
    return [field.name for field in fields if getattr(source, field.attribute) == getattr(record, field.attribute)]


def _user_origins(user: User, own: Row[Any], fills: Sequence[Row[Any]]) -> Sequence[RecordOrigin]:
    """The user's own row, then the fills that add a field."""
    # Fills of the user's own source come first.
    rows = [own, *sorted(fills, key=lambda row: row.source_id != own.source_id)]
    provided: list[list[str]] = [[] for _ in rows]
    provided[0] = [name for name in _fields_with_values(User.kind, own) if name != "disabled"]
    fields = orjson.loads(own.payload)
    number_of: dict[str, int] = {}
    for number, row in enumerate(rows[1:], start=1):
        number_of |= dict.fromkeys(add_fill(fields, row.payload), number)
    for name, number in number_of.items():
        if fields[name] not in _ABSENT:
            provided[number].append(name)
    for row, names in zip(rows, provided, strict=True):
        sets_disabled = bool(row.disabled) if user.disabled else row is own
        if sets_disabled:
            names.append("disabled")
    return [_origin(row, names) for row, names in zip(rows, provided, strict=True) if names or row is own]


def _origin(row: Row[Any], provides: Iterable[str]) -> RecordOrigin:
    object_set, object_id = object_of_origin(row.origin)
    return RecordOrigin(
        source=row.source_name,
        retained=row.position >= UNCONFIGURED_POSITION,
        place=row.place,
        object_set=object_set,
        # A digest instead of a long id is of no use to people.
        object_id="" if object_id.startswith("#") else object_id,
        rule=row.rule,
        provides=tuple(provides),
    )
