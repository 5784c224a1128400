"""Stores the access impact of a dry run with its plan: the users who gain or lose access, or get another role.

``app.access.impact`` computes it. The rows of one organization follow each other: losses, gains, changed roles, each
with the largest first. ``app.sync.plan.stored_access`` reads them.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Engine, insert

from app.access.browse.lookup import find
from app.access.candidate import lasting_name
from app.access.decision.decide import DecisionPolicy
from app.access.decision.explain import explain, record_to_wire
from app.access.impact.changed import Sided
from app.access.impact.comparison import AccessChange, TooManyStepsError
from app.access.impact.impact import access_changes
from app.access.kinds import NAMED_KINDS
from app.access.records import Key, Record
from app.access.refresh.tables import MODEL_TABLES_OF_KIND
from app.access.revisions import ModelChange
from app.access.sql_view import SqlView
from app.contract.permission_call import Question
from app.foundation.clock import Clock
from app.foundation.database.engine import reading
from app.foundation.database.statements import json_list, run
from app.sync.plan.stored_access import (
    ACCESS_COLUMNS,
    EFFECTS,
    LOSSES_FIRST,
    AccessCause,
    StoredAccessChange,
    effect_of,
)
from app.sync.plan.tables import PlanAccessRow

MAX_LISTED_IDS = 1_000_000
"""Further rows have numbers, but no ids. Only changes of whole directories reach this."""
NAMED_ROWS = 100
"""The rows that have names and causes."""
NAMED_IDS = 5
"""The users and the resources of a row that have names: the first ones."""
MAX_FIRST_READ = 50_000
"""A larger first read is not compared: all access is gained, and to list it may take minutes."""
MAX_REPORTED = 100
"""The most pairs of organization and kind in the report of the run: the largest. The stored rows have all."""

DECISIVE_FIELDS = frozenset({"accessRole", "accessType", "disabled", "expiresAt", "folderId", "parentFolderId"})
"""The fields that decisions read, apart from the ids of records."""


@dataclass
class ImpactOfDryRun:
    """Receives the impact in the transaction of the refresh of a dry run."""

    engine: Engine
    """That of the database behind the candidate."""
    clock: Clock
    policy: DecisionPolicy
    check: Callable[[], None]
    """Raises if the run is to end."""
    rows: list[StoredAccessChange] = field(default_factory=list)
    not_compared: str = ""
    """The reason if there is no impact."""
    _ids: int = 0

    def collect(self, connection: Connection, _reads: object, change: ModelChange) -> None:
        """Computes the impact of the candidate, whose refresh ends in this transaction."""
        read = sum(counts.total for counts in change.changes.values())
        if change.revision == 1 and read > MAX_FIRST_READ:
            self.not_compared = f"it is the first read, of more than {MAX_FIRST_READ:,} records"
            return
        now: datetime = self.clock()
        changes = access_changes(connection, now, self.policy, self.check)
        try:
            with reading(self.engine) as behind:
                sides = Sided(SqlView(behind), SqlView(connection))
                for _, of_organization in groupby(changes, key=lambda change: change.organization_id):
                    for access_change in sorted(of_organization, key=_rank):
                        self._add(sides, access_change, now)
        except TooManyStepsError:
            # Without the organizations that were compared before: a part would look like everything.
            self.rows.clear()
            self.not_compared = "too many users and resources are affected in different ways"

    def summary(self) -> dict[str, Any]:
        """The entry of the run's report: the numbers of pairs in total, and by organization and kind, and the number of
        users who lose access, or None if the rows do not list them all."""
        if self.not_compared:
            return {"notCompared": self.not_compared}
        total = Counter[str](dict.fromkeys(EFFECTS, 0))
        within: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for row in self.rows:
            total[row.effect] += row.pairs
            within[row.organization_id, row.kind][row.effect] += row.pairs
        largest = sorted(within.items(), key=lambda item: (-item[1].total(), item[0]))[:MAX_REPORTED]
        losses = [row for row in self.rows if row.effect == "lose"]
        losing = {user_id for row in losses for user_id in row.user_ids}
        return {
            **total,
            "usersWhoLose": len(losing) if all(len(row.user_ids) == row.users for row in losses) else None,
            "organizationCount": len({organization_id for organization_id, _ in within}),
            "largest": [
                {"organizationId": organization_id, "kind": kind} | {effect: counts[effect] for effect in EFFECTS}
                for (organization_id, kind), counts in largest
            ],
        }

    def store(self, connection: Connection, plan_id: str) -> None:
        """Stores the rows with the plan."""
        if self.rows:
            connection.execute(insert(PlanAccessRow), list(self._values(plan_id)))

    def _values(self, plan_id: str) -> Iterator[dict[str, object]]:
        for row in self.rows:
            yield {
                "plan_id": plan_id,
                **{name: getattr(row, name) for name in ACCESS_COLUMNS},
                "user_ids": json_list(row.user_ids),
                "resource_ids": json_list(row.resource_ids),
                "names": json.dumps(row.names, ensure_ascii=False),
            }

    def _add(self, sides: Sided[SqlView], change: AccessChange, now: datetime) -> None:
        self._ids += len(change.user_ids) + len(change.resource_ids)
        listed = self._ids <= MAX_LISTED_IDS
        user_ids, resource_ids = (change.user_ids, change.resource_ids) if listed else ((), ())
        ordinal = len(self.rows) + 1
        names: dict[str, Any] = {}
        if ordinal <= NAMED_ROWS:
            connection = sides.after.connection
            names = {
                "users": _names(connection, "user", "", user_ids),
                "resources": _names(connection, change.kind, change.organization_id, resource_ids),
            }
            if user_ids and resource_ids:
                question = Question(user_ids[0], change.kind, resource_ids[0], change.organization_id)
                names["causes"] = _causes(sides, question, now, self.policy)
        self.rows.append(
            StoredAccessChange(
                ordinal=ordinal,
                organization_id=change.organization_id,
                kind=change.kind,
                before=change.before or "",
                after=change.after or "",
                users=change.users,
                resources=len(change.resource_ids),
                pairs=change.pairs,
                user_ids=user_ids,
                resource_ids=resource_ids,
                names=names,
            )
        )


def _causes(sides: Sided[SqlView], question: Question, now: datetime, policy: DecisionPolicy) -> list[AccessCause]:
    """The records that led to the decision before or after the change, and that differ."""
    causes: dict[Key, AccessCause] = {}
    for view, other, word in ((sides.before, sides.after, "removed"), (sides.after, sides.before, "added")):
        for record in (view.user(question.user_id), *explain(view, question, now, policy).records):
            if record is None:
                continue
            counterpart = find(other.connection, type(record), *record.key[1:])
            if counterpart is None or _decisive(counterpart) != _decisive(record):
                causes[record.key] = AccessCause(word if counterpart is None else "changed", record_to_wire(record))
    return list(causes.values())


def _decisive(record: Record) -> dict[str, object]:
    return {name: value for name, value in record_to_wire(record).items() if name in DECISIVE_FIELDS}


def _rank(change: AccessChange) -> tuple[object, ...]:
    effect = LOSSES_FIRST.index(effect_of(change.before, change.after))
    return effect, -change.pairs, change.kind, change.user_ids, change.resource_ids


_PAYLOADS = """
SELECT t.{item}, t.payload FROM (@list(ids)) AS l CROSS JOIN {table} t WHERE {within} t.{item} = l.value
"""


def _names(connection: Connection, kind: str, organization_id: str, ids: Sequence[str]) -> dict[str, str]:
    """The names of the first ids: after the change, or else before."""
    tables = MODEL_TABLES_OF_KIND[kind]
    name_of: dict[str, str] = {}
    parameters = {"ids": json_list(ids[:NAMED_IDS]), "organization_id": organization_id}
    within = "t.organization_id = :organization_id AND" if len(tables.keys) > 1 else ""
    for table in (lasting_name(connection, tables.model), tables.model.name):
        for item_id, payload in run(
            connection, _PAYLOADS, parameters, table=table, item=tables.keys[-1], within=within
        ):
            name_of[item_id] = str(json.loads(payload).get(NAMED_KINDS[kind].name) or "")
    return name_of
