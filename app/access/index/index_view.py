"""The view of the index: an ``AccessView`` that looks up each entry when a decision needs it.

The entries: ``app.access.index.layout``. The port: ``app.access.decision.view``.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import datetime
from itertools import product
from typing import Protocol

from app.access.decision.ancestry import Ancestry
from app.access.decision.decide import ANY_VALUE, QuestionLike
from app.access.decision.view import group_path
from app.access.index.folders import FolderAncestry, Folders
from app.access.index.layout import (
    ACCESS_TYPES,
    CONTEXT_GRANT,
    CROWDED,
    DOCUMENT,
    GROUPS_OF_GROUP,
    GROUPS_OF_USER,
    MEMBERSHIP,
    ORGANIZATION,
    OWN_GRANTS,
    SEPARATOR,
    SINGLE_KIND,
    USER,
    Grants,
    entry_key,
    key_part,
    listed_grants,
    pair_key,
    unescaped,
)
from app.access.records import (
    NO_EXTRA_FIELDS,
    AccessRole,
    AccessType,
    ContextGrant,
    Document,
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
        """Returns the value of a key. None: there is no such entry."""
        ...

    def items_below(self, prefix: bytes) -> Iterable[tuple[bytes, bytes]]:
        """The entries whose keys begin with ``prefix``."""
        ...


Pair = tuple[str, str]
"""An organization, and an id in it."""

_ROLES = {"v": AccessRole.VIEWER, "e": AccessRole.EDITOR}

_MAX_LOOKED_UP = 64
"""The maximum number of context grants that are looked up for one holder."""


class IndexView:
    """The records of one revision. Names and extra fields are empty, because decisions do not need them.

    Entries are read once for all questions of a batch.
    """

    def __init__(self, entries: Entries, revision: int, questions: Sequence[QuestionLike], folders: Folders) -> None:
        """``folders``: those of the same revision."""
        self._entries = entries
        self._get = entries.get
        self._questions = questions
        self._folders = folders
        self._ancestries = folders.ancestries
        self._organizations: dict[str, Organization | None] = {}
        self._users: dict[str, User | None] = {}
        self._memberships: dict[Pair, Membership | None] = {}
        self._document_grants: dict[Pair, Grants] = {}
        """The grants of groups on documents that have any, of those that were looked up."""
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
                access_type=ACCESS_TYPES[access_type] or AccessType.ORGANIZATION_PRIVATE,
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
            (disabled,) = parts
            user = User(user_id=user_id, name="", email="", disabled=bool(disabled), extra_fields=NO_EXTRA_FIELDS)
        self._users[user_id] = user
        return user

    def membership(self, organization_id: str, user_id: str) -> Membership | None:
        pair = (organization_id, user_id)
        if pair in self._memberships:
            return self._memberships[pair]
        parts = self._read(MEMBERSHIP, organization_id, user_id)
        membership = None
        if parts is not None:
            (role_and_end,) = parts
            role, end = _parse_role_and_end(role_and_end)
            membership = Membership(organization_id=organization_id, user_id=user_id, access_role=role, expires_at=end)
        self._memberships[pair] = membership
        return membership

    def document(self, organization_id: str, document_id: str) -> Document | None:
        parts = self._read(DOCUMENT, organization_id, document_id)
        if parts is None:
            return None
        # Unpacking all of them would take longer, and few documents have grants of groups.
        access_type, folder_id = parts[0], parts[1]
        if len(parts) > 2:
            self._document_grants[organization_id, document_id] = listed_grants(parts[2:])
        return Document(
            organization_id=organization_id,
            document_id=document_id,
            document_name="",
            folder_id=folder_id or None,
            access_type=ACCESS_TYPES[access_type],
            extra_fields=NO_EXTRA_FIELDS,
        )

    def ancestry_of(self, organization_id: str, folder_id: str) -> Ancestry:
        return self._ancestry(organization_id, folder_id).ancestry

    def _ancestry(self, organization_id: str, folder_id: str) -> FolderAncestry:
        stored = self._ancestries.get((organization_id, folder_id))
        return self._folders.build(self._read, organization_id, folder_id) if stored is None else stored

    def any_grants(self, organization_id: str, user_id: str, document_id: str | None, folder_id: str | None) -> bool:
        """As ``AccessView.any_grants``, for a document that was looked up before: that stores its grants."""
        own = self._own(organization_id, user_id)
        if own is CROWDED:
            return True
        above = None if folder_id is None else self._ancestry(organization_id, folder_id)
        if own and document_id is not None and DOCUMENT + document_id in own:
            return True
        if own and above is not None and not own.keys().isdisjoint(above.resources):
            return True
        of_groups = () if above is None else above.group_grants
        if self._document_grants and document_id is not None:
            on_document = self._document_grants.get((organization_id, document_id))
            of_groups = of_groups if on_document is None else (on_document, *of_groups)
        # Most resources have no grants of groups, so that the groups of the user are not needed.
        for grants in of_groups:
            if grants is CROWDED or not grants.keys().isdisjoint(self.groups(organization_id, user_id)):
                return True
        return False

    def grants(self, organization_id: str, level: Level, resource_id: str, user_id: str) -> Sequence[Grant]:
        """As ``AccessView.grants``, for a document or an ancestry that was looked up before."""
        # The group, None for the user's own grant, with the role and end.
        values: list[tuple[str | None, str]] = []
        resource = level[0] + resource_id
        value = self._grant(self._own(organization_id, user_id), OWN_GRANTS, organization_id, user_id, resource)
        if value is not None:
            values.append((None, value))
        of_groups = self._folders.group_grants if level == "folder" else self._document_grants
        if group_grants := of_groups.get((organization_id, resource_id)):
            for group_id in self.groups(organization_id, user_id):
                value = self._grant(group_grants, level[0], organization_id, resource_id, group_id)
                if value is not None:
                    values.append((group_id, value))
        grants = []
        for group, value in values:
            role, expires_at = _parse_role_and_end(value)
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
        requested = self._context_keys(organization_id, user_id)
        grants = []
        for group_id in ("", *self.groups(organization_id, user_id)):
            holder = entry_key(CONTEXT_GRANT, organization_id, "" if group_id else user_id, group_id)
            for part, end in self._context_entries(holder, requested.keys()):
                field, value, document_id = requested[part]
                grants.append(
                    ContextGrant(
                        organization_id=organization_id,
                        user_id=None if group_id else user_id,
                        organization_user_group_id=group_id or None,
                        field=field,
                        value=value,
                        document_id=document_id or None,
                        expires_at=_parse_end(end.decode()),
                    )
                )
        return grants

    def _context_keys(self, organization_id: str, user_id: str) -> dict[bytes, tuple[str, str, str]]:
        """The ends of the keys of context grants that may cover a question about the user → field, value, document."""
        keys: dict[bytes, tuple[str, str, str]] = {}
        about_user = [
            question
            for question in self._questions
            if question.user_id == user_id and question.organization_id == organization_id
        ]
        for question in about_user:
            for field, value in (question.context or {}).items():
                for ids in product((field,), (value, ANY_VALUE), ("", question.resource_id)):
                    # No stored text contains half a surrogate pair.
                    with suppress(UnicodeEncodeError):
                        keys[key_part(*ids)] = ids
        return keys

    def _context_entries(self, holder: bytes, parts: AbstractSet[bytes]) -> Iterable[tuple[bytes, bytes]]:
        """The entries of a holder whose keys end with these parts. Many lookups take longer than reading all of its
        entries."""
        if len(parts) > _MAX_LOOKED_UP:
            start = len(holder)
            entries = {key[start:]: value for key, value in self._entries.items_below(holder + SEPARATOR.encode())}
            return [(part, entries[part]) for part in sorted(parts & entries.keys())]
        looked_up = ((part, self._get(holder + part)) for part in sorted(parts))
        return [(part, value) for part, value in looked_up if value is not None]

    def group_path(self, organization_id: str, user_id: str, group_id: str) -> Sequence[GroupMember]:
        return group_path(self.groups(organization_id, user_id), organization_id, user_id, group_id)

    def groups(self, organization_id: str, user_id: str) -> dict[str, str]:
        """The groups of a user, transitively, nearest first: each with the group through which the user is a member.
        Empty: the user is a direct member. A group that does not exist has no members."""
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
            self._own_grants[pair] = {} if parts is None else listed_grants(parts)
        return self._own_grants[pair]

    def _grant(self, grants: Grants, kind: str, organization_id: str, item_id: str, other_id: str) -> str | None:
        """The role and end of one grant, from a list or, if there are too many, from its own entry."""
        if grants is not CROWDED:
            return grants.get(other_id)
        if (parts := self._read(SINGLE_KIND[kind], organization_id, item_id, other_id)) is None:
            return None
        (role_and_end,) = parts
        return role_and_end

    def _read(self, kind: str, first: str, second: str, *others: str) -> list[str] | None:
        """The value of an entry. None if there is none."""
        try:
            key = entry_key(kind, first, second, *others) if others else pair_key(kind, first, second)
        except UnicodeEncodeError:
            return None
        value = self._get(key)
        if value is None:
            return None
        parts = value.decode().split(SEPARATOR)
        return parts if b"\x02" not in value else [unescaped(part) for part in parts]


def _parse_role_and_end(value: str) -> tuple[AccessRole, datetime | None]:
    return _ROLES[value[0]], _parse_end(value[1:])


def _parse_end(value: str) -> datetime | None:
    return from_epoch_ms(int(value)) if value else None
