"""The view through which ``decide`` reads one organization before or after a change, for one user."""

from collections.abc import Sequence

from app.access.decision.ancestry import Ancestry
from app.access.impact.changed import Place
from app.access.impact.side import Side, UserOnSide
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
    """An ``AccessView`` of the organization of the side for one user. It has no context grants."""

    revision = 1
    user_id = ""
    """The id of the user in the view: the users of a class share it."""

    def __init__(self, side: Side, user: UserOnSide) -> None:
        self._side = side
        self._user = user
        self.organization_id = side.organization_id
        self._own_grants = {
            grant.place: side.grant(grant.place, grant.access_role, user_id=self.user_id) for grant in user.own_grants
        }

    def organization(self, _organization_id: str) -> Organization | None:
        return self._side.organization

    def user(self, user_id: str) -> User | None:
        disabled = self._user.disabled
        return None if disabled is None else User(user_id=user_id, name="", email="", disabled=disabled)

    def membership(self, organization_id: str, user_id: str) -> Membership | None:
        role = self._user.role
        if role is None:
            return None
        return Membership(organization_id=organization_id, user_id=user_id, access_role=role)

    def document(self, organization_id: str, document_id: str) -> Document | None:
        document = self._side.documents.get(document_id)
        if document is None:
            return None
        return Document(
            organization_id=organization_id,
            document_id=document_id,
            document_name="",
            folder_id=document.folder_id or None,
            access_type=AccessType(document.access_type) if document.access_type else None,
        )

    def ancestry_of(self, _organization_id: str, folder_id: str) -> Ancestry:
        return self._side.ancestry_of(folder_id)

    def any_grants(self, *_: str | None) -> bool:
        return True

    def grants(self, _organization_id: str, level: Level, resource_id: str, _user_id: str) -> Sequence[Grant]:
        place: Place = (level, resource_id)
        own = self._own_grants.get(place)
        of_groups = [
            grant
            for grant in self._side.group_grants.get(place, ())
            if grant.organization_user_group_id in self._user.groups
        ]
        return of_groups if own is None else [own, *of_groups]

    def context_grants(self, *_: str) -> Sequence[ContextGrant]:
        return ()

    def group_path(self, *_: str) -> Sequence[GroupMember]:
        return ()
