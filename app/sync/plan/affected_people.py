"""The users and resources of a plan's changes of access, each counted once: in total and by organization."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from app.foundation.database.statements import run
from app.sync.plan.access_impact import LOSSES_FIRST, StoredAccessChange, list_access, parsed_row

# Of each organization and effect, the most users and the most resources of one row.
_LARGEST_ROWS = """
SELECT MIN(ordinal) AS ordinal, organization_id, MIN(kind) AS kind, MIN(before) AS before, MIN(after) AS after,
  MAX(users) AS users, MAX(resources) AS resources, SUM(pairs) AS pairs, '[]' AS user_ids, '[]' AS resource_ids,
  '{}' AS names
FROM plan_access WHERE plan_id = :plan_id
GROUP BY organization_id, kind, before = '', after = ''
"""
_SIZE = "SELECT COALESCE(SUM(users + resources), 0), COUNT(*) FROM plan_access WHERE plan_id = :plan_id"
_MAX_COUNTED_IDS = 100_000
_MAX_COUNTED_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class AffectedPeople:
    """The users and the resources of all changes with one effect, each counted once."""

    people: int
    resources: int
    kind: str
    """The kind of the resources. Empty: several."""
    is_exact: bool
    """Otherwise there are more."""


@dataclass(frozen=True, slots=True)
class ImpactTotals:
    """The users and resources of a plan's changes of access, in total and by organization."""

    changes: int
    """The number of rows."""
    total: Mapping[str, AffectedPeople]
    """Effect → users and resources."""
    of_organization: Mapping[str, Mapping[str, AffectedPeople]]
    """Organization → effect → users and resources; the organizations with most pairs first."""


def affected_people(connection: Connection, plan_id: str) -> ImpactTotals:
    """The numbers are exact if the plan lists at most ``_MAX_COUNTED_IDS``. Otherwise they are those of the largest
    row."""
    ids, changes = run(connection, _SIZE, {"plan_id": plan_id}).one()
    if ids <= _MAX_COUNTED_IDS and changes <= _MAX_COUNTED_ROWS:
        rows = list_access(connection, plan_id, limit=_MAX_COUNTED_ROWS)
    else:
        rows = [parsed_row(row, 1) for row in run(connection, _LARGEST_ROWS, {"plan_id": plan_id}).mappings()]
    within: defaultdict[str, list[StoredAccessChange]] = defaultdict(list)
    for row in rows:
        within[row.organization_id].append(row)
    largest = sorted(within.items(), key=lambda item: (-sum(row.pairs for row in item[1]), item[0]))
    return ImpactTotals(
        changes, _people(rows), {organization_id: _people(of_one) for organization_id, of_one in largest}
    )


def _people(rows: Sequence[StoredAccessChange]) -> dict[str, AffectedPeople]:
    """Effect → users and resources, losses first."""
    affected = {}
    for effect in LOSSES_FIRST:
        of_effect = [row for row in rows if row.effect == effect]
        if of_effect:
            users = {user_id for row in of_effect for user_id in row.user_ids}
            resources = {(row.organization_id, row.kind, each) for row in of_effect for each in row.resource_ids}
            kinds = {row.kind for row in of_effect}
            affected[effect] = AffectedPeople(
                max(len(users), *(row.users for row in of_effect)),
                max(len(resources), *(row.resources for row in of_effect)),
                kinds.pop() if len(kinds) == 1 else "",
                all(len(row.user_ids) == row.users for row in of_effect),
            )
    return affected
