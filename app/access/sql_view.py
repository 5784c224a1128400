"""Implements ``AccessView`` in SQL. It reads each record when a decision needs it.

Commands, pages and explanations use it. Permission calls use it while the index is not available
(``app.access.index``).
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from sqlalchemy import Connection, Engine

from app.access.browse.lookup import find
from app.access.decision.ancestry import Ancestry, ancestry_of
from app.access.decision.decide import QuestionLike
from app.access.decision.view import group_path
from app.access.record_tables import RecordT, record_of
from app.access.records import (
    ContextGrant,
    Document,
    Folder,
    Grant,
    GroupMember,
    Key,
    Level,
    Membership,
    Organization,
    Record,
    User,
)
from app.access.revisions import current_revision
from app.foundation.database.engine import reading
from app.foundation.database.statements import json_list, run
from app.foundation.ids import may_be_stored

# A group that does not exist has no members. UNION ends the recursion in cycles. SQLite joins in the order of the text.
_GROUPS = """
WITH RECURSIVE edge (user_id, group_id, member_id) AS (
  SELECT {user}, m.organization_user_group_id, CAST('' AS VARCHAR)
  FROM {users} model_group_member m CROSS JOIN model_group g
  WHERE m.organization_id = :organization_id AND m.user_id = {user}
    AND g.organization_id = m.organization_id AND g.organization_user_group_id = m.organization_user_group_id
  UNION
  SELECT e.user_id, m.organization_user_group_id, m.member_group_id
  FROM edge e CROSS JOIN model_group_member m CROSS JOIN model_group g
  WHERE m.organization_id = :organization_id AND m.member_group_id = e.group_id
    AND g.organization_id = m.organization_id AND g.organization_user_group_id = m.organization_user_group_id
)
SELECT user_id, group_id, member_id FROM edge ORDER BY user_id, group_id
"""
# Not a list of one: PostgreSQL assumes that a list has 100 texts, and would read all members.
_ONE_USER = {"user": "CAST(:user_id AS VARCHAR)", "users": ""}
_LISTED_USERS = {"user": "u.value", "users": "(@list(users)) AS u CROSS JOIN"}

_GROUP_GRANTS = """
SELECT t.* FROM (@list(groups)) AS g CROSS JOIN model_grant t
WHERE t.organization_id = :organization_id AND t.folder_id = :folder_id AND t.document_id = :document_id
  AND t.user_id = '' AND t.organization_user_group_id = g.value
"""

_CONTEXT_GRANTS = """
SELECT t.* FROM model_context_grant t WHERE t.organization_id = :organization_id AND t.user_id = :user_id
UNION ALL
SELECT t.* FROM (@list(groups)) AS g CROSS JOIN model_context_grant t
WHERE t.organization_id = :organization_id AND t.user_id = '' AND t.organization_user_group_id = g.value
"""


@contextmanager
def opened_sql_view(
    engine: Engine, _questions: Sequence[QuestionLike] = (), _min_revision: int = 0
) -> Iterator["SqlView"]:
    """The view of the current revision, in a transaction of its own."""
    with reading(engine) as connection:
        yield SqlView(connection)


class SqlView:
    """An ``AccessView`` of the revision that the connection's transaction sees. Records have their names."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._records: dict[Key, Record | None] = {}
        self._groups: dict[tuple[str, str], dict[str, str]] = {}
        self.revision = current_revision(connection)

    def organization(self, organization_id: str) -> Organization | None:
        return self._find(Organization, organization_id)

    def user(self, user_id: str) -> User | None:
        return self._find(User, user_id)

    def membership(self, organization_id: str, user_id: str) -> Membership | None:
        return self._find(Membership, organization_id, user_id)

    def document(self, organization_id: str, document_id: str) -> Document | None:
        return self._find(Document, organization_id, document_id)

    def folder(self, organization_id: str, folder_id: str) -> Folder | None:
        return self._find(Folder, organization_id, folder_id)

    def ancestry_of(self, organization_id: str, folder_id: str) -> Ancestry:
        return ancestry_of(partial(self.folder, organization_id), folder_id)

    def any_grants(self, *_: str | None) -> bool:
        return True

    def grants(self, organization_id: str, level: Level, resource_id: str, user_id: str) -> Sequence[Grant]:
        folder_id, document_id = (resource_id, "") if level == "folder" else ("", resource_id)
        own = self._find(Grant, organization_id, folder_id, document_id, user_id, "")
        of_groups: list[Grant] = []
        if groups := self.groups(organization_id, user_id):
            resource = {"organization_id": organization_id, "folder_id": folder_id, "document_id": document_id}
            of_groups = self._select(Grant, _GROUP_GRANTS, resource | {"groups": json_list(groups)})
        return of_groups if own is None else [own, *of_groups]

    def context_grants(self, organization_id: str, user_id: str) -> Sequence[ContextGrant]:
        groups = json_list(self.groups(organization_id, user_id))
        user = {"organization_id": organization_id, "user_id": user_id}
        return self._select(ContextGrant, _CONTEXT_GRANTS, user | {"groups": groups})

    def group_path(self, organization_id: str, user_id: str, group_id: str) -> Sequence[GroupMember]:
        return group_path(self.groups(organization_id, user_id), organization_id, user_id, group_id)

    def groups(self, organization_id: str, user_id: str) -> Mapping[str, str]:
        """The groups of a user, transitively, nearest first: each with the group through which the user is a member;
        empty: directly."""
        pair = (organization_id, user_id)
        if pair not in self._groups:
            if may_be_stored(*pair):
                self._load_groups(organization_id, [user_id])
            else:
                self._groups[pair] = {}
        return self._groups[pair]

    def _load_groups(self, organization_id: str, user_ids: Collection[str]) -> None:
        above: dict[str, dict[str, list[str]]] = {user_id: {} for user_id in user_ids}
        users = {"user_id": next(iter(user_ids), ""), "users": json_list(user_ids)}
        parts = _ONE_USER if len(user_ids) == 1 else _LISTED_USERS
        for user_id, group_id, member_id in run(
            self.connection, _GROUPS, {"organization_id": organization_id} | users, **parts
        ):
            above[user_id].setdefault(member_id, []).append(group_id)
        for user_id in user_ids:
            self._groups[organization_id, user_id] = _through_groups(above[user_id])

    def _store(self, kind: type[Record], keys: Iterable[Key], records: Iterable[Record]) -> None:
        """Stores the records that were read for these keys, so that ``_find`` does not read them again."""
        self._records.update(((kind.kind, *key), None) for key in keys)
        self._records.update((record.key, record) for record in records)

    def _find(self, kind: type[RecordT], *ids: str) -> RecordT | None:
        key = (kind.kind, *ids)
        if key not in self._records:
            self._records[key] = find(self.connection, kind, *ids)
        record = self._records[key]
        return record if isinstance(record, kind) else None

    def _select(self, kind: type[RecordT], query: str, parameters: Mapping[str, object], **parts: str) -> list[RecordT]:
        return [record_of(kind, row) for row in run(self.connection, query, parameters, **parts)]


def _through_groups(above: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """``SqlView.groups`` from the groups of the user (under an empty id) and of each group."""
    through: dict[str, str] = {}
    waiting = deque([""])
    while waiting:
        member_id = waiting.popleft()
        for group_id in above.get(member_id, ()):
            if group_id not in through:
                through[group_id] = member_id
                waiting.append(group_id)
    return through
