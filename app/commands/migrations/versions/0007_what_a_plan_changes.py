"""What a plan's item was before, and the fields that records had when the backend was told of them

Revision: 0007, after 0006.
"""

import sqlalchemy as sa
from alembic import op

from app.foundation.database.new_tables import create_table

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    create_table("former_payload", "kind* organization_id* item_id* digest* payload", clustered=True)
    with op.batch_alter_table("plan_item", schema=None) as batch_op:
        batch_op.add_column(sa.Column("was", sa.String(), server_default="", nullable=False))
