"""Items, which a sync sends to a backend: their kinds, keys, and statuses in a plan."""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


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


class ItemStatus(StrEnum):
    """The status of an item in a plan."""

    PLANNED = "planned"
    """It is to be sent, or the delete that includes it is."""
    DONE = "done"
    FAILED = "failed"
    HELD = "held"
    """A delete over the limits, which an operator may approve."""
    DISCARDED = "discarded"
    """A held delete that an operator discarded."""
    WAITING = "waiting"
    """A failed item that is retried later, or a delete in its grace period."""
    PARKED = "parked"
    """An item that failed too often."""
    SKIPPED = "skipped"
    """Not sent because of another item, or because the backend does not support its operation."""
    CANCELLED = "cancelled"
    """The run ended before it was sent."""


ITEM_STATUSES = tuple(status.value for status in ItemStatus)


def noun_of(kind: str, number: int = 2) -> str:
    """The noun for a number of items or records of a kind, such as ``organization members``."""
    noun = re.sub("(?=[A-Z])", " ", kind).lower().replace(" user", " member")
    return noun if number == 1 else f"{noun}s"


USER_KINDS = (Kind.ORGANIZATION_USER, Kind.FOLDER_USER, Kind.DOCUMENT_USER, Kind.GROUP_MEMBER)
"""The kinds whose ``item_id`` is a user."""


def record_kind(kind: str) -> str:
    """The kind of the record that ``item_id`` identifies."""
    return "user" if kind in USER_KINDS else kind


CONTAINERS = {Kind.FOLDER_USER: Kind.FOLDER, Kind.DOCUMENT_USER: Kind.DOCUMENT, Kind.GROUP_MEMBER: Kind.GROUP}
"""The kind of the item that ``container_id`` identifies."""


def listed(kinds: Iterable[str]) -> str:
    """Kinds as an SQL list, for ``IN``."""
    return ", ".join(f"'{kind}'" for kind in kinds)


class ItemKey(NamedTuple):
    """The key of an item within a ledger."""

    kind: str
    organization_id: str
    container_id: str
    item_id: str


IS_SELECTED = """({row}.kind, {row}.organization_id, {row}.container_id, {row}.item_id) IN (
    SELECT @part(selected.value, 0), @part(selected.value, 1), @part(selected.value, 2), @part(selected.value, 3)
    FROM (@list(selected_items)) AS selected)"""
"""The condition that ``{row}`` has one of the keys in the parameter ``selected_items`` (``json_lists``)."""


FINGERPRINT = (
    "({row}.digest || '|' || {row}.access_type || '|' || {row}.access_role || '|' "
    "|| CASE WHEN {row}.disabled THEN '1' ELSE '0' END || '|' || {row}.parent_id)"
)
"""The state that an operation would set, as an SQL expression. ``{row}`` is a table with the columns of an item.
A failure delays later plans only while its fingerprint is the same."""
