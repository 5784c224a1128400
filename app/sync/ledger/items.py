"""The items that Usher keeps in the backend: their kinds and keys."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import Connection

from app.foundation.database.statements import run, statement


class Kind(StrEnum):
    """A kind of item.

    ========================  ==================  ==============
    kind                      container_id        item_id
    ========================  ==================  ==============
    organization              (empty)             organization
    folder, document, group   (empty)             its own id
    organizationUser          (empty)             user
    folderUser                folder              user
    documentUser              document            user
    groupMember               group               user
    ========================  ==================  ==============
    """

    ORGANIZATION = "organization"
    FOLDER = "folder"
    DOCUMENT = "document"
    GROUP = "group"
    ORGANIZATION_USER = "organizationUser"
    FOLDER_USER = "folderUser"
    DOCUMENT_USER = "documentUser"
    GROUP_MEMBER = "groupMember"


ITEM_KINDS = tuple(kind.value for kind in Kind)

USER_KINDS = (Kind.ORGANIZATION_USER, Kind.FOLDER_USER, Kind.DOCUMENT_USER, Kind.GROUP_MEMBER)
"""The kinds whose ``item_id`` is a user."""

CONTAINERS = {Kind.FOLDER_USER: Kind.FOLDER, Kind.DOCUMENT_USER: Kind.DOCUMENT, Kind.GROUP_MEMBER: Kind.GROUP}
"""The kind of the item that ``container_id`` identifies."""


class ItemKey(NamedTuple):
    """The key of an item within a ledger."""

    kind: str
    organization_id: str
    container_id: str
    item_id: str


_TABLE = """
CREATE TEMPORARY TABLE selected_item (
  kind TEXT NOT NULL, organization_id TEXT NOT NULL, container_id TEXT NOT NULL, item_id TEXT NOT NULL,
  PRIMARY KEY (kind, organization_id, container_id, item_id)
) @keyed
"""

_FILL = "INSERT INTO selected_item VALUES (:kind, :organization_id, :container_id, :item_id)"

_IS_SELECTED = """EXISTS (
    SELECT 1 FROM selected_item s WHERE s.kind = {row}.kind AND s.organization_id = {row}.organization_id
    AND s.container_id = {row}.container_id AND s.item_id = {row}.item_id)"""


@contextmanager
def selected_items(connection: Connection, keys: Sequence[ItemKey], row: str) -> Iterator[str]:
    """The condition that ``row`` has one of the keys, valid within the block; without keys it is always true."""
    if not keys:
        yield "TRUE"
        return
    run(connection, _TABLE)
    connection.execute(statement(connection, _FILL), [key._asdict() for key in dict.fromkeys(keys)])
    yield _IS_SELECTED.replace("{row}", row)
    run(connection, "DROP TABLE selected_item")
