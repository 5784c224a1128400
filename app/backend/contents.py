"""What hangs on documents, organizations and users by their ids, and is forgotten with them.

Each room that keeps such things says how it forgets them; the application puts the rooms together. All of it happens
in the transaction that deletes what they hang on.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from app.backend.scope import Scope

OfDocuments = Callable[[Connection, Scope, Sequence[str]], None]
"""Deletes what a room keeps of these documents of one organization."""
OfOrganizations = Callable[[Connection, str, Sequence[str]], None]
"""Deletes what a room keeps of these organizations of one API key."""
OfUsers = Callable[[Connection, Scope, Sequence[str], str | None], None]
"""Deletes what was addressed to these users: in the organization, or about one document of it."""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """How the rooms forget, in this order."""

    documents: tuple[OfDocuments, ...] = ()
    organizations: tuple[OfOrganizations, ...] = ()
    users: tuple[OfUsers, ...] = ()

    def forget_documents(self, connection: Connection, scope: Scope, document_ids: Collection[str]) -> None:
        if document_ids:
            for forget in self.documents:
                forget(connection, scope, list(document_ids))

    def forget_organizations(self, connection: Connection, api_key_id: str, organization_ids: Collection[str]) -> None:
        if organization_ids:
            for forget in self.organizations:
                forget(connection, api_key_id, list(organization_ids))

    def forget_users(
        self, connection: Connection, scope: Scope, user_ids: Collection[str], document_id: str | None
    ) -> None:
        if user_ids:
            for forget in self.users:
                forget(connection, scope, list(user_ids), document_id)
