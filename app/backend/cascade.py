"""Deletes the rows that depend on deleted documents, organizations and users.

The packages that store such rows provide callbacks, which ``app.backend.app`` lists. They run in the transaction of the
deletion.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from app.backend.scope import Scope

OfDocuments = Callable[[Connection, Scope, Sequence[str]], None]
"""Deletes the rows of these documents of one organization."""
OfOrganizations = Callable[[Connection, str, Sequence[str]], None]
"""Deletes the rows of these organizations of one API key that ``scope.delete_of_organizations`` cannot find."""
OfUsers = Callable[[Connection, Scope, Sequence[str], str | None], None]
"""Deletes rows addressed to these users: in the whole organization, or about one document."""


@dataclass(frozen=True, kw_only=True)
class Cascade:
    """The callbacks, in the order of the calls."""

    documents: tuple[OfDocuments, ...] = ()
    organizations: tuple[OfOrganizations, ...] = ()
    users: tuple[OfUsers, ...] = ()

    def delete_of_documents(self, connection: Connection, scope: Scope, document_ids: Collection[str]) -> None:
        if document_ids:
            for delete in self.documents:
                delete(connection, scope, list(document_ids))

    def delete_of_organizations(
        self, connection: Connection, api_key_id: str, organization_ids: Collection[str]
    ) -> None:
        if organization_ids:
            for delete in self.organizations:
                delete(connection, api_key_id, list(organization_ids))

    def delete_of_users(
        self, connection: Connection, scope: Scope, user_ids: Collection[str], document_id: str | None
    ) -> None:
        if user_ids:
            for delete in self.users:
                delete(connection, scope, list(user_ids), document_id)
