"""Finds the organizations, and their folders, documents and groups, whose contents a verify reads from the backend.

They are desired, in the ledger, were in the ledger, or have just been read.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Engine

from app.foundation.clock import Clock
from app.foundation.database.engine import reading, writing
from app.foundation.database.statements import run
from app.sync.apply.backend_reads import Container
from app.sync.ledger.items import CONTAINERS, USER_KINDS, Kind, listed
from app.sync.plan.desired import compute_desired
from app.sync.plan.selection import Selection
from app.sync.plan.tables import drop_temporary


@dataclass(frozen=True, slots=True)
class Containers:
    """The containers of one backend."""

    engine: Engine
    ledger_id: int

    def of_users(self, selection: Selection, *, clock: Clock) -> list[Container]:
        """Containers where the directory or the ledger has, or had, entries of the selected users. All documents of an
        organization are one container, because one call reads them."""
        with writing(self.engine) as connection:
            compute_desired(connection, ledger_id=self.ledger_id, now=clock(), selection=selection)
            rows = run(
                connection,
                """
                SELECT DISTINCT kind, organization_id, CASE kind WHEN 'documentUser' THEN '' ELSE container_id END
                FROM (
                    SELECT kind, organization_id, container_id FROM desired
                    UNION SELECT l.kind, l.organization_id, l.container_id FROM ledger_item l
                    WHERE l.ledger_id = :ledger_id AND l.kind IN ({kinds}) AND {within}
                    UNION SELECT l.kind, l.organization_id, l.container_id FROM deleted_item l
                    WHERE l.ledger_id = :ledger_id AND l.kind IN ({kinds}) AND {within}
                ) AS containers ORDER BY 1, 2, 3
                """,
                {"ledger_id": self.ledger_id, **selection.parameters},
                kinds=listed(USER_KINDS),
                within=selection.condition("l.organization_id", "l.item_id"),
            ).all()
            drop_temporary(connection)
        return [Container(Kind(str(kind)), str(organization), str(container)) for kind, organization, container in rows]

    def organizations(self, selection: Selection) -> list[str]:
        """Organizations of the backend that are in the directory, or are or were in the ledger."""
        return self._ids(
            """
            SELECT o.item_id FROM observed_item o
            WHERE o.ledger_id = :ledger_id AND o.kind = 'organization' AND {within} AND (
                EXISTS (SELECT 1 FROM model_organization a WHERE a.organization_id = o.item_id)
                OR EXISTS (SELECT 1 FROM ledger_item l WHERE l.ledger_id = o.ledger_id
                    AND l.organization_id = o.item_id)
                OR o.item_id IN (SELECT organization_id FROM deleted_item WHERE ledger_id = :ledger_id))
            ORDER BY o.item_id
            """,
            selection.parameters,
            within=selection.condition("o.organization_id"),
        )

    def folders(self, organization_id: str, *, were_read: bool) -> list[Container]:
        """The folders that were read, or else those of the ledger."""
        if were_read:
            folder_ids = self._ids(
                """
                SELECT item_id FROM observed_item
                WHERE ledger_id = :ledger_id AND kind = 'folder' AND organization_id = :organization_id
                ORDER BY item_id
                """,
                {"organization_id": organization_id},
            )
        else:
            folder_ids = self._known_containers(Kind.FOLDER_USER, organization_id)
        return [Container(Kind.FOLDER_USER, organization_id, folder_id) for folder_id in folder_ids]

    def groups(self, organization_id: str) -> list[Container]:
        """The groups of the directory and of the ledger. Groups cannot be read from the backend."""
        desired = self._ids(
            "SELECT organization_user_group_id FROM model_group WHERE organization_id = :organization_id",
            {"organization_id": organization_id},
        )
        group_ids = {*desired, *self._known_containers(Kind.GROUP_MEMBER, organization_id)}
        return [Container(Kind.GROUP_MEMBER, organization_id, group_id) for group_id in sorted(group_ids)]

    def _known_containers(self, users: Kind, organization_id: str) -> list[str]:
        """Containers that are in the ledger, or in which the ledger has or had users."""
        return self._ids(
            """
            SELECT item_id FROM ledger_item
            WHERE ledger_id = :ledger_id AND kind = :container AND organization_id = :organization_id
            UNION SELECT container_id FROM ledger_item
            WHERE ledger_id = :ledger_id AND kind = :users AND organization_id = :organization_id
            UNION SELECT container_id FROM deleted_item
            WHERE ledger_id = :ledger_id AND kind = :users AND organization_id = :organization_id
            ORDER BY 1
            """,
            {"container": CONTAINERS[users].value, "users": users.value, "organization_id": organization_id},
        )

    def _ids(self, query: str, parameters: Mapping[str, object], **parts: str) -> list[str]:
        with reading(self.engine) as connection:
            return list(run(connection, query, {"ledger_id": self.ledger_id, **parameters}, **parts).scalars())
