"""Adds the acting users of notifications, and the organizations of webhook messages

Revision: 0004, after 0002. It replaces the revisions 0003 and 0004 of the time between two releases.
"""

from alembic import op

from app.foundation.database.new_tables import add_columns, create_index

revision = "0004"
down_revision = "0002"


def upgrade() -> None:
    _add("notification", "action_user_id", "actionUser", "userId")
    _add("webhook_message", "organization_id", "raw", "organizationId")
    create_index(
        "ix_notification_action_user",
        "notification",
        "api_key_id organization_id action_user_id created_at notification_id",
    )
    create_index("ix_webhook_message_organization", "webhook_message", "api_key_id organization_id")


def _add(table: str, column: str, *path: str) -> None:
    """Adds a column with the text at this path in the payload."""
    add_columns(table, f"{column}=")
    value = f"json_extract(payload, '$.{'.'.join(path)}')"
    if op.get_bind().dialect.name == "postgresql":
        value = f"(payload::json #>> '{{{','.join(path)}}}')"
    op.execute(f"UPDATE {table} SET {column} = {value} WHERE {value} IS NOT NULL")  # noqa: S608 - no input
