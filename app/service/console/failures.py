"""Failing items: who must act on a failure, where the records of the items are, and what they contain now."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from sqlalchemy import Connection

from app.access.browse.lookup import find
from app.access.kinds import KINDS
from app.access.origins import find_origins
from app.access.records import Document, Folder, Grant, Group, GroupMember, Membership, Organization, Record, User
from app.access.sql_view import SqlView
from app.contract.errors import Status
from app.directory.casting import object_from_record
from app.service.console.names import Item
from app.sync.ledger.failure_lists import Failure, failures_of
from app.sync.ledger.items import ItemKey, Kind
from app.sync.ledger.ledger import ledger_in_use

PLACES_SHOWN = 3
"""The records of one message whose places are shown."""
FailureActor = Literal["", "owner", "backend", "operator", "later"]
"""Who must act: the owner of the records, the backend's administrator, an operator of Usher, or the backend's
administrator if it continues. Empty: neither the status nor the words are known."""
_ACTORS: Mapping[str, FailureActor] = {
    Status.INVALID_ARGUMENT: "owner",
    Status.NOT_FOUND: "operator",
    Status.ALREADY_EXISTS: "operator",
    Status.INTERNAL: "later",
    Status.UNAVAILABLE: "later",
    Status.RESOURCE_EXHAUSTED: "later",
    **dict.fromkeys(
        (Status.FAILED_PRECONDITION, Status.UNAUTHENTICATED, Status.PERMISSION_DENIED, Status.UNIMPLEMENTED), "backend"
    ),
}
"""The status of a refusal → who must act."""
_WORDS: Mapping[FailureActor, re.Pattern[str]] = {
    "owner": re.compile(
        r"\b(used|taken) by another\b|\balready (in use|used|taken)\b|\blonger than [\d,]+ (characters|bytes)"
    ),
    "operator": re.compile(r"\bdoes not exist\b|\bnot a member\b"),
}
"""Who must act → the words of refusals of single items. They have no status."""


def failures_now(connection: Connection, item: Item) -> Sequence[Failure]:
    """The failures of an item in the ledger in use: writing it, deleting it, or both."""
    ledger_id = ledger_in_use(connection)
    key = ItemKey(item.kind, item.organization_id, item.container_id, item.item_id)
    return [] if ledger_id is None else failures_of(connection, ledger_id, key)


class Advice(NamedTuple):
    actor: FailureActor
    places: Sequence[str]
    """The places of the records of the first items."""
    items: int
    """The number of these items."""


def advise(connection: Connection, failures: Mapping[str, Sequence[Failure]]) -> dict[str, Advice]:
    """The advice for each message. ``failures``: message → the first items that fail with it."""
    records = {
        message: [own_records(one)[-1] for one in some if not one.deleting] for message, some in failures.items()
    }
    origins = find_origins(connection, [record for some in records.values() for record in some])

    def places(some: Iterable[Record]) -> list[str]:
        return list(dict.fromkeys(str(origin) for record in some for origin in origins.get(record.key, ())[:1]))

    return {
        message: Advice(_actor_of(message), places(some), len(failures[message])) for message, some in records.items()
    }


def _actor_of(message: str) -> FailureActor:
    if actor := _ACTORS.get(message.partition(": ")[0]):
        return actor
    return next((actor for actor, words in _WORDS.items() if words.search(message)), "")


class FieldNow(NamedTuple):
    """A field of an item's record in the directory now."""

    name: str
    value: object
    is_changed: bool
    """Whether another value was sent."""


def fields_now(connection: Connection, item: Item, sent: Mapping[str, object] | None) -> list[FieldNow] | None:
    """The fields of the item's own record, or of its user. None: the directory has no such record, or no reason for the
    user's entry. ``sent``: the fields that were sent. None: unknown."""
    empty = own_records(item)[-1]
    record = find(connection, type(empty), *empty.key[1:])
    if record is None or not _has_reason(SqlView(connection), item):
        return None
    hidden = {"kind", "aliases", *(key.name for key in KINDS[record.kind].keys)}
    now = {name: value for name, value in object_from_record(record).items() if name not in hidden}
    return [FieldNow(name, value, sent is not None and sent.get(name, value) != value) for name, value in now.items()]


def _has_reason(view: SqlView, item: Item) -> bool:
    """Whether the directory has a record because of which the user is in the organization, group, folder or document,
    also one of a group."""
    organization, container, own = item.organization_id, item.container_id, item.item_id
    match Kind(item.kind):
        case Kind.ORGANIZATION_USER:
            return view.membership(organization, own) is not None
        case Kind.FOLDER_USER:
            return bool(view.grants(organization, "folder", container, own))
        case Kind.DOCUMENT_USER:
            return bool(view.grants(organization, "document", container, own))
        case Kind.GROUP_MEMBER:
            return container in view.groups(organization, own)
    return True


def own_records(item: Item) -> tuple[Record, ...]:
    """The records with the item's own keys, that of its user last. Their other fields are empty."""
    organization, container, own = item.organization_id, item.container_id, item.item_id
    user = User(user_id=own, name="", email="")
    match Kind(item.kind):
        case Kind.ORGANIZATION:
            return (Organization(organization_id=own, organization_name=""),)
        case Kind.FOLDER:
            return (Folder(organization_id=organization, folder_id=own, folder_name=""),)
        case Kind.DOCUMENT:
            return (Document(organization_id=organization, document_id=own, document_name=""),)
        case Kind.GROUP:
            return (Group(organization_id=organization, organization_user_group_id=own, group_name=""),)
        case Kind.ORGANIZATION_USER:
            return Membership(organization_id=organization, user_id=own), user
        case Kind.FOLDER_USER:
            return Grant(organization_id=organization, folder_id=container, user_id=own), user
        case Kind.DOCUMENT_USER:
            return Grant(organization_id=organization, document_id=container, user_id=own), user
        case Kind.GROUP_MEMBER:
            member = GroupMember(organization_id=organization, organization_user_group_id=container, user_id=own)
            return member, user
