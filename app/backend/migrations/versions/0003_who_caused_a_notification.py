"""Who caused a notification

Revision: 0003, after 0002.
"""

import sqlalchemy as sa
from alembic import op

from app.foundation.database.new_tables import create_index

revision = "0003"
down_revision = "0002"

_FROM_PAYLOAD = {
    "sqlite": "json_extract(payload, '$.actionUser.userId')",
    "postgresql": "(payload::json #>> '{actionUser,userId}')",
}


def upgrade() -> None:
    with op.batch_alter_table("notification", schema=None) as batch_op:
        batch_op.add_column(sa.Column("action_user_id", sa.String(), nullable=False, server_default=""))
    value = _FROM_PAYLOAD[op.get_bind().dialect.name]
    op.execute(f"UPDATE notification SET action_user_id = {value} WHERE {value} IS NOT NULL")  # noqa: S608 - no input
    create_index(
        "ix_notification_action_user",
        "notification",
        "api_key_id organization_id action_user_id created_at notification_id",
    )
