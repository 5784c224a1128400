"""Adds the column last_refusal_acceptance, and moves the option out of the reason

Revision: 0027, after 0026.
"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
oldest_compatible = "0018"

# Earlier versions appended the advice, with the option, to the reason.
_ADVICE = "; if this is intended, confirm it once: usher directory refresh --"


def upgrade() -> None:
    with op.batch_alter_table("directory_source") as batch:
        batch.add_column(sa.Column("last_refusal_acceptance", sa.String(), server_default="", nullable=False))
    source = sa.table(
        "directory_source",
        sa.column("source_id", sa.Integer),
        sa.column("refused", sa.String),
        sa.column("last_refusal", sa.String),
        sa.column("last_refusal_acceptance", sa.String),
    )
    connection = op.get_bind()
    for row in connection.execute(sa.select(source)).all():
        reason, _, command = row.last_refusal.rpartition(_ADVICE)
        if reason:
            values = {
                "refused": row.refused.rpartition(_ADVICE)[0],
                "last_refusal": reason,
                "last_refusal_acceptance": command.partition(" ")[0],
            }
            connection.execute(sa.update(source).where(source.c.source_id == row.source_id).values(values))
