"""Where the records stand on which an item of a plan rests, as sources give them now."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from sqlalchemy import Connection

from app.access.browse.reach import chain_to, group_grants_on, groups_of_user, members_along
from app.access.origins import origins_of
from app.access.records import (
    Document,
    Folder,
    Grant,
    Group,
    GroupMember,
    Key,
    Membership,
    Organization,
    Record,
    User,
)
from app.sync.plan.rules import Kind
from app.sync.plan.stored import PlanItem

_GROUPS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class SupportingRecord:
    """One record and its places; of a grant to a group, or of who is in one, also what it says."""

    kind: str
    places: Sequence[str] = ()
    group_id: str = ""
    member_kind: str = ""
    """user or group: what is in the group."""
    member_id: str = ""
    role: str = ""


def supporting_records(connection: Connection, item: PlanItem, now: datetime) -> tuple[list[SupportingRecord], int]:
    """What sources say of the item now; and how many further groups have a grant on it that are not told."""
    found = [(one, SupportingRecord(one.kind)) for one in _own(item)]
    kind, more = Kind(item.kind), 0
    if kind in {Kind.FOLDER_USER, Kind.DOCUMENT_USER, Kind.GROUP_MEMBER}:
        reached = groups_of_user(connection, item.organization_id, item.item_id)
        if kind is not Kind.GROUP_MEMBER:
            granted, more = _granted(connection, item, reached, now)
            found += granted
        elif len(chain := chain_to(reached, item.container_id)) > 1:
            found += _members(item, chain)
    origins = origins_of(connection, [record for record, _ in found])
    return [replace(one, places=[str(at) for at in origins.get(record.key, ())]) for record, one in found], more


def _own(item: PlanItem) -> Iterable[Record]:
    """The records that an item may rest on by itself, by their keys."""
    organization, container, own = item.organization_id, item.container_id, item.item_id
    match Kind(item.kind):
        case Kind.ORGANIZATION:
            yield Organization(organization_id=own, organization_name="")
        case Kind.FOLDER:
            yield Folder(organization_id=organization, folder_id=own, folder_name="")
        case Kind.DOCUMENT:
            yield Document(organization_id=organization, document_id=own, document_name="")
        case Kind.GROUP:
            yield Group(organization_id=organization, organization_user_group_id=own, group_name="")
        case Kind.ORGANIZATION_USER:
            yield Membership(organization_id=organization, user_id=own)
            yield User(user_id=own, name="", email="")
        case Kind.FOLDER_USER:
            yield Grant(organization_id=organization, folder_id=container, user_id=own)
            yield User(user_id=own, name="", email="")
        case Kind.DOCUMENT_USER:
            yield Grant(organization_id=organization, document_id=container, user_id=own)
            yield User(user_id=own, name="", email="")
        case Kind.GROUP_MEMBER:
            yield GroupMember(organization_id=organization, organization_user_group_id=container, user_id=own)
            yield User(user_id=own, name="", email="")


def _granted(
    connection: Connection, item: PlanItem, reached: Mapping[str, str | None], now: datetime
) -> tuple[list[tuple[Record, SupportingRecord]], int]:
    """The grants of the user's groups on the same folder or document, each with how they are in the group; and of how
    many more it is not told."""
    level = (item.container_id, "") if Kind(item.kind) is Kind.FOLDER_USER else ("", item.container_id)
    grants = group_grants_on(connection, item.organization_id, level, reached)
    found: dict[Key, tuple[Record, SupportingRecord]] = {}
    for group, grant in islice(grants.items(), _GROUPS_SHOWN):
        ended = ", ended" if grant.expires_at is not None and grant.expires_at <= now else ""
        found[grant.key] = grant, SupportingRecord(grant.kind, group_id=group, role=f"{grant.access_role}{ended}")
        for member, supporting in _members(item, chain_to(reached, group)):
            found[member.key] = member, supporting
    return list(found.values()), max(0, len(grants) - _GROUPS_SHOWN)


def _members(item: PlanItem, chain: Sequence[str]) -> list[tuple[Record, SupportingRecord]]:
    """How the user is in the last group of a chain."""
    return [
        (
            one,
            SupportingRecord(
                one.kind,
                group_id=one.organization_user_group_id,
                member_kind="group" if one.member_group_id else "user",
                member_id=one.member_group_id or one.user_id or "",
            ),
        )
        for one in members_along(item.organization_id, item.item_id, chain)
    ]
