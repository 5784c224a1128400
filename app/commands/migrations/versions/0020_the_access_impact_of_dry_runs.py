"""The access impact of dry runs, stored with their plans

Revision: 0020, after 0019.

Plans of existing dry runs have none.
"""

from app.foundation.database.new_tables import create_table

revision = "0020"
down_revision = "0019"
oldest_compatible = "0018"


def upgrade() -> None:
    create_table(
        "plan_access",
        "plan_id* ordinal:bigint* organization_id kind before after users:bigint resources:bigint pairs:bigint"
        " user_ids resource_ids names",
    )
