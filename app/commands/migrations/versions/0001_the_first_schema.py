"""Marks the schema of the first databases.

Revision: 0001, the first. No upgrade runs it: a database without tables gets the tables of the code
(``app/foundation/database/alembic_revisions.py``).
"""

revision = "0001"
down_revision = None


def upgrade() -> None:
    raise NotImplementedError("a new database gets the tables of the code")
