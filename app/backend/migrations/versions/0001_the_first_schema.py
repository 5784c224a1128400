"""The first schema

Revision: 0001, after .

A database without tables never runs it: it gets the tables of the code (``app/foundation/database/alembic_revisions.py``).
"""

revision = "0001"
down_revision = None


def upgrade() -> None:
    raise NotImplementedError("a new database gets the tables of the code")
