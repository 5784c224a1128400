"""The uploaded files of previews, and an index of runs by operator

Revision: 0024, after 0023.

A worker of an older version previews the configured sources instead of the file.
"""

from app.foundation.database.new_tables import create_index, create_table

revision = "0024"
down_revision = "0023"
oldest_compatible = "0018"


def upgrade() -> None:
    create_table("run_file", "run_id* name source content:bytes")
    create_index("ix_run_asked_by", "run", "asked_by run_id", where="asked_by IS NOT NULL")
