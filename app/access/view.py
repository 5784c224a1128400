"""What the decision reads: the port through which ``decide`` sees one revision of the access model."""

from collections.abc import Sequence
from typing import Protocol

from app.access.ancestry import Ancestry
from app.access.records import ContextGrant, Document, Grant, GroupMember, Level, Membership, Organization, User


class AccessView(Protocol):
    """One revision of the access model, as far as the questions of one batch need it.

    An implementer answers every call from the same revision, returns records whether or not they have expired (the
    decision judges that, at the question's own moment), and answers None or an empty sequence for what is unknown.
    """

    @property
    def revision(self) -> int:
        """The revision of the access model that all answers come from; 0 before the directory was ever read."""
        ...

    def organization(self, organization_id: str) -> Organization | None: ...

    def user(self, user_id: str) -> User | None: ...

    def membership(self, organization_id: str, user_id: str) -> Membership | None: ...

    def document(self, organization_id: str, document_id: str) -> Document | None: ...

    def ancestry_of(self, organization_id: str, folder_id: str) -> Ancestry:
        """The folder and those above it, as ``app.access.ancestry.ancestry_of`` walks them."""
        ...

    def any_grants(self, organization_id: str, user_id: str, document_id: str | None, folder_id: str | None) -> bool:
        """Whether ``grants`` may have something to say about the document, the folder, or a folder above it.

        Most questions meet no grant at all, so this spares them a look at each level. False is certain; True where it
        is not worth finding out.
        """
        ...

    def grants(self, organization_id: str, level: Level, resource_id: str, user_id: str) -> Sequence[Grant]:
        """The grants that stand on exactly this folder or document: the user's own and those of their groups.

        Groups count transitively: a member of a group inside a group is a member of both.
        """
        ...

    def context_grants(self, organization_id: str, user_id: str) -> Sequence[ContextGrant]:
        """The context grants of the user and of their groups (transitively) in this organization."""
        ...

    def group_path(self, organization_id: str, user_id: str, group_id: str) -> Sequence[GroupMember]:
        """The shortest chain of memberships that makes the user a member of the group, their own first; for reasons."""
        ...
