"""Loads one organization before or after a change, as far as decisions about affected users and resources read it.

Memberships and grants that have ended are left out, because they let nobody in. Folders, groups and the grants of
groups are read completely. Users and documents are read as far as they are affected.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection

from app.access.decision.ancestry import MAX_KEPT_ANCESTRY, Ancestry, ancestry_of
from app.access.impact.changed import IS_PUBLIC, Place, Tables, UserState
from app.access.records import (
    AccessRole,
    AccessType,
    Document,
    Folder,
    Grant,
    Group,
    GroupMember,
    Membership,
    Organization,
    Record,
    User,
)
from app.foundation.database.statements import json_list, run

_Value = TypeVar("_Value")

_OF_A_USER = "t.user_id > ''"
"""Queries by id of user must not repeat it: SQLite would read a range of an index for each id."""
_ACTIVE = "(t.expires_at IS NULL OR t.expires_at > :now)"

_USERS = "SELECT t.user_id, t.disabled FROM (@list(ids)) AS l CROSS JOIN {table} t WHERE t.user_id = l.value"
_HOLDERS = """
SELECT user_id FROM {membership} WHERE organization_id = :organization_id
UNION SELECT user_id FROM {groupMember} WHERE organization_id = :organization_id AND user_id > ''
UNION SELECT user_id FROM {grant} WHERE organization_id = :organization_id AND user_id > ''
"""


def _query(columns: str, *conditions: str, ids_in: str = "") -> str:
    """A query of the rows of ``{table}`` in the organization. ``ids_in``: the column that contains ``:ids``."""
    tables, where = "{table} t", ["t.organization_id = :organization_id"]
    if ids_in:
        tables, where = f"(@list(ids)) AS l CROSS JOIN {tables}", [*where, f"t.{ids_in} = l.value"]
    return f"SELECT {columns} FROM {tables} WHERE {' AND '.join([*where, *conditions])}"  # noqa: S608 - constants


class OwnGrant(NamedTuple):
    """A grant of a user."""

    place: Place
    access_role: AccessRole


class LoadedDocument(NamedTuple):
    """What decisions about a document depend on, apart from grants. Absent values are empty."""

    folder_id: str
    access_type: str


class UserOnSide(NamedTuple):
    """What decisions about a user depend on."""

    disabled: UserState
    role: AccessRole | None = None
    """The role of the membership."""
    groups: frozenset[str] = frozenset()
    """Transitively."""
    own_grants: frozenset[OwnGrant] = frozenset()

    @property
    def places(self) -> list[Place]:
        """The folders and documents of the own grants."""
        return [grant.place for grant in self.own_grants]


@dataclass
class Side:
    """An organization in one state, and the users and documents of it that are loaded."""

    connection: Connection
    tables: Tables
    organization_id: str
    now_ms: int
    users: dict[str, UserState] = field(default_factory=dict)
    """The loaded users who exist."""
    roles: dict[str, AccessRole] = field(default_factory=dict)
    """User → role of the membership."""
    direct_groups: dict[str, frozenset[str]] = field(default_factory=dict)
    """User → the groups that contain them directly."""
    own_grants: defaultdict[str, set[OwnGrant]] = field(default_factory=lambda: defaultdict(set))
    """User → their own grants that are loaded."""
    documents: dict[str, LoadedDocument] = field(default_factory=dict)
    _shared: frozenset[type[Record]] = frozenset()
    """The kinds of which the other side loads the records for both."""
    _closures: dict[frozenset[str], frozenset[str]] = field(default_factory=dict)
    _ancestries: dict[str, Ancestry] = field(default_factory=dict)

    def share(self, other: "Side", kinds: Collection[type[Record]]) -> None:
        """Uses the records of these kinds that ``other`` has loaded and will load, instead of loading them again."""
        self._shared = frozenset(kinds)
        for kind in kinds:
            for attribute in _ATTRIBUTES[kind]:
                setattr(self, attribute, getattr(other, attribute))

    @cached_property
    def organization(self) -> Organization | None:
        for access_type, disabled in self._read(Organization, _query("t.access_type, t.disabled")):
            return Organization(
                organization_id=self.organization_id,
                organization_name="",
                access_type=AccessType(access_type),
                disabled=bool(disabled),
            )
        return None

    @cached_property
    def folders(self) -> Mapping[str, Folder]:
        return {
            folder_id: Folder(
                organization_id=self.organization_id,
                folder_id=folder_id,
                folder_name="",
                parent_folder_id=parent or None,
                access_type=AccessType(access_type) if access_type else None,
            )
            for folder_id, parent, access_type in self._read(
                Folder, _query("t.folder_id, t.parent_folder_id, t.access_type")
            )
        }

    @cached_property
    def group_grants(self) -> Mapping[Place, Sequence[Grant]]:
        """The grants of groups on each folder and document."""
        columns = "t.folder_id, t.document_id, t.organization_user_group_id, t.access_role"
        grants = defaultdict(list)
        for folder_id, document_id, group_id, role in self._read(Grant, _query(columns, "t.user_id = ''", _ACTIVE)):
            place = _place(folder_id, document_id)
            grants[place].append(self.grant(place, role, group_id=group_id))
        return grants

    @cached_property
    def granted_places(self) -> Mapping[str, Collection[Place]]:
        """Group → the folders and documents on which it has a grant."""
        return _lists(
            (grant.organization_user_group_id or "", place)
            for place, grants in self.group_grants.items()
            for grant in grants
        )

    @cached_property
    def groups(self) -> Collection[str]:
        """The groups that exist."""
        return {group_id for (group_id,) in self._read(Group, _query("t.organization_user_group_id"))}

    @cached_property
    def inner_groups(self) -> Sequence[tuple[str, str]]:
        """Groups and the groups that are members of them."""
        columns = "t.organization_user_group_id, t.member_group_id"
        return [
            (group_id, inner) for group_id, inner in self._read(GroupMember, _query(columns, "t.member_group_id > ''"))
        ]

    @cached_property
    def _groups_inside(self) -> Mapping[str, Collection[str]]:
        return _lists(self.inner_groups)

    @cached_property
    def _groups_around(self) -> Mapping[str, Collection[str]]:
        return _lists((inner, group_id) for group_id, inner in self.inner_groups)

    @cached_property
    def _subfolders(self) -> Mapping[str, Collection[str]]:
        return _lists((folder.parent_folder_id or "", folder.folder_id) for folder in self.folders.values())

    @cached_property
    def _documents_in(self) -> Mapping[str, Collection[str]]:
        return _lists((document.folder_id, document_id) for document_id, document in self.documents.items())

    def holders(self) -> set[str]:
        """All users with a membership, group or grant in the organization, whether or not it has ended."""
        names = {kind.kind: self.tables[kind] for kind in (Membership, GroupMember, Grant)}
        rows = run(self.connection, _HOLDERS, {"organization_id": self.organization_id}, **names)
        return {user_id for (user_id,) in rows}

    def users_below(self, groups: Iterable[str]) -> set[str]:
        """The users in these groups and in the groups below them."""
        below = _closure(groups, lambda group_id: self._groups_inside.get(group_id, ()))
        users = _query("t.user_id", _OF_A_USER, ids_in="organization_user_group_id")
        return {user_id for (user_id,) in self._read(GroupMember, users, below)}

    def public_places(self) -> set[Place]:
        """The folders and documents that are public themselves."""
        folders: set[Place] = {
            ("folder", folder.folder_id) for folder in self.folders.values() if folder.access_type is AccessType.PUBLIC
        }
        documents = self._read(Document, _query("t.document_id", IS_PUBLIC))
        return folders | {("document", document_id) for (document_id,) in documents}

    def load_users(self, users: Collection[str], *, all_entries: bool) -> None:
        """Loads these users, with their memberships and groups. ``all_entries``: they are all users who have any."""
        ids_in, ids = ("", None) if all_entries else ("user_id", users)
        for user_id, disabled in self._load(User, _USERS, users):
            self.users[user_id] = bool(disabled)
        for user_id, role in self._load(Membership, _query("t.user_id, t.access_role", _ACTIVE, ids_in=ids_in), ids):
            self.roles[user_id] = AccessRole(role)
        members = _query(
            "t.user_id, t.organization_user_group_id", *([_OF_A_USER] if all_entries else []), ids_in=ids_in
        )
        groups: defaultdict[str, list[str]] = _lists(self._load(GroupMember, members, ids))
        self.direct_groups.update((user_id, frozenset(group_ids)) for user_id, group_ids in groups.items())

    def load_grants_to(self, users: Collection[str]) -> None:
        """Loads the own grants of these users."""
        self._load_grants(ids_in="user_id", ids=users)

    def load_all_grants(self) -> None:
        """Loads all own grants."""
        self._load_grants(_OF_A_USER)

    def load_grants_on(self, places: Collection[Place]) -> None:
        """Loads all own grants on these folders and documents."""
        folders, documents = folders_and_documents(places)
        self._load_grants(_OF_A_USER, "t.document_id = ''", ids_in="folder_id", ids=folders)
        self._load_grants(_OF_A_USER, "t.folder_id = ''", ids_in="document_id", ids=documents)

    def load_documents(self, ids_in: str = "", ids: Collection[str] | None = None) -> None:
        """Loads the documents with one of these ids in the column ``ids_in``. By default all of the organization."""
        documents = _query("t.document_id, t.folder_id, t.access_type", ids_in=ids_in)
        for document_id, folder_id, access_type in self._load(Document, documents, ids):
            self.documents[document_id] = LoadedDocument(folder_id, access_type)

    def folders_below(self, folders: Iterable[str]) -> set[str]:
        """These folders, whether or not they exist, and those below them."""
        return _closure(folders, lambda folder_id: self._subfolders.get(folder_id, ()))

    def below(self, places: Iterable[Place]) -> Iterator[Place]:
        """These folders and documents and everything below them. Of documents, those that are loaded."""
        folders, documents = folders_and_documents(places)
        yield from (("document", document_id) for document_id in documents)
        for folder_id in self.folders_below(folders):
            yield "folder", folder_id
            yield from (("document", document_id) for document_id in self._documents_in.get(folder_id, ()))

    def places_above(self, resources: Iterable[tuple[str, str]]) -> set[Place]:
        """These folders and documents that exist, and all folders above them."""
        folders, documents = folders_and_documents(resources)
        loaded = {
            document_id: self.documents[document_id] for document_id in documents if document_id in self.documents
        }
        above: set[Place] = {("document", document_id) for document_id in loaded}
        for folder_id in {*folders, *(document.folder_id for document in loaded.values())}:
            folder = self.folders.get(folder_id)
            while folder is not None and ("folder", folder.folder_id) not in above:
                above.add(("folder", folder.folder_id))
                folder = self.folders.get(folder.parent_folder_id or "")
        return above

    def ancestry_of(self, folder_id: str) -> Ancestry:
        ancestry = self._ancestries.get(folder_id)
        if ancestry is None:
            ancestry = ancestry_of(self.folders.get, folder_id)
            if len(ancestry.folders) <= MAX_KEPT_ANCESTRY:
                self._ancestries[folder_id] = ancestry
        return ancestry

    def groups_of(self, user_id: str) -> frozenset[str]:
        """The groups of a user, transitively."""
        direct = self.direct_groups.get(user_id)
        if direct is None:
            return frozenset()
        if direct not in self._closures:
            existing = self.groups
            self._closures[direct] = frozenset(
                _closure(
                    (group_id for group_id in direct if group_id in existing),
                    lambda group_id: (outer for outer in self._groups_around.get(group_id, ()) if outer in existing),
                )
            )
        return self._closures[direct]

    def user(self, user_id: str) -> UserOnSide:
        """A user, as far as they are loaded."""
        return UserOnSide(
            disabled=self.users.get(user_id),
            role=self.roles.get(user_id),
            groups=self.groups_of(user_id),
            own_grants=frozenset(self.own_grants.get(user_id, ())),
        )

    def grant(self, place: Place, role: str, *, user_id: str | None = None, group_id: str | None = None) -> Grant:
        """A grant in the organization."""
        level, place_id = place
        return Grant(
            organization_id=self.organization_id,
            folder_id=place_id if level == "folder" else None,
            document_id=place_id if level == "document" else None,
            user_id=user_id,
            organization_user_group_id=group_id,
            access_role=AccessRole(role),
        )

    def _load_grants(self, *conditions: str, ids_in: str = "", ids: Collection[str] | None = None) -> None:
        columns = "t.user_id, t.folder_id, t.document_id, t.access_role"
        grants = _query(columns, _ACTIVE, *conditions, ids_in=ids_in)
        for user_id, folder_id, document_id, role in self._load(Grant, grants, ids):
            self.own_grants[user_id].add(OwnGrant(_place(folder_id, document_id), AccessRole(role)))

    def _load(self, kind: type[Record], text: str, ids: Iterable[str] | None = None) -> Iterable[Any]:
        """Reads as ``_read``, or nothing if the other side loads these records."""
        return () if kind in self._shared else self._read(kind, text, ids)

    def _read(self, kind: type[Record], text: str, ids: Iterable[str] | None = None) -> Iterable[Any]:
        parameters: dict[str, object] = {"organization_id": self.organization_id, "now": self.now_ms}
        if ids is not None:
            parameters["ids"] = json_list(ids)
        return run(self.connection, text, parameters, table=self.tables[kind])


_ATTRIBUTES: Mapping[type[Record], Sequence[str]] = {
    User: ["users"],
    Membership: ["roles"],
    Group: ["groups"],
    GroupMember: ["direct_groups", "inner_groups"],
    Folder: ["folders"],
    Document: ["documents"],
    Grant: ["own_grants", "group_grants"],
}
"""The attributes of a ``Side`` that contain the records of each kind."""


def folders_and_documents(places: Iterable[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """The ids of the folders, and those of the documents."""
    by_level = _lists(places)
    return list(by_level["folder"]), list(by_level["document"])


def _place(folder_id: str, document_id: str) -> Place:
    return ("folder", folder_id) if folder_id else ("document", document_id)


def _lists(pairs: Iterable[tuple[str, _Value]]) -> defaultdict[str, list[_Value]]:
    """The second values by the first."""
    values: defaultdict[str, list[_Value]] = defaultdict(list)
    for key, value in pairs:
        values[key].append(value)
    return values


def _closure(first: Iterable[str], following: Callable[[str], Iterable[str]]) -> set[str]:
    """These ids and all that follow from them."""
    closure = set(first)
    waiting = list(closure)
    while waiting:
        for each in following(waiting.pop()):
            if each not in closure:
                closure.add(each)
                waiting.append(each)
    return closure
