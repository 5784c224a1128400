"""Sizes of single things: how many folders, documents, members or grants they have, counted to a thousand."""

from collections.abc import Mapping

from sqlalchemy import Connection

from app.foundation.database.statements import run

MOST = 1_000
"""What there is more of is counted no further."""

_COUNT = (
    "SELECT COUNT(*) FROM (SELECT 1 FROM {table} WHERE organization_id = :organization_id AND {of} LIMIT :most) counted"
)

_AROUND = "model_group_member @by(ix_model_group_member_organization_id_member_group_id_organization_user_group_id)"

_SIZES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "folder": {
        "folders": ("model_folder @by(ix_model_folder_within)", "parent_folder_id = :id"),
        "documents": ("model_document @by(ix_model_document_within)", "folder_id = :id"),
        "grants": ("model_grant", "folder_id = :id AND document_id = ''"),
    },
    "document": {"grants": ("model_grant", "folder_id = '' AND document_id = :id")},
    "group": {
        "users": ("model_group_member", "organization_user_group_id = :id AND user_id > ''"),
        "groups": ("model_group_member", "organization_user_group_id = :id AND user_id = ''"),
        "around": (_AROUND, "member_group_id = :id"),
        "grants": ("model_grant @by(ix_model_grant_to_group)", "organization_user_group_id = :id AND user_id = ''"),
    },
    "user": {
        "groups": (
            "model_group_member @by(ix_model_group_member_organization_id_user_id_organization_user_group_id)",
            "user_id = :id",
        ),
        "grants": (
            "model_grant @by(ix_model_grant_user_id_organization_id_folder_id_document_id_access_role_expires_at)",
            "user_id = :id",
        ),
    },
}


def sizes_of(connection: Connection, kind: str, organization_id: str, item_id: str) -> dict[str, int]:
    """What a thing has of each sort; ``MOST + 1`` stands for more than ``MOST``."""
    asked = {"organization_id": organization_id, "id": item_id, "most": MOST + 1}
    return {
        what: int(run(connection, _COUNT, asked, table=table, of=of).scalar_one())
        for what, (table, of) in _SIZES[kind].items()
    }
