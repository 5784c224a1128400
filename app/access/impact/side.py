"""One organization before or after the change: the part that decisions about the affected users and resources read.

Memberships and grants that have ended are left out, because they let nobody in. Folders, groups and the grants of
groups are read completely; users and documents are read as far as they are affected.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

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

EVERYBODY = None
"""All users who have an entry in the organization."""
EVERYTHING = None
"""All documents of the organization."""

_ORGANIZATION = "SELECT access_type, disabled FROM {table} WHERE organization_id = :organization_id"
_FOLDERS = "SELECT folder_id, parent_folder_id, access_type FROM {table} WHERE organization_id = :organization_id"
_GROUPS = "SELECT organization_user_group_id FROM {table} WHERE organization_id = :organization_id"
_INNER_GROUPS = """
SELECT organization_user_group_id, member_group_id FROM {table}
WHERE organization_id = :organization_id AND member_group_id > ''
"""
_GROUP_GRANTS = """
SELECT folder_id, document_id, organization_user_group_id, access_role FROM {table}
WHERE organization_id = :organization_id AND user_id = '' AND (expires_at IS NULL OR expires_at > :now)
"""

_DOCUMENTS = "SELECT t.document_id, t.folder_id, t.access_type FROM "
_ALL_DOCUMENTS = _DOCUMENTS + "{table} t WHERE t.organization_id = :organization_id"
_DOCUMENTS_IN = (
    _DOCUMENTS
    + "(@list(ids)) AS l CROSS JOIN {table} t WHERE t.organization_id = :organization_id AND t.folder_id = l.value"
)
_DOCUMENTS_BY_ID = (
    _DOCUMENTS
    + "(@list(ids)) AS l CROSS JOIN {table} t WHERE t.organization_id = :organization_id AND t.document_id = l.value"
)
_PUBLIC_DOCUMENTS = (
    "SELECT document_id FROM {table} WHERE organization_id = :organization_id AND " + IS_PUBLIC  # noqa: S608 - constants
)

_HOLDERS = """
SELECT user_id FROM {membership} WHERE organization_id = :organization_id
UNION SELECT user_id FROM {groupMember} WHERE organization_id = :organization_id AND user_id > ''
UNION SELECT user_id FROM {grant} WHERE organization_id = :organization_id AND user_id > ''
"""

_USERS = "SELECT t.user_id, t.disabled FROM (@list(ids)) AS l CROSS JOIN {table} t WHERE t.user_id = l.value"

_ALL = "{table} t WHERE t.organization_id = :organization_id AND t.user_id > ''"
_OF_USERS = "(@list(ids)) AS l CROSS JOIN {table} t WHERE t.organization_id = :organization_id AND t.user_id = l.value"
_ON_FOLDERS = """(@list(ids)) AS l CROSS JOIN {table} t
WHERE t.organization_id = :organization_id AND t.folder_id = l.value AND t.document_id = '' AND t.user_id > ''"""
_ON_DOCUMENTS = """(@list(ids)) AS l CROSS JOIN {table} t
WHERE t.organization_id = :organization_id AND t.folder_id = '' AND t.document_id = l.value AND t.user_id > ''"""
_ACTIVE = " AND (t.expires_at IS NULL OR t.expires_at > :now)"

_MEMBERSHIPS = "SELECT t.user_id, t.access_role FROM "
_MEMBERS = "SELECT t.user_id, t.organization_user_group_id FROM "
_GRANTS = "SELECT t.user_id, t.folder_id, t.document_id, t.access_role FROM "

_USERS_IN_GROUPS = """
SELECT t.user_id FROM (@list(ids)) AS l CROSS JOIN {table} t
WHERE t.organization_id = :organization_id AND t.organization_user_group_id = l.value AND t.user_id > ''
"""


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
    own_grants: defaultdict[str, dict[Place, Grant]] = field(default_factory=lambda: defaultdict(dict))
    """User → their own grants that are loaded."""
    documents: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Document → its folder and access type, empty if it has none."""
    _twin: "Side | None" = None
    """The other side, which has the same records of the kinds ``_shared``."""
    _shared: frozenset[str] = frozenset()
    _closures: dict[frozenset[str], frozenset[str]] = field(default_factory=dict)
    _ancestries: dict[str, Ancestry] = field(default_factory=dict)

    def share(self, twin: "Side", kinds: Iterable[str], *, users: bool) -> None:
        """Uses what ``twin`` has loaded before of these kinds, and of ``users``, instead of loading the same again."""
        self._twin, self._shared = twin, frozenset((*kinds, *((User.kind,) if users else ())))
        if User.kind in self._shared:
            self.users = twin.users
        if Membership.kind in self._shared:
            self.roles = twin.roles
        if GroupMember.kind in self._shared:
            self.direct_groups = twin.direct_groups
        if Grant.kind in self._shared:
            self.own_grants = twin.own_grants
        if Document.kind in self._shared:
            self.documents = twin.documents

    @cached_property
    def organization(self) -> Organization | None:
        for access_type, disabled in self._read(_ORGANIZATION, Organization):
            return Organization(
                organization_id=self.organization_id,
                organization_name="",
                access_type=AccessType(access_type),
                disabled=bool(disabled),
            )
        return None

    @cached_property
    def folders(self) -> Mapping[str, Folder]:
        if (twin := self._sharing(Folder)) is not None:
            return twin.folders
        return {
            folder_id: Folder(
                organization_id=self.organization_id,
                folder_id=folder_id,
                folder_name="",
                parent_folder_id=parent or None,
                access_type=AccessType(access_type) if access_type else None,
            )
            for folder_id, parent, access_type in self._read(_FOLDERS, Folder)
        }

    @cached_property
    def group_grants(self) -> Mapping[Place, Sequence[Grant]]:
        """The grants of groups on each folder and document."""
        if (twin := self._sharing(Grant)) is not None:
            return twin.group_grants
        found = defaultdict(list)
        for folder_id, document_id, group_id, role in self._read(_GROUP_GRANTS, Grant):
            place: Place = ("folder", folder_id) if folder_id else ("document", document_id)
            found[place].append(self._grant(place, role, group_id=group_id))
        return found

    @cached_property
    def granted_places(self) -> Mapping[str, Collection[Place]]:
        """Group → the folders and documents on which it has a grant."""
        found: defaultdict[str, set[Place]] = defaultdict(set)
        for place, grants in self.group_grants.items():
            for grant in grants:
                found[grant.organization_user_group_id or ""].add(place)
        return found

    @cached_property
    def groups(self) -> Collection[str]:
        """The groups that exist."""
        if (twin := self._sharing(Group)) is not None:
            return twin.groups
        return {group_id for (group_id,) in self._read(_GROUPS, Group)}

    @cached_property
    def inner_groups(self) -> Sequence[tuple[str, str]]:
        """Groups and the groups that are members of them."""
        if (twin := self._sharing(GroupMember)) is not None:
            return twin.inner_groups
        return [(group_id, inner) for group_id, inner in self._read(_INNER_GROUPS, GroupMember)]

    @cached_property
    def _groups_around(self) -> Mapping[str, Collection[str]]:
        found = defaultdict(list)
        for group_id, inner in self.inner_groups:
            found[inner].append(group_id)
        return found

    @cached_property
    def _subfolders(self) -> Mapping[str, Collection[str]]:
        found = defaultdict(list)
        for folder in self.folders.values():
            if folder.parent_folder_id is not None:
                found[folder.parent_folder_id].append(folder.folder_id)
        return found

    @cached_property
    def _documents_in(self) -> Mapping[str, Collection[str]]:
        found = defaultdict(list)
        for document_id, (folder_id, _) in self.documents.items():
            if folder_id:
                found[folder_id].append(document_id)
        return found

    def holders(self) -> set[str]:
        """All users with a membership, group or grant in the organization, whether or not it has ended."""
        names = {kind.kind: self.tables[kind] for kind in (Membership, GroupMember, Grant)}
        found = run(self.connection, _HOLDERS, {"organization_id": self.organization_id}, **names)
        return {user_id for (user_id,) in found}

    @cached_property
    def _groups_inside(self) -> Mapping[str, Collection[str]]:
        found = defaultdict(list)
        for group_id, inner in self.inner_groups:
            found[group_id].append(inner)
        return found

    def users_below(self, groups: Iterable[str]) -> set[str]:
        """The users in these groups and in the groups below them."""
        below = _closure(groups, lambda group_id: self._groups_inside.get(group_id, ()))
        return {user_id for (user_id,) in self._read(_USERS_IN_GROUPS, GroupMember, below)}

    def public_places(self) -> set[Place]:
        """The folders and documents that are public themselves."""
        found: set[Place] = {
            ("folder", folder.folder_id) for folder in self.folders.values() if folder.access_type is AccessType.PUBLIC
        }
        return found | {("document", document_id) for (document_id,) in self._read(_PUBLIC_DOCUMENTS, Document)}

    def load_users(self, users: Collection[str] | None, known: Collection[str]) -> None:
        """Loads these users, or ``EVERYBODY``: then ``known`` are the users of the organization."""
        wanted = known if users is None else users
        which, ids = (_ALL, None) if users is None else (_OF_USERS, users)
        for user_id, disabled in self._load(_USERS, User, wanted):
            self.users[user_id] = bool(disabled)
        for user_id, role in self._load(_MEMBERSHIPS + which + _ACTIVE, Membership, ids):
            self.roles[user_id] = AccessRole(role)
        direct = defaultdict(list)
        for user_id, group_id in self._load(_MEMBERS + which, GroupMember, ids):
            direct[user_id].append(group_id)
        same: dict[frozenset[str], frozenset[str]] = {}
        for user_id, groups in direct.items():
            group_set = frozenset(groups)
            self.direct_groups[user_id] = same.setdefault(group_set, group_set)

    def load_grants_of(self, users: Collection[str] | None) -> None:
        """Loads the own grants of these users, or of ``EVERYBODY``."""
        self._load_grants(_ALL if users is None else _OF_USERS, users)

    def load_grants_on(self, places: Collection[Place]) -> None:
        """Loads all own grants on these folders and documents."""
        self._load_grants(_ON_FOLDERS, [place_id for level, place_id in places if level == "folder"])
        self._load_grants(_ON_DOCUMENTS, [place_id for level, place_id in places if level == "document"])

    def load_documents(self, folders: Collection[str] | None, ids: Collection[str] = ()) -> None:
        """Loads the documents in these folders and with these ids, or ``EVERYTHING``."""
        if folders is None:
            rows = [self._load(_ALL_DOCUMENTS, Document)]
        else:
            rows = [self._load(_DOCUMENTS_IN, Document, folders), self._load(_DOCUMENTS_BY_ID, Document, ids)]
        for found in rows:
            for document_id, folder_id, access_type in found:
                self.documents[document_id] = folder_id, access_type

    def folders_below(self, folders: Iterable[str]) -> set[str]:
        """These folders, whether or not they exist, and those below them."""
        return _closure(folders, lambda folder_id: self._subfolders.get(folder_id, ()))

    def below(self, places: Iterable[Place]) -> Iterator[Place]:
        """These folders and documents and everything below them; of documents, those that are loaded."""
        roots: list[str] = []
        for level, place_id in places:
            if level == "folder":
                roots.append(place_id)
            else:
                yield level, place_id
        for folder_id in self.folders_below(roots):
            yield "folder", folder_id
            for document_id in self._documents_in.get(folder_id, ()):
                yield "document", document_id

    def places_above(self, resources: Iterable[tuple[str, str]]) -> set[Place]:
        """These folders and documents that exist, and all folders above them."""
        found: set[Place] = set()
        folders: set[str] = set()
        for kind, resource_id in resources:
            if kind == "folder":
                folders.add(resource_id)
            elif (document := self.documents.get(resource_id)) is not None:
                found.add(("document", resource_id))
                folders.add(document[0])
        for folder_id in folders:
            folder = self.folders.get(folder_id)
            while folder is not None and ("folder", folder.folder_id) not in found:
                found.add(("folder", folder.folder_id))
                folder = self.folders.get(folder.parent_folder_id or "")
        return found

    def ancestry_of(self, folder_id: str) -> Ancestry:
        found = self._ancestries.get(folder_id)
        if found is None:
            found = ancestry_of(self.folders.get, folder_id)
            if len(found.folders) <= MAX_KEPT_ANCESTRY:
                self._ancestries[folder_id] = found
        return found

    def groups_of(self, user_id: str) -> frozenset[str]:
        """The groups of a user, transitively."""
        direct = self.direct_groups.get(user_id)
        if direct is None:
            return frozenset()
        if direct not in self._closures:
            exist = self.groups
            self._closures[direct] = frozenset(
                _closure(
                    (group_id for group_id in direct if group_id in exist),
                    lambda group_id: (outer for outer in self._groups_around.get(group_id, ()) if outer in exist),
                )
            )
        return self._closures[direct]

    def _load_grants(self, which: str, ids: Collection[str] | None) -> None:
        for user_id, folder_id, document_id, role in self._load(_GRANTS + which + _ACTIVE, Grant, ids):
            place: Place = ("folder", folder_id) if folder_id else ("document", document_id)
            self.own_grants[user_id][place] = self._grant(place, role, user_id=user_id)

    def _grant(self, place: Place, role: str, *, user_id: str | None = None, group_id: str | None = None) -> Grant:
        level, place_id = place
        return Grant(
            organization_id=self.organization_id,
            folder_id=place_id if level == "folder" else None,
            document_id=place_id if level == "document" else None,
            user_id=user_id,
            organization_user_group_id=group_id,
            access_role=AccessRole(role),
        )

    def _sharing(self, kind: type[Record]) -> "Side | None":
        return self._twin if kind.kind in self._shared else None

    def _load(self, query: str, kind: type[Record], ids: Iterable[str] | None = None) -> Iterable[tuple[str, ...]]:
        """As ``_read``; nothing if the other side has loaded it."""
        return () if self._sharing(kind) is not None else self._read(query, kind, ids)

    def _read(self, query: str, kind: type[Record], ids: Iterable[str] | None = None) -> Iterable[tuple[str, ...]]:
        parameters: dict[str, object] = {"organization_id": self.organization_id, "now": self.now_ms}
        if ids is not None:
            parameters["ids"] = json_list(ids)
        return run(self.connection, query, parameters, table=self.tables[kind])


def _closure(first: Iterable[str], following: Callable[[str], Iterable[str]]) -> set[str]:
    """These ids and all that follow from them."""
    found = set(first)
    waiting = list(found)
    while waiting:
        for each in following(waiting.pop()):
            if each not in found:
                found.add(each)
                waiting.append(each)
    return found
