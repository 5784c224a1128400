"""Lists what a user may open in an organization: its folders and documents, and the organization itself.

The order is that of the types (``RESOURCE_TYPES``), then of the ids by their bytes. SQL selects the resources that the
user may be able to open: those with a grant to the user or one of their groups, everything below such a folder, and
resources that are open by their access type. Each of them is then decided. So the time of a page grows with the list,
not with the organization.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sqlalchemy import Connection

from app.access.browse.lookup import name_of
from app.access.decision.decide import Decision, DecisionPolicy, PlainQuestion, Rule, decide_uncapped, is_active
from app.access.listing.batch_view import BatchView
from app.access.listing.page import (
    CONDITION_OF_ROLE,
    CONDITION_OF_TIME,
    AccessEntry,
    AccessPage,
    AllowedCandidate,
    Candidates,
    denial,
    entry,
    find_allowed,
    find_next,
)
from app.access.records import AccessRole, AccessType, Record, ResourceKind
from app.foundation.clock import epoch_ms
from app.foundation.database.statements import json_list, prefer_indexes, run

RESOURCE_TYPES: tuple[ResourceKind, ...] = ("organization", "folder", "document")
"""The types of resource, in the order of the list."""

# Folders of the walks are read once, also in cycles, because UNION removes duplicates.
_REACHED = """
WITH RECURSIVE granted (folder_id, document_id) AS (
  SELECT g.folder_id, g.document_id
  FROM model_grant g @by(ix_model_grant_user_id_organization_id_folder_id_document_id_access_role_expires_at)
  WHERE g.user_id = :user_id AND g.organization_id = :organization_id AND {active} AND {of_role}
  UNION
  SELECT g.folder_id, g.document_id
  FROM (@list(groups)) AS requested CROSS JOIN model_grant g @by(ix_model_grant_to_group)
  WHERE g.organization_id = :organization_id AND g.organization_user_group_id = requested.value AND g.user_id = ''
    AND {active} AND {of_role}
),
granted_folder (folder_id) AS (
  SELECT folder_id FROM granted WHERE folder_id <> ''
  UNION
  SELECT f.folder_id FROM granted_folder g CROSS JOIN model_folder f @by(ix_model_folder_within)
  WHERE f.organization_id = :organization_id AND f.parent_folder_id = g.folder_id
),
open_folder (folder_id) AS (
  SELECT f.folder_id FROM model_folder f @by(ix_model_folder_open)
  WHERE f.organization_id = :organization_id AND f.access_type IN ({opened})
    AND f.access_type <> '' AND f.access_type <> 'restricted'
  UNION
  SELECT f.folder_id FROM model_folder f @by(ix_model_folder_within)
  WHERE f.organization_id = :organization_id AND f.parent_folder_id = '' AND f.access_type = '' AND {is_open}
  UNION
  SELECT f.folder_id FROM open_folder o CROSS JOIN model_folder f @by(ix_model_folder_within)
  WHERE f.organization_id = :organization_id AND f.parent_folder_id = o.folder_id AND f.access_type = ''
)
"""
_FOLDERS = f"""{_REACHED}
SELECT folder_id FROM (SELECT folder_id FROM granted_folder UNION SELECT folder_id FROM open_folder) AS reached
WHERE folder_id @bytes > :after ORDER BY folder_id @bytes LIMIT :limit
"""  # noqa: S608 - constants
# Each set is cut to the page before the sets are united: most lists consist of one large set.
_DOCUMENT_SETS = (
    "SELECT document_id FROM granted WHERE document_id @bytes > :after",
    """SELECT d.document_id FROM granted_folder g CROSS JOIN model_document d @by(ix_model_document_within)
    WHERE d.organization_id = :organization_id AND d.folder_id = g.folder_id AND d.document_id @bytes > :after""",
    """SELECT d.document_id FROM open_folder o CROSS JOIN model_document d @by(ix_model_document_within)
    WHERE d.organization_id = :organization_id AND d.folder_id = o.folder_id AND d.document_id @bytes > :after
      AND d.access_type = ''""",
    """SELECT d.document_id FROM model_document d @by(ix_model_document_within)
    WHERE d.organization_id = :organization_id AND d.folder_id = '' AND d.document_id @bytes > :after
      AND d.access_type = '' AND {is_open}""",
    """SELECT d.document_id FROM model_document d @by(ix_model_document_open)
    WHERE d.organization_id = :organization_id AND d.document_id @bytes > :after AND d.access_type IN ({opened})
      AND d.access_type <> '' AND d.access_type <> 'restricted'""",
)
_CUT = "SELECT document_id FROM ({set} ORDER BY document_id @bytes LIMIT :limit) AS cut"
_DOCUMENTS = f"""{_REACHED}
SELECT document_id FROM ({" UNION ".join(_CUT.replace("{set}", each) for each in _DOCUMENT_SETS)}) AS reached
ORDER BY document_id @bytes LIMIT :limit
"""  # noqa: S608 - constants
_CANDIDATES: Mapping[ResourceKind, str] = {"folder": _FOLDERS, "document": _DOCUMENTS}
_NEXT = """
SELECT {kind}_id FROM model_{kind} AS next WHERE organization_id = :organization_id AND {kind}_id @bytes > :after
ORDER BY {kind}_id @bytes LIMIT :limit
"""

_MEMBER_TYPES = frozenset({AccessType.PUBLIC, AccessType.ORGANIZATION_PRIVATE})
_OPENED: Mapping[Collection[AccessType], str] = {
    frozenset(): "'-'",
    frozenset({AccessType.PUBLIC}): "'public'",
    _MEMBER_TYPES: "'public', 'organizationPrivate'",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceList:
    """A list of what a user may open."""

    organization_id: str
    user_id: str
    types: Collection[ResourceKind] = RESOURCE_TYPES
    role: AccessRole | None = None
    """Only resources on which the user has exactly this role."""
    at: datetime
    """The moment of all decisions."""

    def page(
        self, connection: Connection, policy: DecisionPolicy, *, after: Sequence[str] = (), limit: int
    ) -> AccessPage:
        """A page of at most ``limit`` resources. ``after``: the type and id of the last one of the previous page."""
        prefer_indexes(connection)
        view = BatchView(connection, self.organization_id, user_id=self.user_id)
        lister = _Lister(view, self, policy)
        question = lister.question("organization", self.organization_id)
        of_organization = decide_uncapped(view, question, self.at, policy)
        if of_organization.rule in _DENIES_ALL:
            return AccessPage(revision=view.revision, denied=denial(question, of_organization))
        first_type, last_id = after or (RESOURCE_TYPES[0], "")
        entries: list[AccessEntry] = []
        for kind in RESOURCE_TYPES[RESOURCE_TYPES.index(first_type) :]:
            if kind in self.types and len(entries) <= limit:
                last = last_id if kind == first_type else ""
                entries += lister.entries(kind, after=last, limit=limit + 1 - len(entries))
        return AccessPage(revision=view.revision, entries=entries[:limit], has_more=len(entries) > limit)


_DENIES_ALL = {Rule.ORGANIZATION_UNKNOWN, Rule.ORGANIZATION_DISABLED, Rule.USER_UNKNOWN, Rule.USER_DISABLED}


class _Lister:
    """Lists what the user may open, by type."""

    def __init__(self, view: BatchView, resource_list: ResourceList, policy: DecisionPolicy) -> None:
        self._view = view
        self._list = resource_list
        self._policy = policy

    def entries(self, kind: ResourceKind, *, after: str, limit: int) -> list[AccessEntry]:
        """The resources of a type after an id, at least ``limit`` if there are as many."""
        allowed: list[AllowedCandidate] = []
        decide_all = partial(self._decide_all, kind)
        if kind != "organization" and self._is_open():
            # Most of an open organization is usually open, so that its next items in order fill the page.
            allowed, last = find_next(
                partial(self._next, kind), decide_all, after=after, limit=limit, role=self._list.role
            )
            if last is None or len(allowed) >= limit:
                return self._make_entries(kind, allowed)
            after, limit = last, limit - len(allowed)
        allowed += find_allowed(self._candidates(kind), decide_all, after=after, limit=limit, role=self._list.role)
        return self._make_entries(kind, allowed)

    def _make_entries(self, kind: ResourceKind, allowed: Sequence[AllowedCandidate]) -> list[AccessEntry]:
        return [entry(kind, item_id, self._find_name(kind, item_id), decision) for item_id, decision in allowed]

    def _next(self, kind: ResourceKind, after: str, limit: int) -> Sequence[str]:
        """The next items of the organization, whether or not they can be opened."""
        page = {"organization_id": self._list.organization_id, "after": after, "limit": limit}
        return run(self._view.connection, _NEXT, page, kind=kind).scalars().all()

    def question(self, kind: ResourceKind, item_id: str) -> PlainQuestion:
        return PlainQuestion(
            user_id=self._list.user_id, type=kind, resource_id=item_id, organization_id=self._list.organization_id
        )

    def _decide_all(self, kind: ResourceKind, ids: Sequence[str]) -> list[Decision]:
        self._view.load(
            [self._list.user_id],
            folder_ids=ids if kind == "folder" else (),
            document_ids=ids if kind == "document" else (),
        )
        return [
            decide_uncapped(self._view, self.question(kind, item_id), self._list.at, self._policy) for item_id in ids
        ]

    def _candidates(self, kind: ResourceKind) -> Candidates:
        organization_id, user_id = self._list.organization_id, self._list.user_id
        if kind == "organization":
            return lambda after, _: [] if after else [organization_id]
        parameters = {
            "organization_id": organization_id,
            "user_id": user_id,
            "groups": json_list(self._view.groups(organization_id, user_id)),
            "at": epoch_ms(self._list.at),
        }
        parts = {
            "opened": _OPENED[self._open_types()],
            "is_open": "TRUE" if self._is_open() else "FALSE",
            "of_role": CONDITION_OF_ROLE[self._list.role],
            "active": CONDITION_OF_TIME,
        }

        def candidates(after: str, size: int) -> Sequence[str]:
            page = {**parameters, "after": after, "limit": size}
            return run(self._view.connection, _CANDIDATES[kind], page, **parts).scalars().all()

        return candidates

    def _is_open(self) -> bool:
        """Whether the organization's access type lets the user in, with the role that is listed."""
        organization = self._view.organization(self._list.organization_id)
        return organization is not None and organization.access_type in self._open_types()

    def _open_types(self) -> frozenset[AccessType]:
        """The access types that let the user in without a grant, with the role that is listed."""
        membership = self._view.membership(self._list.organization_id, self._list.user_id)
        if membership is not None and is_active(membership, self._list.at):
            types, role = _MEMBER_TYPES, membership.access_role
        else:
            types, role = frozenset({AccessType.PUBLIC}), self._policy.public_role
        return types if self._list.role in {None, role} else frozenset()

    def _find_name(self, kind: ResourceKind, item_id: str) -> str:
        organization_id = self._list.organization_id
        record: Record | None = self._view.organization(organization_id)
        if kind == "folder":
            record = self._view.folder(organization_id, item_id)
        elif kind == "document":
            record = self._view.document(organization_id, item_id)
        return "" if record is None else name_of(record)
