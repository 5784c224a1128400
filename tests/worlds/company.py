"""A random company with random edits, and the expected content of the backend, computed directly from the rules.

The rules are ``app/sync/plan/README.md``, "Desired".
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from app.access.records import (
    AccessRole,
    AccessType,
    Document,
    Fill,
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
from tests.worlds.clock import NOON
from tests.worlds.directory import Directory
from tests.worlds.record_references import references

HOME = "acme"
"""The organization that is never removed."""
_ORGANIZATIONS = (HOME, "Bravo & Söhne", "100% {item}")
_USERS = ("ada", "bob", "Bob", "o'brien", 'quo"te', "zoë", "user 7", "😀", "$(x)", "a/b")
_FOLDERS = ("specs", "drafts", "archive", "Ärger", "f'x", "f|y", "F", "%s")
_DOCUMENTS = ("roadmap", "handbook", "salaries", "d;1", "d 2", "Roadmap", "d/4", "💾")
_GROUPS = ("eng", "core", "all", 'g"1')
_NAMES = ("Plain", "Ünïcode", "line\nbreak", "[bold]x[/]", "tab\there")

Held = dict[str, Any]
"""The content of a backend in simple types; see ``desired``."""


class Company(Directory):
    """A random directory; ``size``, from 0 to 1, is the initial share of the possible records."""

    name = "company"

    def __init__(self, random: Random, size: float = 1.0) -> None:
        super().__init__()
        self.random = random
        self.homeless: set[str] = set()
        """Organizations that were away at some time: what others had put there went with them."""
        self.add(Organization(organization_id=HOME, organization_name="Acme"))
        for _ in range(round(60 * size)):
            self.edit()

    def edit(self) -> None:
        """One random change: adds, changes, moves or removes a record."""
        kind = self.random.choices(
            (self._organization, self._user, self._membership, self._folder, self._document, self._group,
             self._group_member, self._grant, self._remove),
            (1, 5, 5, 5, 5, 2, 4, 6, 5),
        )[0]  # fmt: skip
        kind()
        self._tidy()

    def _pick(self, kind: type[Record], organization: str | None = None) -> Any:
        found = [
            record
            for record in self.records.values()
            if isinstance(record, kind) and organization in {None, getattr(record, "organization_id", None)}
        ]
        return self.random.choice(found) if found else None

    def _organization(self) -> None:
        name = self.random.choice(_ORGANIZATIONS)
        self.add(
            Organization(
                organization_id=name,
                organization_name=self.random.choice(_NAMES),
                access_type=self.random.choice(list(AccessType)),
                disabled=name != HOME and self.random.random() < 0.2,
                extra_fields=self._further(),
            )
        )

    def _user(self) -> None:
        name = self.random.choice(_USERS)
        self.add(
            User(
                user_id=name,
                name=self.random.choice(_NAMES),
                email=f"u{_USERS.index(name)}@{self.random.choice(('acme', 'bravo'))}.example",
                disabled=self.random.random() < 0.1,
                extra_fields=self._further(),
            )
        )

    def _membership(self) -> None:
        user = self._pick(User)
        if user is not None:
            organization = self._pick(Organization).organization_id
            self.add(
                Membership(
                    organization_id=organization,
                    user_id=user.user_id,
                    access_role=self._role(),
                    expires_at=self._expiry(),
                )
            )

    def _folder(self) -> None:
        organization = self._pick(Organization).organization_id
        name = self.random.choice(_FOLDERS)
        above = self._pick(Folder, organization) if self.random.random() < 0.7 else None
        self.add(
            Folder(
                organization_id=organization,
                folder_id=name,
                folder_name=self.random.choice(_NAMES),
                parent_folder_id=None if above is None or self._is_in(above, name) else above.folder_id,
                access_type=self._type(),
                extra_fields=self._further(),
            )
        )

    def _is_in(self, folder: Folder, name: str) -> bool:
        """Whether the named folder is the folder itself or above it."""
        here: Any = folder
        while here is not None:
            if here.folder_id == name:
                return True
            here = self.records.get((Folder.kind, folder.organization_id, here.parent_folder_id or ""))
        return False

    def _document(self) -> None:
        organization = self._pick(Organization).organization_id
        folder = self._pick(Folder, organization) if self.random.random() < 0.7 else None
        self.add(
            Document(
                organization_id=organization,
                document_id=self.random.choice(_DOCUMENTS),
                document_name=self.random.choice(_NAMES),
                folder_id=None if folder is None else folder.folder_id,
                access_type=self._type(),
                extra_fields=self._further(),
            )
        )

    def _group(self) -> None:
        self.add(
            Group(
                organization_id=self._pick(Organization).organization_id,
                organization_user_group_id=self.random.choice(_GROUPS),
                group_name=self.random.choice(_NAMES),
            )
        )

    def _group_member(self) -> None:
        group, user = self._pick(Group), self._pick(User)
        if group is None:
            return
        inner = self._pick(Group, group.organization_id)
        place = {
            "organization_id": group.organization_id,
            "organization_user_group_id": group.organization_user_group_id,
        }
        if self.random.random() < 0.3 and inner is not group:
            self.add(GroupMember(**place, member_group_id=inner.organization_user_group_id))
        elif user is not None:
            self.add(GroupMember(**place, user_id=user.user_id))

    def _grant(self) -> None:
        place = self._pick(self.random.choice((Folder, Document)))
        if place is None:
            return
        values: dict[str, Any] = {"organization_id": place.organization_id}
        if isinstance(place, Folder):
            values["folder_id"] = place.folder_id
        else:
            values["document_id"] = place.document_id
        group, user = self._pick(Group, place.organization_id), self._pick(User)
        if group is not None and self.random.random() < 0.4:
            values["organization_user_group_id"] = group.organization_user_group_id
        elif user is not None:
            values["user_id"] = user.user_id
        else:
            return
        self.add(Grant(**values, access_role=self._role(), expires_at=self._expiry()))

    def _remove(self) -> None:
        kind = self.random.choices(
            (Organization, User, Membership, Folder, Document, Group, GroupMember, Grant), (1, 3, 4, 3, 4, 2, 3, 4)
        )[0]
        record = self._pick(kind)
        if record is not None and record.key != (Organization.kind, HOME):
            del self.records[record.key]

    def _tidy(self) -> None:
        """Removes records with missing references, which other tests cover."""
        while dangling := [
            key for key, record in self.records.items() if any(one not in self.records for one in references(record))
        ]:
            for key in dangling:
                del self.records[key]
        there = {record.organization_id for record in self.records.values() if isinstance(record, Organization)}
        self.homeless |= set(_ORGANIZATIONS) - there

    def _role(self) -> AccessRole:
        return self.random.choice(list(AccessRole))

    def _type(self) -> AccessType | None:
        types: tuple[AccessType | None, ...] = (None, None, *AccessType)
        return self.random.choice(types)

    def _expiry(self) -> datetime | None:
        """Long ago, during the schedule, or never."""
        hours = self.random.choice((None, None, None, None, -1, 3, 12, 1000))
        return None if hours is None else NOON + timedelta(hours=hours)

    def _further(self) -> dict[str, object]:
        return (
            {"plan": self.random.choice(("free", "pro", None, ["x", {"y": 1}]))} if self.random.random() < 0.3 else {}
        )


def edit_many(company: Company, number: int) -> None:
    for _ in range(number):
        company.edit()


def rename_all(company: Company) -> None:
    """Renames every user, which updates every entry."""
    for key, record in list(company.records.items()):
        if isinstance(record, User):
            company.records[key] = replace(record, name=f"{record.name}!")


EDITS: tuple[Callable[[Company], None], ...] = (
    lambda company: edit_many(company, 1),
    lambda company: edit_many(company, 5),
    lambda company: edit_many(company, 15),
    rename_all,
)


def desired(records: dict[Key, Record], now: datetime) -> Held:
    """The expected content of the backend, computed directly from the rules.

    ``organizations``: id → fields; ``folders``: (organization, folder) → fields, parent and own type (at the top: the
    organization's); ``documents``: (organization, document) → fields, folder and type in force; ``groups`` and
    ``members``; ``users``: (organization, level, container, user) → fields and role. Nothing below an organization that
    is disabled.
    """
    held: Held = {"organizations": {}, "folders": {}, "documents": {}, "groups": set(), "members": set(), "users": {}}
    organizations = {r.organization_id: r for r in records.values() if isinstance(r, Organization)}
    users = {r.user_id: r for r in records.values() if isinstance(r, User) and not r.disabled}
    open_ones = {name for name, one in organizations.items() if not one.disabled}
    for name, one in organizations.items():
        held["organizations"][name] = ({"organizationName": one.organization_name, **one.extra_fields}, one.disabled)
    for record in records.values():
        if getattr(record, "organization_id", None) not in open_ones:
            continue
        assert not isinstance(record, User | Fill)
        organization = organizations[record.organization_id]
        if isinstance(record, Folder):
            own = record.access_type or (organization.access_type if record.parent_folder_id is None else None)
            fields = {"folderName": record.folder_name, **record.extra_fields}
            held["folders"][record.organization_id, record.folder_id] = (fields, record.parent_folder_id or "", own)
        elif isinstance(record, Document):
            fields = {"documentName": record.document_name, **record.extra_fields}
            in_force = _type_in_force(records, organization, record)
            held["documents"][record.organization_id, record.document_id] = (fields, record.folder_id or "", in_force)
        elif isinstance(record, Group):
            held["groups"].add((record.organization_id, record.organization_user_group_id))
        elif isinstance(record, Membership) and _active(record, now) and record.user_id in users:
            key = (record.organization_id, "organization", "", record.user_id)
            held["users"][key] = (_fields(users[record.user_id]), record.access_role.value)
    members = {pair: _members(records, pair, set()) & users.keys() for pair in held["groups"]}
    held["members"] = {(*pair, user) for pair, some in members.items() for user in some}
    _add_grants(held, records, members, users, now)
    return held


def _add_grants(
    held: Held, records: dict[Key, Record], members: dict[Any, set[str]], users: dict[str, User], now: datetime
) -> None:
    grants = [
        r
        for r in records.values()
        if isinstance(r, Grant) and _active(r, now) and not held["organizations"][r.organization_id][1]
    ]
    for own in (False, True):  # the own grant last, because it decides
        for grant in grants:
            level = "folder" if grant.folder_id is not None else "document"
            container = grant.folder_id or grant.document_id
            if own != (grant.user_id is not None):
                continue
            holders = (
                {grant.user_id or ""} & users.keys()
                if own
                else members[grant.organization_id, grant.organization_user_group_id]
            )
            for user in holders:
                key = (grant.organization_id, level, container, user)
                before = held["users"].get(key, (None, None))[1]
                role = "editor" if not own and before == "editor" else grant.access_role.value
                held["users"][key] = (_fields(users[user]), role)


def _active(record: Membership | Grant, now: datetime) -> bool:
    return record.expires_at is None or record.expires_at > now


def _fields(user: User) -> dict[str, Any]:
    return {"name": user.name, "email": user.email, **user.extra_fields}


def _members(records: dict[Key, Record], pair: tuple[str, str], seen: set[tuple[str, str]]) -> set[str]:
    if pair in seen:
        return set()
    seen.add(pair)
    found: set[str] = set()
    for record in records.values():
        if isinstance(record, GroupMember) and (record.organization_id, record.organization_user_group_id) == pair:
            if record.user_id is not None:
                found.add(record.user_id)
            else:
                found |= _members(records, (pair[0], record.member_group_id or ""), seen)
    return found


def _type_in_force(records: dict[Key, Record], organization: Organization, document: Document) -> AccessType:
    here: Any = document
    while here is not None:
        if here.access_type is not None:
            found: AccessType = here.access_type
            return found
        above = here.folder_id if isinstance(here, Document) else here.parent_folder_id
        here = records.get((Folder.kind, document.organization_id, above or ""))
    return organization.access_type
