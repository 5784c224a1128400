"""Lists the users who may open an organization, a folder or a document.

The order is that of the ids by their bytes. Candidates are the users with an active grant on the resource or a folder
above it, the members of groups with such a grant, and everybody whom the access type lets in, without disabled users.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from app.access.browse.grants import ResourceIds
from app.access.browse.lookup import find_all
from app.access.browse.sizes import ALL_ORGANIZATIONS, load_counts
from app.access.decision.ancestry import Ancestry
from app.access.decision.decide import (
    Decision,
    DecisionPolicy,
    PlainQuestion,
    access_type_in_force,
    decide_uncapped,
    denied_to_all,
)
from app.access.listing.batch_view import BatchView
from app.access.listing.page import (
    CONDITION_OF_ROLE,
    CONDITION_OF_TIME,
    AccessPage,
    Openness,
    denial,
    entry,
    find_allowed,
)
from app.access.records import AccessRole, AccessType, Membership, ResourceKind, User
from app.foundation.clock import epoch_ms
from app.foundation.database.statements import json_lists, prefer_indexes, run

_CANDIDATES = """
WITH RECURSIVE level (folder_id, document_id) AS (
  SELECT @part(requested.value, 0), @part(requested.value, 1) FROM (@list(levels)) AS requested
),
granted_group (group_id) AS (
  SELECT g.organization_user_group_id FROM level l CROSS JOIN model_grant g @by(ix_model_grant_of_groups)
  WHERE g.organization_id = :organization_id AND g.folder_id = l.folder_id AND g.document_id = l.document_id
    AND g.user_id = '' AND {active} AND {of_role}
  UNION
  SELECT m.member_group_id FROM granted_group i CROSS JOIN model_group_member m
  WHERE m.organization_id = :organization_id AND m.organization_user_group_id = i.group_id AND m.user_id = ''
)
SELECT user_id FROM (
  SELECT own.value AS user_id FROM level l CROSS JOIN @rows(
    SELECT g.user_id AS value FROM model_grant g CROSS JOIN model_user u
    WHERE g.organization_id = :organization_id AND g.folder_id = l.folder_id AND g.document_id = l.document_id
      AND g.user_id @bytes > :after AND {active} AND {of_role} AND u.user_id = g.user_id AND NOT u.disabled
    ORDER BY g.user_id @bytes LIMIT :limit
  ) AS own
  UNION
  SELECT member.value FROM granted_group i CROSS JOIN @rows(
    SELECT m.user_id AS value FROM model_group_member m CROSS JOIN model_user u
    WHERE m.organization_id = :organization_id AND m.organization_user_group_id = i.group_id
      AND m.user_id @bytes > :after AND u.user_id = m.user_id AND NOT u.disabled
    ORDER BY m.user_id @bytes LIMIT :limit
  ) AS member
  UNION
  SELECT user_id FROM ({members}) AS of_members
  UNION
  SELECT user_id FROM ({everyone}) AS of_everyone
) AS candidates ORDER BY user_id @bytes LIMIT :limit
"""
# A page needs only the first rows of each set, so each set has its own LIMIT.
_MEMBERS = """
SELECT g.user_id FROM model_membership g CROSS JOIN model_user u
WHERE g.organization_id = :organization_id AND g.user_id @bytes > :after AND {active} AND {of_role}
  AND u.user_id = g.user_id AND NOT u.disabled
