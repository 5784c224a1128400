"""The view of the index: an ``AccessView`` that looks up each entry when a decision needs it.

The entries: ``app.access.index.layout``. The port: ``app.access.decision.view``.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import product
from typing import NamedTuple, Protocol

from app.access.decision.ancestry import MAX_KEPT_ANCESTRY, Ancestry, Obstacle, ancestry_of
from app.access.decision.decide import ANY_VALUE, PermissionRequest
from app.access.decision.view import group_path
from app.access.index.layout import (
    CONTEXT_GRANT,
    DOCUMENT,
    FOLDER,
    GROUPS_OF_GROUP,
    GROUPS_OF_USER,
    MEMBERSHIP,
    ORGANIZATION,
    OWN_GRANTS,
    SEPARATOR,
    SINGLE_KIND,
    USER,
    key_of,
    key_part,
    pair_key,
    unescaped,
)
from app.access.records import (
    NO_EXTRA_FIELDS,
    AccessRole,
    AccessType,
    ContextGrant,
    Document,
    Folder,
    Grant,
    GroupMember,
    Level,
    Membership,
    Organization,
    User,
)
from app.foundation.clock import from_epoch_ms


class Entries(Protocol):
    """The entries of one revision."""

    @property
    def get(self) -> Callable[[bytes], bytes | None]:
        """Returns the value of a key; None: there is no such entry."""
        ...

    def items_below(self, prefix: bytes) -> Iterable[tuple[bytes, bytes]]:
        """The entries whose keys begin with ``prefix``."""
        ...


Pair = tuple[str, str]
"""An organization, and an id in it."""

_TYPES: Mapping[str, AccessType | None] = {
    "": None,
    "p": AccessType.PUBLIC,
    "o": AccessType.ORGANIZATION_PRIVATE,
    "r": AccessType.RESTRICTED,
}
_ROLES = {"v": AccessRole.VIEWER, "e": AccessRole.EDITOR}

Grants = dict[str, str]
"""Role and end, by group, or by the level and id of a resource."""

_CROWDED: Grants = {"": ""}
"""Grants that are too many to be listed."""


class _Ancestry(NamedTuple):
    """The ancestry of a folder, with the grants on it."""

    ancestry: Ancestry = Ancestry()
    resources: tuple[str, ...] = ()
    """Its folders, as users' own grants name them: level and id."""
    group_grants: tuple[Grants, ...] = ()
    """The grants of groups on those of its folders that have any."""


_LOOKED_UP = 64
"""The maximum number of context grants that are looked up for one holder."""
_TOP = _Ancestry()
_UNKNOWN = _Ancestry(Ancestry((), Obstacle.UNKNOWN))


