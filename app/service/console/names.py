"""Looks up the names of the records that a page mentions, with one query for each kind."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from sqlalchemy import Connection

from app.access.browse.lookup import may_be_stored, names_of
from app.access.kinds import KINDS
from app.access.records import Organization, User
from app.sync.ledger.ledger import CONTAINERS, ITEM_KINDS, USER_KINDS

Mention = tuple[str, str, str]
"""The kind of a record, its organization (empty or ignored for organizations and users), and its id."""

RECORD_OF_ITEM: Mapping[str, str] = {kind: User.kind if kind in USER_KINDS else kind for kind in ITEM_KINDS}
"""The kind of an item → the kind of the record that ``item_id`` identifies."""
CONTAINER_OF_ITEM: Mapping[str, str] = {item.value: container.value for item, container in CONTAINERS.items()}
"""The kind of an item → the kind of the record that ``container_id`` identifies."""


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
        """The name of a record; empty if it has none."""
        return self._names.get(_key(kind, organization_id, item_id), "")


def read_names(connection: Connection, mentions: Iterable[Mention]) -> RecordNames:
    """The names of these records."""
    by_kind: dict[str, set[tuple[str, str]]] = {}
    for mention in mentions:
        kind, organization_id, item_id = _key(*mention)
        if item_id and may_be_stored(organization_id, item_id):
            by_kind.setdefault(kind, set()).add((organization_id, item_id))
    return RecordNames(
        {
            (kind, *key): name
            for kind, keys in by_kind.items()
            for key, name in names_of(connection, KINDS[kind].record, keys).items()
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


def _key(kind: str, organization_id: str, item_id: str) -> Mention:
    return kind, "" if kind in {Organization.kind, User.kind} else organization_id, item_id