ORDER BY g.user_id @bytes LIMIT :limit
"""
_EVERYONE = """
SELECT user_id FROM model_user WHERE user_id @bytes > :after AND NOT disabled ORDER BY user_id @bytes LIMIT :limit
"""
_NOBODY = "SELECT CAST('' AS VARCHAR) AS user_id WHERE FALSE"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserList:
    """A list of the users who may open a resource."""

    organization_id: str
    type: ResourceKind
    resource_id: str
    role: AccessRole | None = None
    """Only users who have exactly this role."""
    at: datetime
    """The moment of all decisions."""

    def page(
        self, connection: Connection, policy: DecisionPolicy, *, after: Sequence[str] = (), limit: int
    ) -> AccessPage:
        """A page of at most ``limit`` users. ``after``: the kind and id of the last one of the previous page."""
        _, last_id = after or ("", "")
        prefer_indexes(connection)
        view = BatchView(connection, self.organization_id)
        question = self._question("")
        if (denied := denied_to_all(view, question)) is not None:
            return AccessPage(revision=view.revision, denied=denial(question, denied))
        openness = self._find_openness(view)
        folder_ids = [folder.folder_id for folder in self._find_ancestry(view).folders]
        document_ids = [self.resource_id] if self.type == "document" else []
        levels = [ResourceIds(document_id=document_id) for document_id in document_ids]
        levels += map(ResourceIds, folder_ids)
        parameters = {
            "organization_id": self.organization_id,
            "levels": json_lists(levels),
            "at": epoch_ms(self.at),
        }
        sets = _candidate_sets(openness, self.role, policy)

        def candidates(last: str, size: int) -> Sequence[str]:
            return run(connection, _CANDIDATES, {**parameters, "after": last, "limit": size}, **sets).scalars().all()

        def decide_all(ids: Sequence[str]) -> list[Decision]:
            view.load(ids, folder_ids=folder_ids, document_ids=document_ids)
            return [decide_uncapped(view, self._question(user_id), self.at, policy) for user_id in ids]

        allowed = find_allowed(candidates, decide_all, after=last_id, limit=limit + 1, role=self.role)
        on_page = allowed[:limit]
        users = find_all(connection, User, [("", user_id) for user_id, _ in on_page])
        entries = [entry(User.kind, user_id, users["", user_id].name, decision) for user_id, decision in on_page]
        return AccessPage(revision=view.revision, entries=entries, has_more=len(allowed) > limit, openness=openness)

    def _question(self, user_id: str) -> PlainQuestion:
        return PlainQuestion(
            user_id=user_id, type=self.type, resource_id=self.resource_id, organization_id=self.organization_id
        )

    def _find_ancestry(self, view: BatchView) -> Ancestry:
        folder_id: str | None = self.resource_id if self.type == "folder" else None
        if self.type == "document" and (document := view.document(self.organization_id, self.resource_id)):
            folder_id = document.folder_id
        return Ancestry() if folder_id is None else view.ancestry_of(self.organization_id, folder_id)

    def _find_openness(self, view: BatchView) -> Openness:
        organization = view.organization(self.organization_id)
        assert organization is not None  # noqa: S101 - otherwise everybody is denied
        access_type = None
        if self.type != "organization":
            document = view.document(self.organization_id, self.resource_id) if self.type == "document" else None
            access_type, _ = access_type_in_force(document, self._find_ancestry(view), organization)
        if access_type is AccessType.RESTRICTED:
            return Openness(access_type=access_type, records=0)
        is_public = access_type is AccessType.PUBLIC
        within, kind = (ALL_ORGANIZATIONS, User.kind) if is_public else (self.organization_id, Membership.kind)
        records = load_counts(view.connection, [within]).get(within, {}).get(kind, 0)
        return Openness(access_type=access_type, records=records)


def _candidate_sets(openness: Openness, role: AccessRole | None, policy: DecisionPolicy) -> dict[str, str]:
    is_public = openness.access_type is AccessType.PUBLIC
    everyone = is_public and role in {None, policy.public_role}
    # Public, but another role is listed: only members can have it.
    members = not everyone and openness.access_type is not AccessType.RESTRICTED
    return {
        "members": _MEMBERS if members else _NOBODY,
        "everyone": _EVERYONE if everyone else _NOBODY,
        "active": CONDITION_OF_TIME,
        "of_role": CONDITION_OF_ROLE[role],
    }
