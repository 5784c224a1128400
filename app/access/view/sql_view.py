"""The view of the database: the records of one revision that a batch of questions needs.

It implements the ``AccessView`` that ``app.access.decision.decide`` reads. ``app.access.view.loader`` fills it.
"""

from collections.abc import Mapping, Sequence

from app.access.decision.ancestry import Ancestry, Obstacle
from app.access.decision.decide import PermissionRequest
from app.access.records import (
    ContextGrant,
    Document,
    Grant,
    GroupMember,
    Level,
    Membership,
    Organization,
    User,
)
from app.access.view.cache import Pair, Structure
from app.access.view.rows import Row, group_grant, own_grant

GrantLevel = tuple[str, str, str]
"""An organization, and a folder or a document in it; the other one is empty."""

_NO_ANCESTRY = Ancestry((), Obstacle.UNKNOWN)


class OrganizationUser:
    """A user in an organization."""

    __slots__ = ("direct_groups", "groups", "is_crowded", "membership", "own_documents", "own_folders")

    def __init__(self) -> None:
        self.membership: Membership | None = None
        self.own_documents: dict[str, Row] = {}
        self.own_folders: dict[str, Row] = {}
        """Their own grants by folder. They stay rows, because few of them are ever used."""
        self.is_crowded = False
        """Whether their own grants are too many to be read at once."""
        self.direct_groups: tuple[str, ...] = ()
        self.groups: frozenset[str] = frozenset()
        """All groups that the user is a member of, transitively."""


class SqlAccessView:
    """An ``AccessView`` of the records that were loaded for a batch, and of the cached structure.

    The loader uses the methods that are not part of the port.
    """

    __slots__ = ("context_rows", "document_grants", "documents", "exact_grants", "people", "structure", "users")

    def __init__(self, structure: Structure, people: dict[Pair, OrganizationUser]) -> None:
        self.structure = structure
        self.people = people
        self.users: dict[str, User] = {}
        self.documents: dict[Pair, Document] = {}
        self.document_grants: dict[Pair, list[Row] | None] = {}
        """The grants of groups on documents that have any, as rows; None: too many to be read at once."""
        self.exact_grants: dict[GrantLevel, list[Grant]] = {}
        self.context_rows: dict[str, list[ContextGrant]] = {}

    def is_crowded(self) -> bool:
        """Whether any user or level has too many grants to be read at once."""
        return (
            None in self.document_grants.values()
            or self.structure.is_crowded
            or any(person.is_crowded for person in self.people.values())
        )

    def is_crowded_with_groups(self, organization_id: str, part: str, id_: str) -> bool:
        """Whether the folder (``f``) or document (``d``) has too many grants of groups to be read at once."""
        grants: Mapping[Pair, object] = self.structure.folder_grants if part == "f" else self.document_grants
        return grants.get((organization_id, id_), ()) is None

    def levels(self, question: PermissionRequest) -> tuple[str | None, tuple[str, ...]]:
        """The levels whose grants may apply to the question: the document, if it exists, and folders."""
        organization_id, document_id = question.organization_id, question.resource_id
        if question.type == "organization":
            return None, ()
        if question.type == "folder":
            return None, self._folder_ids(organization_id, document_id)
        document = self.documents.get((organization_id, document_id))
        above = None if document is None else document.folder_id
        if document is None or (above and self.ancestry_of(organization_id, above).obstacle is not None):
            above = question.parent_folder_id
        return (
            None if document is None else document_id,
            () if above is None else self._folder_ids(organization_id, above),
        )

    def _folder_ids(self, organization_id: str, folder_id: str) -> tuple[str, ...]:
        cached = self.structure.ancestries.get((organization_id, folder_id))
        return () if cached is None else cached.folder_ids

    @property
    def revision(self) -> int:
        return self.structure.stamp[0]

    def organization(self, organization_id: str) -> Organization | None:
        return self.structure.organizations.get(organization_id)

    def user(self, user_id: str) -> User | None:
        return self.users.get(user_id)

    def membership(self, organization_id: str, user_id: str) -> Membership | None:
        person = self.people.get((organization_id, user_id))
        return None if person is None else person.membership

    def document(self, organization_id: str, document_id: str) -> Document | None:
        return self.documents.get((organization_id, document_id))

    def ancestry_of(self, organization_id: str, folder_id: str) -> Ancestry:
        cached = self.structure.ancestries.get((organization_id, folder_id))
        return _NO_ANCESTRY if cached is None else cached.ancestry

    def any_grants(self, organization_id: str, user_id: str, document_id: str | None, folder_id: str | None) -> bool:
        person = self.people.get((organization_id, user_id))
        if person is None:
            return False
        if person.is_crowded:
            return True
        groups = person.groups
        if document_id is not None:
            if document_id in person.own_documents:
                return True
            if groups:
                rows = self.document_grants.get((organization_id, document_id), ())
                if rows is None or any(row[0] in groups for row in rows):
                    return True
        cached = None if folder_id is None else self.structure.ancestries.get((organization_id, folder_id))
        if cached is None:
            return False
        if person.own_folders and not person.own_folders.keys().isdisjoint(cached.folder_ids):
            return True
        return bool(groups) and (cached.groups is None or not groups.isdisjoint(cached.groups))

    def grants(self, organization_id: str, level: Level, resource_id: str, user_id: str) -> Sequence[Grant]:
        person = self.people.get((organization_id, user_id))
        if person is None:
            return ()
        groups, of_groups = person.groups, []
        if level == "folder":
            own = person.own_folders.get(resource_id)
            exact = (organization_id, resource_id, "")
            grants = self.structure.folder_grants.get((organization_id, resource_id)) or ()
            of_groups = [grant for grant in grants if grant.organization_user_group_id in groups]
        else:
            own = person.own_documents.get(resource_id)
            exact = (organization_id, "", resource_id)
            rows = self.document_grants.get((organization_id, resource_id)) or ()
            of_groups = [group_grant(organization_id, None, resource_id, row) for row in rows if row[0] in groups]
        found = [] if own is None else [own_grant(organization_id, user_id, own)]
        found.extend(of_groups)
        found.extend(
            grant
            for grant in self.exact_grants.get(exact, ())
            if grant.user_id == user_id or grant.organization_user_group_id in groups
        )
        return found

    def context_grants(self, organization_id: str, user_id: str) -> Sequence[ContextGrant]:
        person = self.people.get((organization_id, user_id))
        if person is None:
            return ()
        return [
            grant
            for grant in self.context_rows.get(organization_id, ())
            if grant.user_id == user_id or grant.organization_user_group_id in person.groups
        ]

    def group_path(self, organization_id: str, user_id: str, group_id: str) -> Sequence[GroupMember]:
        person = self.people.get((organization_id, user_id))
        came_from = self.structure.reached(organization_id, () if person is None else person.direct_groups)
        if group_id not in came_from:
            return ()
        path: list[GroupMember] = []
        reached = group_id
        while (member := came_from[reached]) is not None:
            path.append(
                GroupMember(organization_id=organization_id, organization_user_group_id=reached, member_group_id=member)
            )
            reached = member
        path.append(GroupMember(organization_id=organization_id, organization_user_group_id=reached, user_id=user_id))
        return path[::-1]
