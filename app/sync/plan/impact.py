"""The impact of a plan: how many users of each organization gain, lose or change access.

It is counted from the temporary table ``step`` while a plan is made, in one pass. A user counts once in each
organization. An item that is only sent again because it is unconfirmed, or was discarded, affects nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from app.foundation.database.statements import run
from app.sync.ledger.items import USER_KINDS
from app.sync.plan.rules import Aspect
from app.sync.plan.tables import PlanImpactRow

_IMPACT = PlanImpactRow.__table__

_NOTE = """
INSERT INTO plan_impact (plan_id, organization_id, gain, lose, change, people)
SELECT CAST(:plan_id AS TEXT), organization_id, SUM(gains * (1 - loses)), SUM(loses * (1 - gains)),
  SUM(CASE WHEN gains = loses THEN 1 ELSE 0 END), COUNT(*)
FROM (
  SELECT organization_id, item_id, MAX(CASE WHEN aspects = {new} THEN 1 ELSE 0 END) AS gains,
    MAX(CASE WHEN aspects = {gone} THEN 1 ELSE 0 END) AS loses
  FROM step
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
    """Stores the impact of the plan from ``step``."""
    run(
        connection,
        _NOTE,
        {"plan_id": plan_id},
        new=str(int(Aspect.NEW)),
        gone=str(int(Aspect.GONE)),
        content=str(int(Aspect.CONTENT)),
        kinds=", ".join(f"'{kind.value}'" for kind in USER_KINDS),
    )


def largest_impact(connection: Connection, plan_id: str, limit: int) -> Sequence[Impact]:
    """The organizations with most affected users, in descending order."""
    columns = [_IMPACT.c[name] for name in Impact.__dataclass_fields__]
    query = select(*columns).where(_IMPACT.c.plan_id == plan_id).order_by(_IMPACT.c.people.desc()).limit(limit)
    return [Impact(*row) for row in connection.execute(query)]


def affected(connection: Connection, plan_id: str) -> tuple[int, int]:
    """The number of affected organizations, and of their affected users."""
    query = select(func.count(), func.coalesce(func.sum(_IMPACT.c.people), 0)).where(_IMPACT.c.plan_id == plan_id)
    organizations, people = connection.execute(query).one()
    return organizations, int(people)
