"""The organizations of webhooks

Revision: 0004, after 0003.
"""

import sqlalchemy as sa
from alembic import op

from app.foundation.database.new_tables import create_index

revision = "0004"
down_revision = "0003"

_FROM_PAYLOAD = {
    "sqlite": "json_extract(payload, '$.raw.organizationId')",
    "postgresql": "(payload::json #>> '{raw,organizationId}')",
}


def upgrade() -> None:
    with op.batch_alter_table("webhook_message", schema=None) as batch_op:
        batch_op.add_column(sa.Column("organization_id", sa.String(), nullable=False, server_default=""))
    value = _FROM_PAYLOAD[op.get_bind().dialect.name]
    op.execute(f"UPDATE webhook_message SET organization_id = {value} WHERE {value} IS NOT NULL")  # noqa: S608 - no input
    create_index("ix_webhook_message_organization", "webhook_message", "api_key_id organization_id")
