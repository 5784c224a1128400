"""Counts of records, in all and in each organization: kept by refreshes, not counted when somebody asks.

Refreshes add and subtract what they change (``refresh/replace.py``), in the same transaction.
"""

from collections.abc import Collection, Mapping

from sqlalchemy import Connection

from app.foundation.database.statements import json_list, run

IN_ALL = ""
"""Stands for all organizations together."""

_COUNTS = """
SELECT c.organization_id, c.kind, c.records FROM (@list(organization_ids)) AS asked
CROSS JOIN access_count c WHERE c.organization_id = asked.value
"""


def counts_of(connection: Connection, organization_ids: Collection[str]) -> Mapping[str, Mapping[str, int]]:
    """Organization → kind → how many records of it there are; where there are none, it is missing. ``IN_ALL`` may be
    among those that are asked for."""
    found: dict[str, dict[str, int]] = {}
    for organization_id, kind, records in run(
        connection, _COUNTS, {"organization_ids": json_list(organization_ids)}
    ).all():
        found.setdefault(organization_id, {})[kind] = int(records)
    return found
