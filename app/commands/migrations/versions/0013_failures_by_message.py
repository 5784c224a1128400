"""What fails is found by what was said of it, however many others fail

Revision: 0013, after 0012.
"""

import hashlib
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_KEY = ["kind", "organization_id", "container_id", "item_id", "deleting"]
_DIGITS = 32


def upgrade() -> None:
    with op.batch_alter_table("item_failure", schema=None) as batch_op:
        batch_op.add_column(sa.Column("message_digest", sa.String(), server_default="", nullable=False))
    _fill()
    op.drop_index(op.f("ix_item_failure_ledger_id_kind_parked"), table_name="item_failure")
    op.create_index("ix_item_failure_listed", "item_failure", ["ledger_id", "parked", *_KEY], unique=False)
    op.create_index(
        "ix_item_failure_alike", "item_failure", ["ledger_id", "parked", "message_digest", *_KEY], unique=False
    )


def _fill() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        driver.create_function("usher_digest", 1, _digest, deterministic=True)
        op.execute("UPDATE item_failure SET message_digest = usher_digest(message)")
        return
    op.execute(
        f"UPDATE item_failure SET message_digest = left(encode(sha256(convert_to(message, 'UTF8')), 'hex'), {_DIGITS})"  # noqa: S608 - a number
    )


def _digest(message: str) -> str:
    return hashlib.sha256(message.encode()).hexdigest()[:_DIGITS]


def downgrade() -> None:
    op.drop_index("ix_item_failure_alike", table_name="item_failure")
    op.drop_index("ix_item_failure_listed", table_name="item_failure")
    with op.batch_alter_table("item_failure", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_item_failure_ledger_id_kind_parked"), ["ledger_id", "kind", "parked"], unique=False
        )
        batch_op.drop_column("message_digest")
