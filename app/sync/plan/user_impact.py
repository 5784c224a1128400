"""Counts how many users of each organization a plan lets gain, lose or change access.

They are counted from the temporary table ``diff`` while a plan is made, in one pass. A user counts once in each
organization. An item that is only sent again because it is unconfirmed, or was discarded, affects nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from app.foundation.database.statements import run
from app.sync.ledger.items import USER_KINDS, listed
from app.sync.plan.rules import ASPECT_BITS
from app.sync.plan.tables import PlanImpactRow

_IMPACT = PlanImpactRow.__table__

_STORE_IMPACT = """
INSERT INTO plan_impact (plan_id, organization_id, gain, lose, change, people)
SELECT CAST(:plan_id AS TEXT), organization_id, SUM(gains * (1 - loses)), SUM(loses * (1 - gains)),
  SUM(CASE WHEN gains = loses THEN 1 ELSE 0 END), COUNT(*)
FROM (
  SELECT organization_id, item_id, MAX(CASE WHEN aspects = {new} THEN 1 ELSE 0 END) AS gains,
    MAX(CASE WHEN aspects = {gone} THEN 1 ELSE 0 END) AS loses
  FROM diff
  WHERE kind IN ({kinds}) AND status <> 'discarded'
    AND (aspects = {gone} OR why = '' AND aspects IN ({new}, {content}))
  GROUP BY organization_id, item_id
) AS person
GROUP BY organization_id
"""


@dataclass(frozen=True, slots=True)
class Impact:
    """How many users of one organization gain, lose or change access."""

    organization_id: str
    gain: int
    lose: int
    change: int


def store_impact(connection: Connection, plan_id: str) -> None:
    """Stores the impact of the plan from ``diff``."""
    run(connection, _STORE_IMPACT, {"plan_id": plan_id}, kinds=listed(USER_KINDS), **ASPECT_BITS)


def largest_impact(connection: Connection, plan_id: str, limit: int) -> Sequence[Impact]:
    """The organizations with most affected users, in descending order. Those with equally many in any order: the index
    has only the number."""
    columns = [_IMPACT.c[name] for name in Impact.__dataclass_fields__]
    query = select(*columns).where(_IMPACT.c.plan_id == plan_id).order_by(_IMPACT.c.people.desc()).limit(limit)
    return [Impact(*row) for row in connection.execute(query)]


class AffectedNumbers(NamedTuple):
    """The numbers of affected organizations, and of affected users in each of them."""

    organizations: int
    users: int


def affected(connection: Connection, plan_id: str) -> AffectedNumbers:
    """The numbers of a plan."""
    query = select(func.count(), func.coalesce(func.sum(_IMPACT.c.people), 0)).where(_IMPACT.c.plan_id == plan_id)
    organizations, people = connection.execute(query).one()
    return AffectedNumbers(organizations, int(people))