class IndexView:
    """The records of one revision. Names and extra fields are empty, because decisions do not need them.

    Entries are read once for all questions of a batch.
    """

    def __init__(self, entries: Entries, revision: int, questions: Sequence[PermissionRequest]) -> None:
        self._entries = entries
        self._get = entries.get
        self._questions = questions
        self._organizations: dict[str, Organization | None] = {}
        self._users: dict[str, User | None] = {}
        self._memberships: dict[Pair, Membership | None] = {}
        self._ancestries: dict[Pair, _Ancestry] = {}
        self._folders: dict[Pair, Folder | None] = {}
        self._group_grants: dict[tuple[Level, str, str], Grants] = {}
        """The grants of groups on folders and documents that have any, of those that were looked up."""
        self._own_grants: dict[Pair, Grants] = {}
        self._groups: dict[Pair, dict[str, str]] = {}
        self._context_grants: dict[Pair, Sequence[ContextGrant]] = {}
        self.revision = revision

    def organization(self, organization_id: str) -> Organization | None:
        if organization_id in self._organizations:
            return self._organizations[organization_id]
        parts = self._read(ORGANIZATION, organization_id, "")
        organization = None
        if parts is not None:
            access_type, disabled = parts
            organization = Organization(
                organization_id=organization_id,
                organization_name="",
                access_type=_TYPES[access_type] or AccessType.ORGANIZATION_PRIVATE,
                disabled=bool(disabled),
            )
        self._organizations[organization_id] = organization
        return organization

    def user(self, user_id: str) -> User | None:
        if user_id in self._users:
            return self._users[user_id]
        parts = self._read(USER, "", user_id)
        user = None
        if parts is not None:
            user = User(user_id=user_id, name="", email="", disabled=bool(parts[0]), extra_fields=NO_EXTRA_FIELDS)
        self._users[user_id] = user
        return user

    def membership(self, organization_id: str, user_id: str) -> Membership | None:
        pair = (organization_id, user_id)
        if pair in self._memberships:
            return self._memberships[pair]
        parts = self._read(MEMBERSHIP, organization_id, user_id)
        membership = None
        if parts is not None:
            role, end = _role_and_end(parts[0])
            membership = Membership(organization_id=organization_id, user_id=user_id, access_role=role, expires_at=end)
        self._memberships[pair] = membership
        return membership

    def document(self, organization_id: str, document_id: str) -> Document | None:
        parts = self._read(DOCUMENT, organization_id, document_id)
        if parts is None:
            return None
        if len(parts) > 2:
            self._group_grants["document", organization_id, document_id] = _listed(parts[2:])
        return Document(
            organization_id=organization_id,
            document_id=document_id,
            document_name="",
            folder_id=parts[1] or None,
            access_type=_TYPES[parts[0]],
            extra_fields=NO_EXTRA_FIELDS,
        )

    def ancestry_of(self, organization_id: str, folder_id: str) -> Ancestry:
        return self._ancestry(organization_id, folder_id).ancestry

    def _ancestry(self, organization_id: str, folder_id: str) -> _Ancestry:
        pair = (organization_id, folder_id)
        if pair in self._ancestries:
            return self._ancestries[pair]
        ancestry = self._ancestries[pair] = self._find_ancestry(organization_id, folder_id)
        return ancestry

    def _find_ancestry(self, organization_id: str, folder_id: str) -> _Ancestry:
        """Walks up to the nearest folder whose ancestry is known, and from there down again."""
        below: dict[str, Folder] = {}
        known: _Ancestry | None = None
        above: str | None = folder_id
        while known is None:
            if above is None:
                known = _TOP
            elif above in below or len(below) > MAX_KEPT_ANCESTRY:
                return self._walked_ancestry(organization_id, folder_id)
            elif (known := self._ancestries.get((organization_id, above))) is None:
                folder = self._folder(organization_id, above)
                if folder is None:
                    known = _UNKNOWN
                else:
                    below[above] = folder
                    above = folder.parent_folder_id
        if known.ancestry.obstacle is Obstacle.CYCLE or len(known.resources) > MAX_KEPT_ANCESTRY:
            return self._walked_ancestry(organization_id, folder_id)
        for below_id, folder in reversed(below.items()):
            grants = self._group_grants.get(("folder", organization_id, below_id))
            known = self._ancestries[organization_id, below_id] = _Ancestry(
                known.ancestry.below(folder),
                (FOLDER + below_id, *known.resources),
                known.group_grants if grants is None else (grants, *known.group_grants),
            )
        return known

    def _walked_ancestry(self, organization_id: str, folder_id: str) -> _Ancestry:
        """The ancestry without those of the folders above, which differ in a cycle, and are large in a deep tree."""
        ancestry = ancestry_of(partial(self._folder, organization_id), folder_id)
        folder_ids = [folder.folder_id for folder in ancestry.folders]
        grants = (self._group_grants.get(("folder", organization_id, above)) for above in folder_ids)
        return _Ancestry(ancestry, tuple([FOLDER + above for above in folder_ids]), tuple(filter(None, grants)))

    def _folder(self, organization_id: str, folder_id: str) -> Folder | None:
        pair = (organization_id, folder_id)
        if pair in self._folders:
            return self._folders[pair]
        parts = self._read(FOLDER, organization_id, folder_id)
        folder = None
        if parts is not None:
            if len(parts) > 2:
                self._group_grants["folder", organization_id, folder_id] = _listed(parts[2:])
            folder = Folder(
                organization_id=organization_id,
                folder_id=folder_id,
                folder_name="",
                parent_folder_id=parts[1] or None,
                access_type=_TYPES[parts[0]],
                extra_fields=NO_EXTRA_FIELDS,
            )
        self._folders[pair] = folder
        return folder

    def any_grants(self, organization_id: str, user_id: str, document_id: str | None, folder_id: str | None) -> bool:
        """As ``AccessView.any_grants``, for a document that was looked up before."""
        own = self._own(organization_id, user_id)
        if own is _CROWDED:
            return True
        above = None if folder_id is None else self._ancestry(organization_id, folder_id)
        if own and document_id is not None and DOCUMENT + document_id in own:
            return True
        if own and above is not None and not own.keys().isdisjoint(above.resources):
            return True
        of_groups = () if above is None else above.group_grants
        if self._group_grants and document_id is not None:
            on_document = self._group_grants.get(("document", organization_id, document_id))
            of_groups = of_groups if on_document is None else (on_document, *of_groups)
        # Most resources have no grants of groups, so that the groups of the user are not needed.
        for grants in of_groups:
            if grants is _CROWDED or not grants.keys().isdisjoint(self.groups(organization_id, user_id)):
                return True
        return False

    def grants(self, organization_id: str, level: Level, resource_id: str, user_id: str) -> Sequence[Grant]:
        found: list[tuple[str | None, str]] = []
        """The group, None for the user's own grant, with the role and end."""
        resource = level[0] + resource_id
        value = self._grant(self._own(organization_id, user_id), OWN_GRANTS, organization_id, user_id, resource)
        if value is not None:
            found.append((None, value))
        if listed := self._group_grants.get((level, organization_id, resource_id)):
            for group_id in self.groups(organization_id, user_id):
                value = self._grant(listed, level[0], organization_id, resource_id, group_id)
                if value is not None:
                    found.append((group_id, value))
        grants = []
        for group, value in found:
            role, expires_at = _role_and_end(value)
            grants.append(
                Grant(
                    organization_id=organization_id,
                    folder_id=resource_id if level == "folder" else None,
                    document_id=resource_id if level == "document" else None,
                    user_id=user_id if group is None else None,
                    organization_user_group_id=group,
                    access_role=role,
                    expires_at=expires_at,
                )
            )
        return grants

    def context_grants(self, organization_id: str, user_id: str) -> Sequence[ContextGrant]:
        """The context grants that may cover a question of the batch."""
        pair = (organization_id, user_id)
        if pair not in self._context_grants:
            self._context_grants[pair] = self._find_context_grants(organization_id, user_id)
        return self._context_grants[pair]

    def _find_context_grants(self, organization_id: str, user_id: str) -> Sequence[ContextGrant]:
        wanted: dict[bytes, tuple[str, str, str]] = {}
        for question in self._questions:
            if question.user_id == user_id and question.organization_id == organization_id:
                for field, asked in (question.context or {}).items():
                    for ids in product((field,), (asked, ANY_VALUE), ("", question.resource_id)):
                        # No stored text contains half a surrogate pair.
                        with suppress(UnicodeEncodeError):
                            wanted[key_part(*ids)] = ids
        grants = []
        for group_id in ("", *self.groups(organization_id, user_id)):
            holder = key_of(CONTEXT_GRANT, organization_id, "" if group_id else user_id, group_id)
            for part, end in self._context_entries(holder, wanted.keys()):
                field, value, document_id = wanted[part]
                grants.append(
                    ContextGrant(
                        organization_id=organization_id,
                        user_id=None if group_id else user_id,
                        organization_user_group_id=group_id or None,
                        field=field,
                        value=value,
                        document_id=document_id or None,
                        expires_at=_end(end.decode()),
                    )
                )
        return grants

    def _context_entries(self, holder: bytes, wanted: AbstractSet[bytes]) -> Iterable[tuple[bytes, bytes]]:
        """The ends of the wanted keys and their values. Many lookups take longer than to read all of the holder."""
        if len(wanted) > _LOOKED_UP:
            start = len(holder)
            found = {key[start:]: value for key, value in self._entries.items_below(holder + SEPARATOR.encode())}
            return [(part, found[part]) for part in sorted(wanted & found.keys())]
        looked_up = ((part, self._get(holder + part)) for part in sorted(wanted))
        return [(part, value) for part, value in looked_up if value is not None]

    def group_path(self, organization_id: str, user_id: str, group_id: str) -> Sequence[GroupMember]:
        return group_path(self.groups(organization_id, user_id), organization_id, user_id, group_id)

    def groups(self, organization_id: str, user_id: str) -> dict[str, str]:
        """The groups of a user, transitively, nearest first: each with the group through which the user is a member;
        empty: directly. A group that does not exist has no members."""
        pair = (organization_id, user_id)
        if pair not in self._groups:
            self._groups[pair] = through = {}
            waiting = deque(("", group_id) for group_id in self._read(GROUPS_OF_USER, organization_id, user_id) or ())
            while waiting:
                member_id, group_id = waiting.popleft()
                if group_id in through:
                    continue
                above = self._read(GROUPS_OF_GROUP, organization_id, group_id)
                if above is not None:
                    through[group_id] = member_id
                    waiting.extend((group_id, above_id) for above_id in above if above_id)
        return self._groups[pair]

    def _own(self, organization_id: str, user_id: str) -> Grants:
        pair = (organization_id, user_id)
        if pair not in self._own_grants:
            parts = self._read(OWN_GRANTS, organization_id, user_id)
            self._own_grants[pair] = {} if parts is None else _listed(parts)
        return self._own_grants[pair]

    def _grant(self, listed: Grants, kind: str, organization_id: str, item_id: str, other_id: str) -> str | None:
        """The role and end of one grant, from a list or, if there are too many, from its own entry."""
        if listed is not _CROWDED:
            return listed.get(other_id)
        parts = self._read(SINGLE_KIND[kind], organization_id, item_id, other_id)
        return None if parts is None else parts[0]

    def _read(self, kind: str, first: str, second: str, *others: str) -> list[str] | None:
        """The value of an entry; None if there is none."""
        try:
            key = key_of(kind, first, second, *others) if others else pair_key(kind, first, second)
        except UnicodeEncodeError:
            return None
        value = self._get(key)
        if value is None:
            return None
        parts = value.decode().split(SEPARATOR)
        return parts if b"\x02" not in value else [unescaped(part) for part in parts]


def _listed(parts: list[str]) -> Grants:
    return dict(zip(parts[::2], parts[1::2], strict=True)) if len(parts) > 1 else _CROWDED


def _role_and_end(value: str) -> tuple[AccessRole, datetime | None]:
    return _ROLES[value[0]], _end(value[1:])


def _end(value: str) -> datetime | None:
    return from_epoch_ms(int(value)) if value else None
