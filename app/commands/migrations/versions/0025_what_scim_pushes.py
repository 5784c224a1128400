"""The users, groups and members that directories push with SCIM

Revision: 0025, after 0024.
"""

from app.foundation.database.new_tables import create_index, create_table

revision = "0025"
down_revision = "0024"
oldest_compatible = "0018"


def upgrade() -> None:
    create_table(
        "scim_resource",
        "source_id:int* resource_id* type created:bigint modified:bigint version:bigint content",
        clustered=True,
    )
    create_index(
        "ix_scim_resource_source_id_type_created_resource_id", "scim_resource", "source_id type created resource_id"
    )
    create_table("scim_key", "source_id:int* attribute* value* resource_id*", clustered=True)
    create_index("ix_scim_key_source_id_resource_id", "scim_key", "source_id resource_id")
    create_table("scim_member", "source_id:int* group_id* value* type display", clustered=True)
    create_index("ix_scim_member_source_id_value_group_id", "scim_member", "source_id value group_id")
