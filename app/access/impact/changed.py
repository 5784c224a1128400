"""Finds the ids of records that a candidate changes in fields that decisions read, by organization.

The first step of an access impact. A candidate is a read of the directory that is not published
(``app.access.candidate``). The refresh that made it left its changes in the ``delta`` tables
(``app.access.refresh.tables``), which this module reads in the same transaction.
"""

# ruff: noqa: S608 - these texts consist of constants and names of tables

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from sqlalchemy import Connection

from app.access.candidate import lasting_name
from app.access.records import (
    Document,
    Folder,
    Grant,
    Group,
    GroupMember,
    Level,
    Membership,
    Organization,
    Record,
    User,
)
from app.access.refresh.tables import MODEL_TABLES, MODEL_TABLES_OF_KIND, Columns, RowChange
from app.foundation.database.statements import json_list, run

_Value = TypeVar("_Value")


class Sided(NamedTuple, Generic[_Value]):
    """A value before and after the change."""

    before: _Value
    after: _Value


Place = tuple[Level, str]
"""A folder or document of an organization: its kind and its id."""

UserState = bool | None
"""Whether a user is disabled. None: the user does not exist."""

_KINDS: Sequence[type[Record]] = (Membership, Group, GroupMember, Folder, Document, Grant)
"""The kinds within an organization that decisions about whole resources read."""

Tables = Mapping[type[Record], str]
"""The tables of one state of the access model, by kind."""


def tables_before_and_after(connection: Connection) -> Sided[Tables]:
    """The tables of the database behind the candidate, and of the candidate."""
    tables_of_kind = {tables.record_kind.record: tables.model for tables in MODEL_TABLES}
    return Sided(
        {kind: lasting_name(connection, table) for kind, table in tables_of_kind.items()},
        {kind: table.name for kind, table in tables_of_kind.items()},
    )


@dataclass(slots=True)
class ChangedOrganization:
    """The changes in one organization."""

    organization_id: str
    everything: bool = False
    """Whether its own row changes. Nothing else is recorded then."""
    kinds: set[type[Record]] = field(default_factory=set)
    """The kinds of which records change."""
    places: set[Place] = field(default_factory=set)
    """The folders and documents that change."""
    users: set[str] = field(default_factory=set)
    """Users whose membership changes, or who change themselves and have an entry in the organization."""
    grouped: set[str] = field(default_factory=set)
    """Users who enter or leave a group."""
    groups: set[str] = field(default_factory=set)
    """Groups that are added or removed, or that enter or leave another group."""
    user_grants: defaultdict[str, set[Place]] = field(default_factory=lambda: defaultdict(set))
    """User → the places of changed grants."""
    group_grants: defaultdict[str, set[Place]] = field(default_factory=lambda: defaultdict(set))
    """Group → the places of changed grants."""
    affects_outsiders: bool = False
    """Whether users without an entry in it may be affected: something in it is public, and any user changes."""

    @property
    def unchanged_kinds(self) -> set[type[Record]]:
        """The kinds of which no record in it changes."""
        return set() if self.everything else set(_KINDS) - self.kinds


class ChangedModel:
    """What the candidate changes. Reads the deltas when it is created."""

    def __init__(self, connection: Connection, tables: Sided[Tables]) -> None:
        self._connection = connection
        self._sides = tables
        rows = self._compare(User, "d.user_id, b.disabled, a.disabled")
        self.users = {user_id: Sided(_state(before), _state(after)) for user_id, before, after in rows}
        """The users who are added, removed, disabled or enabled."""
        self._organizations: dict[str, ChangedOrganization] = {}
        for (organization_id,) in self._compare(Organization, "d.organization_id"):
            self._organization(organization_id).everything = True
        whole = json_list(self._organizations)
        for kind in _KINDS:
            keys = f"{MODEL_TABLES_OF_KIND[kind.kind].keys:d}"
            for key in self._compare(kind, keys, "AND d.organization_id NOT IN (@list(whole))", whole=whole):
                self._add(kind, key)
        if self.users:
            self._add_changed_users()

    @property
    def organizations(self) -> list[ChangedOrganization]:
        """The organizations in which access may differ, by id."""
        return [self._organizations[organization_id] for organization_id in sorted(self._organizations)]

    def _organization(self, organization_id: str) -> ChangedOrganization:
        if organization_id not in self._organizations:
            self._organizations[organization_id] = ChangedOrganization(organization_id)
        return self._organizations[organization_id]

    def _compare(
        self, kind: type[Record], selected: str, condition: str = "", **parameters: str
    ) -> Iterator[tuple[Any, ...]]:
        """The rows of a delta whose fields for decisions differ."""
        tables, (before, after) = MODEL_TABLES_OF_KIND[kind.kind], self._sides
        ignored = {*tables.keys, "payload", "digest", "source_id"}
        # With a column of the key, so that it is never empty.
        fields = Columns((tables.keys[0], *(column.name for column in tables.model.c if column.name not in ignored)))
        statement = (
            f"SELECT {selected} FROM {tables.delta.name} d"
            f" LEFT JOIN {before[kind]} b ON {tables.keys:b=d} LEFT JOIN {after[kind]} a ON {tables.keys:a=d}"
            f" WHERE d.change <> {int(RowChange.OWNER)} AND ({fields:b}) IS DISTINCT FROM ({fields:a}) {condition}"
        )
        yield from map(tuple, run(self._connection, statement, parameters))

    def _add(self, kind: type[Record], key: tuple[str, ...]) -> None:
        organization_id, *ids = key
        changed = self._organization(organization_id)
        changed.kinds.add(kind)
        if kind is Grant:
            folder_id, document_id, user_id, group_id = ids
            place: Place = ("folder", folder_id) if folder_id else ("document", document_id)
            (changed.user_grants[user_id] if user_id else changed.group_grants[group_id]).add(place)
        elif kind is GroupMember:
            _, user_id, member_group_id = ids
            (changed.grouped if user_id else changed.groups).add(user_id or member_group_id)
        elif kind is Membership:
            changed.users.update(ids)
        elif kind is Group:
            changed.groups.update(ids)
        else:
            changed.places.update(("folder" if kind is Folder else "document", item_id) for item_id in ids)

    def _add_changed_users(self) -> None:
        users = {"users": json_list(self.users)}
        for tables in self._sides:
            for kind in (Membership, GroupMember, Grant):
                for organization_id, user_id in run(self._connection, _ENTRIES, users, table=tables[kind]):
                    changed = self._organization(organization_id)
                    if not changed.everything:
                        changed.users.add(user_id)
            names = {kind.kind: tables[kind] for kind in (Organization, Folder, Document)}
            for (organization_id,) in run(self._connection, _PUBLIC, **names):
                self._organization(organization_id).affects_outsiders = True


_ENTRIES = """
SELECT DISTINCT t.organization_id, t.user_id FROM (@list(users)) AS u CROSS JOIN {table} t WHERE t.user_id = u.value
"""

IS_PUBLIC = "access_type = 'public' AND access_type <> '' AND access_type <> 'restricted'"
"""SQLite uses a partial index only if the query repeats its condition."""

_PUBLIC = f"""
SELECT organization_id FROM {{organization}} WHERE access_type = 'public'
UNION SELECT organization_id FROM {{folder}} WHERE {IS_PUBLIC}
UNION SELECT organization_id FROM {{document}} WHERE {IS_PUBLIC}
"""


def _state(disabled: object) -> UserState:
    return None if disabled is None else bool(disabled)
