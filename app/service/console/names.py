"""The records that a page mentions: their names, read with one query for each kind, and their fields in words."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from sqlalchemy import Connection

from app.access.browse.lookup import find_names
from app.access.kinds import KINDS
from app.access.records import Document, Organization, User
from app.foundation.clock import from_epoch_ms
from app.foundation.ids import may_be_stored
from app.service.console.formatting import visible
from app.sync.ledger.items import CONTAINERS, ITEM_KINDS, USER_KINDS
from app.sync.plan.affected_users import SHOWN_FIELDS, CausedChanges
from app.sync.plan.stored_access import StoredAccessChange
from app.sync.runs.run import Run

Mention = tuple[str, str, str]
"""The kind of a record, its organization (empty or ignored for organizations and users), and its id."""

RECORD_OF_ITEM: Mapping[str, str] = {kind: User.kind if kind in USER_KINDS else kind for kind in ITEM_KINDS}
"""The kind of an item → the kind of the record that ``item_id`` identifies."""
CONTAINER_OF_ITEM: Mapping[str, str] = {item.value: container.value for item, container in CONTAINERS.items()}
"""The kind of an item → the kind of the record that ``container_id`` identifies."""


class Field(NamedTuple):
    """A field of a record, in words."""

    name: str
    """Its name in the API."""
    label: str
    text: str
    mention: Mention | None
    """The record that the field identifies."""


_LABELS: Mapping[str, tuple[str, str]] = {
    "userId": ("user", "user"),
    "userAlias": ("alias", ""),
    "organizationId": ("organization", "organization"),
    "organizationUserGroupId": ("group", "group"),
    "memberGroupId": ("member", "group"),
    "folderId": ("folder", "folder"),
    "parentFolderId": ("in folder", "folder"),
    "documentId": ("document", "document"),
    "accessRole": ("role", ""),
    "accessType": ("access type", ""),
    "expiresAt": ("ends", ""),
}
"""Field → its label, and the kind of the record that it identifies."""
_SHOWN_BY_ID = frozenset({"name", "organizationName", "groupName", "folderName", "documentName"})
"""Fields that are shown by the id of their record."""
IDS_SHOWN = 3
"""The users and the resources of a change of access that a list names."""
MENTION = "\0{}\0"
"""The position of a record in a sentence: its number among the records that the sentence mentions."""


def field_of(name: str, text: str, organization_id: str) -> Field:
    """A field in words, of a record in this organization."""
    label, kind = _LABELS.get(name, (name, ""))
    return Field(name, label, visible(text), (kind, organization_id, text) if kind else None)


def fields_of(record: Mapping[str, object], organization_id: str) -> list[Field]:
    """The fields of a record as ``record_to_wire`` returns it. Times are epoch milliseconds there. Its name, its
    organization and fields that are false are left out."""
    kind = record["kind"]
    hidden = {"kind", *_SHOWN_BY_ID, *(() if kind == Organization.kind else ("organizationId",))}
    fields = []
    for name, value in record.items():
        if name in hidden or value is False:
            continue
        if name.endswith("At") and isinstance(value, int):
            text = f"{from_epoch_ms(value):%Y-%m-%d %H:%M:%S} UTC"
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        field = field_of(name, text, organization_id)
        in_folder = name == "folderId" and kind == Document.kind
        fields.append(field._replace(label="in folder") if in_folder else field)
    return fields


class RecordChange(NamedTuple):
    change: str
    """``added``, ``changed`` or ``removed``."""
    kind: str
    fields: Sequence[Field]


def causes_of(row: StoredAccessChange) -> list[RecordChange]:
    """The changes of records behind a change of access."""
    organization_id = row.organization_id
    return [
        RecordChange(
            change,
            str(record["kind"]),
            fields_of({name: value for name, value in record.items() if name in SHOWN_FIELDS}, organization_id),
        )
        for change, record in row.causes
    ]


def with_mentions(sentence: str, mentions: Sequence[Mention]) -> list[str | Mention]:
    """A sentence in parts, with the records that it mentions as parts of their own."""
    return [mentions[int(part)] if number % 2 else part for number, part in enumerate(sentence.split("\0"))]


class OfOrganization(Protocol):
    """What belongs to an organization."""

    @property
    def organization_id(self) -> str: ...


class Item(OfOrganization, Protocol):
    """An item of a plan or of the ledger."""

    @property
    def kind(self) -> str: ...
    @property
    def container_id(self) -> str: ...
    @property
    def item_id(self) -> str: ...


class RecordNames:
    """The names of records. The name of a record that is not in the directory is empty."""

    def __init__(self, names: Mapping[Mention, str] | None = None) -> None:
        self._names = names or {}

    def __call__(self, kind: str, organization_id: str, item_id: str) -> str:
        """The name of a record. It is empty if the record has none."""
        return self._names.get(_key(kind, organization_id, item_id), "")

    def has_record(self, kind: str, organization_id: str, item_id: str) -> bool:
        """Whether the record is in the directory, perhaps with an empty name."""
        return _key(kind, organization_id, item_id) in self._names


def read_names(connection: Connection, mentions: Iterable[Mention]) -> RecordNames:
    by_kind: dict[str, set[tuple[str, str]]] = {}
    for mention in mentions:
        kind, organization_id, item_id = _key(*mention)
        if item_id and may_be_stored(organization_id, item_id):
            by_kind.setdefault(kind, set()).add((organization_id, item_id))
    return RecordNames(
        {
            (kind, *key): name
            for kind, keys in by_kind.items()
            for key, name in find_names(connection, KINDS[kind].record, keys).items()
        }
    )


def mentions_of(items: Iterable[Item]) -> Iterator[Mention]:
    """The records of items, their containers, and their organizations."""
    for item in items:
        yield RECORD_OF_ITEM[item.kind], item.organization_id, item.item_id
        yield Organization.kind, "", item.organization_id
        if item.kind in CONTAINER_OF_ITEM:
            yield CONTAINER_OF_ITEM[item.kind], item.organization_id, item.container_id


def organizations_of(*lists: Iterable[OfOrganization]) -> Iterator[Mention]:
    """The organizations of the entries of lists."""
    for entries in lists:
        yield from ((Organization.kind, "", entry.organization_id) for entry in entries)


def mentions_of_runs(runs: Iterable[Run]) -> Iterator[Mention]:
    """The organizations and users that a list of runs names: the first of each run."""
    for run in runs:
        yield from ((Organization.kind, "", item_id) for item_id in run.organization_ids[:1])
        yield from ((User.kind, "", item_id) for item_id in run.user_ids[:1])


def access_mentions(rows: Iterable[StoredAccessChange]) -> Iterator[Mention]:
    """The organizations, and the users and resources that a list of changes of access names."""
    for row in rows:
        yield "organization", "", row.organization_id
        yield from (("user", "", each) for each in row.user_ids[:IDS_SHOWN])
        yield from ((row.kind, row.organization_id, each) for each in row.resource_ids[:IDS_SHOWN])
        for cause in causes_of(row):
            yield from (field.mention for field in cause.fields if field.mention)


def cause_mentions(causes: Iterable[CausedChanges]) -> Iterator[Mention]:
    """The organizations of causes, and the users and records that they name."""
    for cause in causes:
        yield from (("user", "", user_id) for user_id in cause.users)
        yield "organization", "", cause.organization_id
        fields = fields_of(cause.record, cause.organization_id) if cause.change else ()
        yield from (field.mention for field in fields if field.mention)


def _key(kind: str, organization_id: str, item_id: str) -> Mention:
    return kind, "" if kind in {Organization.kind, User.kind} else organization_id, item_id
