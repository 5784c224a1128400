"""Access models from records in wire form: a view in memory, or the same records in a database.

Records are written directly into the tables of the access model, without a merge.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic.alias_generators import to_camel
from sqlalchemy import Engine, Table, insert

from app.access import tables
from app.access.decision.ancestry import Ancestry, ancestry_of
from app.access.decision.decide import PlainQuestion
from app.access.decision.view import AccessView
from app.access.index.index import AccessIndex
from app.access.records import (
    AccessRole,
    AccessType,
    ContextGrant,
    Document,
    Folder,
    Grant,
    Group,
    GroupMember,
    Key,
    Level,
    Membership,
    Organization,
    Record,
    User,
)
from app.access.sql_view import opened_sql_view
from app.foundation.database.engine import open_engine, writing
from app.foundation.database.tables import METADATA
from tests.tables import make_tables

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OF_KIND: Mapping[str, Any] = {record_type.kind: record_type for record_type in get_args(Record)}
CASTS: Mapping[str, Callable[[Any], object]] = {
    "access_role": AccessRole,
    "access_type": AccessType,
    "value": str,
}


def record_from_wire(kind: str, wire: Mapping[str, object]) -> Record:
    """A record of a small directory file; names and emails are optional."""
    record_type = OF_KIND[kind]
    values: dict[str, Any] = {}
    for field in fields(record_type):
        given = wire.get(to_camel(field.name))
        if given is not None:
            cast = CASTS.get(field.name)
            values[field.name] = given if cast is None else cast(given)
        elif field.name.endswith("_name") or field.name in {"name", "email"}:
            values[field.name] = ""
    unknown = set(wire) - {to_camel(field.name) for field in fields(record_type)}
    assert not unknown, f"{kind} has no {unknown}"
    record: Record = record_type(**values)
    return record


def records_from_wire(directory: Mapping[str, Sequence[Mapping[str, object]]]) -> list[Record]:
    """The records of a directory file: a list per kind."""
    return [record_from_wire(plural.removesuffix("s"), wire) for plural, listed in directory.items() for wire in listed]


class MemoryView:
    """An ``AccessView`` over records in memory; a later record replaces an earlier one with the same key."""

    def __init__(self, records: Iterable[Record], revision: int = 1) -> None:
        self.revision = revision
        self._records: dict[Key, Record] = {record.key: record for record in records}

    def organization(self, organization_id: str) -> Organization | None:
        return self._records.get((Organization.kind, organization_id))  # type: ignore[return-value] # by its key

    def user(self, user_id: str) -> User | None:
        return self._records.get((User.kind, user_id))  # type: ignore[return-value] # by its key

    def membership(self, organization_id: str, user_id: str) -> Membership | None:
        return self._records.get((Membership.kind, organization_id, user_id))  # type: ignore[return-value] # by its key

    def folder(self, organization_id: str, folder_id: str) -> Folder | None:
        return self._records.get((Folder.kind, organization_id, folder_id))  # type: ignore[return-value] # by its key

    def ancestry_of(self, organization_id: str, folder_id: str) -> Ancestry:
        return ancestry_of(lambda above: self.folder(organization_id, above), folder_id)

    def any_grants(self, organization_id: str, user_id: str, document_id: str | None, folder_id: str | None) -> bool:
        return True

    def document(self, organization_id: str, document_id: str) -> Document | None:
        return self._records.get((Document.kind, organization_id, document_id))  # type: ignore[return-value] # by its key

    def grants(self, organization_id: str, level: Level, resource_id: str, user_id: str) -> Sequence[Grant]:
        groups = self._paths(organization_id, user_id)
        return [
            record
            for record in self._records.values()
            if isinstance(record, Grant)
            and record.organization_id == organization_id
            and resource_id == (record.folder_id if level == "folder" else record.document_id)
            and (record.user_id == user_id or record.organization_user_group_id in groups)
        ]

    def context_grants(self, organization_id: str, user_id: str) -> Sequence[ContextGrant]:
        groups = self._paths(organization_id, user_id)
        return [
            record
            for record in self._records.values()
            if isinstance(record, ContextGrant)
            and record.organization_id == organization_id
            and (record.user_id == user_id or record.organization_user_group_id in groups)
        ]

    def group_path(self, organization_id: str, user_id: str, group_id: str) -> Sequence[GroupMember]:
        return self._paths(organization_id, user_id).get(group_id, [])

    def _paths(self, organization_id: str, user_id: str) -> dict[str, list[GroupMember]]:
        members = [
            record
            for record in self._records.values()
            if isinstance(record, GroupMember)
            and record.organization_id == organization_id
            and (Group.kind, organization_id, record.organization_user_group_id) in self._records
        ]
        paths = {member.organization_user_group_id: [member] for member in members if member.user_id == user_id}
        last = list(paths)
        while last:
            found = {}
            for member in members:
                if member.member_group_id in last and member.organization_user_group_id not in paths:
                    found[member.organization_user_group_id] = [*paths[member.member_group_id], member]
            paths.update(found)
            last = list(found)
        return paths


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - EPOCH) // timedelta(milliseconds=1)


def _row(record: Record) -> tuple[Table, dict[str, object]]:
    row: dict[str, object] = {}
    match record:
        case Organization():
            row = {
                "organization_id": record.organization_id,
                "access_type": record.access_type.value,
                "disabled": record.disabled,
                "payload": f'{{"organizationId":"x","organizationName":"{record.organization_name}"}}',
                "digest": "",
            }
            return tables.ACCESS_TABLES[record.kind], row
        case User():
            payload = f'{{"email":"{record.email}","name":"{record.name}","plan":"pro","userId":"x"}}'
            row = {"user_id": record.user_id, "disabled": record.disabled, "payload": payload, "digest": ""}
            return tables.ACCESS_TABLES[record.kind], row
        case Group():
            row = {
                "organization_id": record.organization_id,
                "organization_user_group_id": record.organization_user_group_id,
                "payload": f'{{"groupName":"{record.group_name}","organizationUserGroupId":"x"}}',
                "digest": "",
            }
            return tables.ACCESS_TABLES[record.kind], row
    for field in fields(record):
        value = getattr(record, field.name)
        if field.name == "expires_at":
            row[field.name] = _milliseconds(value)
        elif not field.name.endswith("_name") and field.name != "extra_fields":
            row[field.name] = "" if value is None else str(value)
    if isinstance(record, Folder | Document):
        name = record.folder_name if isinstance(record, Folder) else record.document_name
        row |= {"payload": f'{{"{record.kind}Id":"x","{record.kind}Name":"{name}"}}', "digest": ""}
    return tables.ACCESS_TABLES[record.kind], row


class StoredDirectory:
    """A database that holds one directory at a time."""

    index: AccessIndex | None = None

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._revision = 0
        make_tables(engine, METADATA)

    def write(self, records: Iterable[Record]) -> None:
        """Replaces the content of the database."""
        rows: dict[Table, list[dict[str, object]]] = {}
        for record in {record.key: record for record in records}.values():
            row_type, row = _row(record)
            rows.setdefault(row_type, []).append(row)
        self._revision += 1
        with writing(self.engine) as connection:
            for table in METADATA.sorted_tables:
                if table.name.startswith("model_"):
                    connection.execute(table.delete())
            for row_type, values in rows.items():
                connection.execute(insert(row_type), values)
            connection.execute(
                insert(tables.RevisionRow), [{"revision": self._revision, "created_at": 0, "changes": "{}"}]
            )

    def view(self, questions: Sequence[PlainQuestion]) -> AbstractContextManager[AccessView]:
        """The view of the index if there is one, otherwise that of the database."""
        if self.index is None:
            return opened_sql_view(self.engine, questions)
        self.index.update()
        assert self.index.state.is_used
        return self.index.view(questions)


@pytest.fixture
def stored_directory(database_url: str) -> Iterator[StoredDirectory]:
    engine = open_engine(database_url)
    try:
        yield StoredDirectory(engine)
    finally:
        engine.dispose()


@pytest.fixture(params=["sql", "index"])
def viewed_directory(
    stored_directory: StoredDirectory, tmp_path: Path, request: pytest.FixtureRequest
) -> StoredDirectory:
    """As ``stored_directory``, with the view of the database or of the index."""
    if request.param == "index":
        stored_directory.index = AccessIndex(stored_directory.engine, tmp_path / "index", clock=lambda: EPOCH)
    return stored_directory


@pytest.fixture
def from_wire() -> Callable[[Mapping[str, Sequence[Mapping[str, object]]]], list[Record]]:
    return records_from_wire


@pytest.fixture
def memory_view() -> type[MemoryView]:
    return MemoryView
