"""The view of one side, through which ``decide`` reads the loaded users and documents."""

from collections.abc import Sequence

from app.access.decision.ancestry import Ancestry
from app.access.impact.changed import Place
from app.access.impact.side import Side
from app.access.records import (
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


class SideView:
    """An ``AccessView`` of the organization of the side. It has no context grants."""

    revision = 1

    def __init__(self, side: Side) -> None:
        self._side = side

    def organization(self, _organization_id: str) -> Organization | None:
        return self._side.organization

    def user(self, user_id: str) -> User | None:
        disabled = self._side.users.get(user_id)
        return None if disabled is None else User(user_id=user_id, name="", email="", disabled=disabled)

    def membership(self, organization_id: str, user_id: str) -> Membership | None:
        role = self._side.roles.get(user_id)
        if role is None:
            return None
        return Membership(organization_id=organization_id, user_id=user_id, access_role=role)

    def document(self, organization_id: str, document_id: str) -> Document | None:
        found = self._side.documents.get(document_id)
        if found is None:
            return None
        folder_id, access_type = found
        return Document(
            organization_id=organization_id,
            document_id=document_id,
            document_name="",
            folder_id=folder_id or None,
            access_type=AccessType(access_type) if access_type else None,
        )

    def ancestry_of(self, _organization_id: str, folder_id: str) -> Ancestry:
        return self._side.ancestry_of(folder_id)

    def any_grants(self, *_: str | None) -> bool:
        return True

    def grants(self, _organization_id: str, level: Level, resource_id: str, user_id: str) -> Sequence[Grant]:
        place: Place = (level, resource_id)
        own = self._side.own_grants.get(user_id, {}).get(place)
        groups = self._side.groups_of(user_id)
        of_groups = [
            grant for grant in self._side.group_grants.get(place, ()) if grant.organization_user_group_id in groups
        ]
        return of_groups if own is None else [own, *of_groups]

    def context_grants(self, *_: str) -> Sequence[ContextGrant]:
        return ()

    def group_path(self, *_: str) -> Sequence[GroupMember]:
        return ()
