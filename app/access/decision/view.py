"""The port through which ``decide`` reads one revision of the access model."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from app.access.decision.ancestry import Ancestry
from app.access.records import ContextGrant, Document, Grant, GroupMember, Level, Membership, Organization, User


class AccessView(Protocol):
    """The part of one revision that the questions of a batch need.

    All methods read the same revision. They return expired records as well, because the decision checks expiry. They
    return None or an empty sequence for unknown ids.
    """

    @property
    def revision(self) -> int:
        """The revision of the access model. 0 before the directory was first read."""
        ...

    def organization(self, organization_id: str) -> Organization | None: ...

    def user(self, user_id: str) -> User | None: ...

    def membership(self, organization_id: str, user_id: str) -> Membership | None: ...

    def document(self, organization_id: str, document_id: str) -> Document | None: ...

    def ancestry_of(self, organization_id: str, folder_id: str) -> Ancestry:
        """The folder and its parents, as ``app.access.decision.ancestry.ancestry_of`` returns them."""
        ...

    def any_grants(self, organization_id: str, user_id: str, document_id: str | None, folder_id: str | None) -> bool:
        """Whether there may be grants on the document, the folder or a folder above it.

        False is certain; True may be wrong. Most questions involve no grant, so this saves a lookup at each level.
        """
        ...

    def grants(self, organization_id: str, level: Level, resource_id: str, user_id: str) -> Sequence[Grant]:
        """The grants on exactly this folder or document: the user's own and those of their groups.

        Group membership is transitive.
        """
        ...

    def context_grants(self, organization_id: str, user_id: str) -> Sequence[ContextGrant]:
        """The context grants of the user and of their groups (transitively) in this organization."""
        ...

    def group_path(self, organization_id: str, user_id: str, group_id: str) -> Sequence[GroupMember]:
        """The shortest chain of memberships from the user to the group, the user's own first. Used in explanations."""
        ...


def group_path(groups: Mapping[str, str], organization_id: str, user_id: str, group_id: str) -> Sequence[GroupMember]:
    """``AccessView.group_path`` from the user's groups: each with the group through which the user is a member, empty
    if the user is a direct member."""
    path: list[GroupMember] = []
    while group_id in groups:
        member_id = groups[group_id]
        path.append(
            GroupMember(
                organization_id=organization_id,
                organization_user_group_id=group_id,
                user_id=None if member_id else user_id,
                member_group_id=member_id or None,
            )
        )
        group_id = member_id
    return path[::-1]
