"""The backend's own data as an ``AccessView``, for ``app.access.decision.decide``.

An entry on the organization is a membership. An entry on a folder or document is a grant to that user. Groups grant
nothing here, and there are no context grants. A fixed number of statements loads the data for a batch of questions
about one organization.
"""

# ruff: noqa: ARG002 - a view of one organization needs fewer arguments than the port has

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from sqlalchemy import Connection, Row, select

from app.access.decision.ancestry import Ancestry, ancestry_of
from app.access.decision.decide import access_type_in_force
from app.access.records import (
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
from app.backend.resources.tables import DOCUMENT, FOLDER, ORGANIZATION, USER_ENTRY
from app.backend.resources.user_entries import not_expired
from app.backend.scope import Scope, within, within_ids
from app.backend.storage import json_columns
from app.backend.storage.rows import among
from app.contract.permission_call import Question
from app.foundation.clock import from_epoch_ms


@dataclass(slots=True)
class OwnDataView:
    """An ``AccessView`` of one organization of one API key."""

    revision: int = 0
    """The backend's data has no revisions."""
    organizations: dict[str, Organization] = field(default_factory=dict)
    users: set[str] = field(default_factory=set)
    memberships: dict[str, Membership] = field(default_factory=dict)
    folders: dict[str, Folder] = field(default_factory=dict)
    documents: dict[str, Document] = field(default_factory=dict)
    disabled_documents: set[str] = field(default_factory=set)
    grants_by_resource: dict[tuple[str, str, str], Grant] = field(default_factory=dict)

    @classmethod
    def load(
        cls, connection: Connection, scope: Scope, questions: Sequence[Question], default_access_type: str, now: int
    ) -> Self:
        """Loads the data for these questions at ``now`` (epoch milliseconds). None may be about a context."""
        ids: dict[str, set[str]] = {"organization": set(), "folder": set(), "document": set()}
        for question in questions:
            ids[question.type].add(question.resource_id)
        view = cls()
        view._load_organization(connection, scope, default_access_type)
        view._load_documents(connection, scope, ids["document"])
        folder_ids = {document.folder_id for document in view.documents.values() if document.folder_id is not None}
        view._load_folders(connection, scope, folder_ids | ids["folder"])
        view._load_entries(connection, scope, {question.user_id for question in questions}, now)
        return view

    def organization(self, organization_id: str) -> Organization | None:
        return self.organizations.get(organization_id)

    def user(self, user_id: str) -> User | None:
        if user_id not in self.users:
            return None
        return User(user_id=user_id, name="", email="")

    def membership(self, organization_id: str, user_id: str) -> Membership | None:
        return self.memberships.get(user_id)

    def ancestry_of(self, organization_id: str, folder_id: str) -> Ancestry:
        return ancestry_of(self.folders.get, folder_id)

    def any_grants(self, organization_id: str, user_id: str, document_id: str | None, folder_id: str | None) -> bool:
        return bool(self.grants_by_resource)

    def document(self, organization_id: str, document_id: str) -> Document | None:
        return self.documents.get(document_id)

    def grants(self, organization_id: str, level: Level, resource_id: str, user_id: str) -> Sequence[Grant]:
        grant = self.grants_by_resource.get((level, resource_id, user_id))
        return () if grant is None else (grant,)

    def context_grants(self, organization_id: str, user_id: str) -> Sequence[ContextGrant]:
        return ()

    def group_path(self, organization_id: str, user_id: str, group_id: str) -> Sequence[GroupMember]:
        return ()

    def access_type_of(self, question: Question) -> AccessType:
        """The access type in force of the folder or document of a question, which exists."""
        document = self.documents[question.resource_id] if question.type == "document" else None
        folder_id = question.resource_id if document is None else document.folder_id
        ancestry = ancestry_of(self.folders.get, folder_id) if folder_id is not None else Ancestry()
        return access_type_in_force(document, ancestry, self.organizations[question.organization_id])[0]

    def _load_organization(self, connection: Connection, scope: Scope, default_access_type: str) -> None:
        disabled = connection.scalar(select(ORGANIZATION.c.disabled).where(within(ORGANIZATION, scope)))
        if disabled is not None:
            self.organizations[scope.organization_id] = Organization(
                organization_id=scope.organization_id,
                organization_name=scope.organization_id,
                access_type=AccessType(default_access_type),
                disabled=disabled,
            )

    def _load_documents(self, connection: Connection, scope: Scope, document_ids: Iterable[str]) -> None:
        query = select(
            DOCUMENT.c.document_id, DOCUMENT.c.folder_id, DOCUMENT.c.own_access_type, DOCUMENT.c.payload
        ).where(within_ids(connection, scope, DOCUMENT.c.document_id, document_ids))
        for row in connection.execute(query):
            # Few documents are disabled, so few payloads need to be parsed.
            if '"disabled"' in row.payload and json_columns.load_object(row.payload).get("disabled") is True:
                self.disabled_documents.add(row.document_id)
            self.documents[row.document_id] = Document(
                organization_id=scope.organization_id,
                document_id=row.document_id,
                document_name=row.document_id,
                folder_id=row.folder_id or None,
                access_type=row.own_access_type and AccessType(row.own_access_type),
            )

    def _load_folders(self, connection: Connection, scope: Scope, folder_ids: Iterable[str]) -> None:
        missing_ids = set(folder_ids)
        while missing_ids:  # at most twice: the folders, then their ancestors
            query = select(
                FOLDER.c.folder_id, FOLDER.c.parent_folder_id, FOLDER.c.ancestors, FOLDER.c.own_access_type
            ).where(within_ids(connection, scope, FOLDER.c.folder_id, missing_ids))
            ancestors: set[str] = set()
            for row in connection.execute(query):
                self.folders[row.folder_id] = Folder(
                    organization_id=scope.organization_id,
                    folder_id=row.folder_id,
                    folder_name=row.folder_id,
                    parent_folder_id=row.parent_folder_id or None,
                    access_type=row.own_access_type and AccessType(row.own_access_type),
                )
                ancestors.update(json_columns.load_list(row.ancestors))
            missing_ids = ancestors - self.folders.keys()

    def _load_entries(self, connection: Connection, scope: Scope, user_ids: set[str], now: int) -> None:
        of_users = among(connection, USER_ENTRY.c.user_id, user_ids)
        # A user exists if they have an entry in any organization of the API key.
        users = select(USER_ENTRY.c.user_id).where(
            USER_ENTRY.c.api_key_id == scope.api_key_id, of_users, not_expired(now)
        )
        self.users.update(connection.scalars(users.distinct()))
        columns = (USER_ENTRY.c.container_id, USER_ENTRY.c.user_id, USER_ENTRY.c.access_role, USER_ENTRY.c.expires_at)
        # A statement for each level is an index lookup for each user. With an OR, it would scan the organization.
        for level, container_ids in (("organization", {""}), ("folder", self.folders), ("document", self.documents)):
            in_containers = within_ids(connection, scope, USER_ENTRY.c.container_id, container_ids)
            for row in connection.execute(select(*columns).where(in_containers, USER_ENTRY.c.level == level, of_users)):
                self._add_entry(scope, level, row)

    def _add_entry(self, scope: Scope, level: str, row: Row[str, str, str, int | None]) -> None:
        container_id, user_id, role, expires_at = row
        end = None if expires_at is None else from_epoch_ms(expires_at)
        if level == "organization":
            self.memberships[user_id] = Membership(
                organization_id=scope.organization_id, user_id=user_id, access_role=AccessRole(role), expires_at=end
            )
            return
        self.grants_by_resource[level, container_id, user_id] = Grant(
            organization_id=scope.organization_id,
            folder_id=container_id if level == "folder" else None,
            document_id=container_id if level == "document" else None,
            user_id=user_id,
            access_role=AccessRole(role),
            expires_at=end,
        )
