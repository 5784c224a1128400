"""The access impact of a dry run, stored with its plan: the users who gain or lose access, or get another role.

``app.access.impact`` computes it. ``plan_access`` has one row for the same change of access of a set of users to a set
of resources. The rows of one organization follow each other: losses, gains, changed roles, each with the largest first.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, islice
from typing import Any

from sqlalchemy import Connection, Engine, RowMapping, insert

from app.access.browse.lookup import find
from app.access.candidate import lasting_name
from app.access.decision.decide import DecisionPolicy
from app.access.decision.explain import explain, record_to_wire
from app.access.impact.comparison import AccessChange, TooManyStepsError
from app.access.impact.impact import access_changes
from app.access.kinds import NAMED_KINDS
from app.access.records import Record
from app.access.refresh.tables import MODEL_TABLES_OF_KIND
from app.access.revisions import ModelChange
from app.access.sql_view import SqlView
from app.contract.permission_call import Question
from app.foundation.clock import Clock
from app.foundation.database.engine import reading
from app.foundation.database.statements import json_list, run
from app.foundation.text import counted
from app.sync.plan.tables import PlanAccessRow

MAX_LISTED_IDS = 1_000_000
"""Further rows have numbers, but no ids. Only changes of whole directories reach this."""
NAMED_ROWS = 100
"""The rows that have names and causes."""
NAMED_IDS = 5
"""The users and the resources of a row that have names: the first ones."""
_SHOWN_IDS = 3
"""The users and the resources of a row that its words contain."""
MAX_FIRST_READ = 50_000
"""A larger first read is not compared: all access is gained, and to list it may take minutes."""
MAX_REPORTED = 100
"""The most pairs of organization and kind in the report of the run: the largest. The stored rows have all."""

DECISIVE_FIELDS = frozenset({"accessRole", "accessType", "disabled", "expiresAt", "folderId", "parentFolderId"})
"""The fields that decisions read, apart from the ids of records."""

EFFECTS = ("gain", "lose", "change")
LOSSES_FIRST = ("lose", "gain", "change")
"""The order in which lists and pages show them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAccessChange:
    """One row: the same change of access of each of the users to each of the resources."""

    ordinal: int
    organization_id: str
    kind: str
    """organization, folder or document."""
    before: str
    """The role before. Empty for no access."""
    after: str
    users: int
    resources: int
    pairs: int
    user_ids: Sequence[str]
    """All of them, or the first. Empty if they are not listed, or are the users without any entry in the
    organization."""
    resource_ids: Sequence[str]
    """All of them, or the first. Empty if they are not listed."""
    names: Mapping[str, Any]
    """``users`` and ``resources``: id → name, of the first ones. ``causes``: see ``causes``."""

    @property
    def effect(self) -> str:
        """One of ``EFFECTS``."""
        return _effect(self.before, self.after)

    @property
    def causes(self) -> Sequence[tuple[str, Mapping[str, object]]]:
        """The changes of records that change the access of the first user to the first resource: ``added``, ``changed``
        or ``removed``, and the record as in ``record_to_wire``. Empty if they are not known."""
        return [(change, record) for change, record in self.names.get("causes", ())]

    @property
    def change_in_words(self) -> str:
        """``lose editor``, ``gain viewer``, or ``editor → viewer``."""
        if self.effect == "change":
            return f"{self.before} → {self.after}"
        return f"{self.effect} {self.before or self.after}"

    @property
    def users_in_words(self) -> str:
        """The first users by id and name, and the number of the others."""
        if not self.user_ids and self.resource_ids:
            return f"{self.users:,} users without an entry in the organization"
        return _in_words(self.user_ids, self.users, "user", self.names.get("users", {}))

    @property
    def resources_in_words(self) -> str:
        """The kind, the first resources by id and name, and the number of the others."""
        listed = _in_words(self.resource_ids, self.resources, self.kind, self.names.get("resources", {}))
        return f"{self.kind} {listed}" if self.resource_ids else listed


@dataclass(frozen=True, slots=True)
class AccessCount:
    """The pairs of user and resource of one kind in one organization whose access changes."""

    organization_id: str
    kind: str
    gain: int
    lose: int
    change: int


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
                sides = SqlView(behind), SqlView(connection)
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
        total = Counter(dict.fromkeys(EFFECTS, 0))
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
                **{name: getattr(row, name) for name in _COLUMNS},
                "user_ids": json_list(row.user_ids),
                "resource_ids": json_list(row.resource_ids),
                "names": json.dumps(row.names, ensure_ascii=False),
            }

    def _add(self, sides: tuple[SqlView, SqlView], change: AccessChange, now: datetime) -> None:
        self._ids += len(change.user_ids) + len(change.resource_ids)
        listed = self._ids <= MAX_LISTED_IDS
        user_ids, resource_ids = (change.user_ids, change.resource_ids) if listed else ((), ())
        ordinal = len(self.rows) + 1
        names: dict[str, Any] = {}
        if ordinal <= NAMED_ROWS:
            connection = sides[1].connection
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


def _causes(
    sides: tuple[SqlView, SqlView], question: Question, now: datetime, policy: DecisionPolicy
) -> list[tuple[str, Mapping[str, object]]]:
    """The records that led to the decision before or after the change, and that differ. ``sides``: before and after."""
    causes: dict[tuple[str, ...], tuple[str, Mapping[str, object]]] = {}
    for view, other, word in ((sides[0], sides[1], "removed"), (sides[1], sides[0], "added")):
        for record in (view.user(question.user_id), *explain(view, question, now, policy).records):
            if record is None:
                continue
            counterpart = find(other.connection, type(record), *record.key[1:])
            if counterpart is None or _decisive(counterpart) != _decisive(record):
                causes[record.key] = word if counterpart is None else "changed", record_to_wire(record)
    return list(causes.values())


def _decisive(record: Record) -> dict[str, object]:
    return {name: value for name, value in record_to_wire(record).items() if name in DECISIVE_FIELDS}


def _effect(before: str | None, after: str | None) -> str:
    if not before:
        return "gain"
    return "change" if after else "lose"


def _rank(change: AccessChange) -> tuple[object, ...]:
    effect = LOSSES_FIRST.index(_effect(change.before, change.after))
    return effect, -change.pairs, change.kind, change.user_ids, change.resource_ids


def _in_words(ids: Sequence[str], total: int, noun: str, names: Mapping[str, str]) -> str:
    if not ids:
        return counted(total, noun)
    shown = [f'{each} "{name}"' if (name := names.get(each)) and name != each else each for each in ids[:_SHOWN_IDS]]
    more = f" and {total - len(shown):,} more" if total > len(shown) else ""
    return ", ".join(shown) + more


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


_COUNTS = """
SELECT organization_id, kind, SUM(CASE WHEN before = '' THEN pairs ELSE 0 END),
  SUM(CASE WHEN after = '' THEN pairs ELSE 0 END),
  SUM(CASE WHEN before <> '' AND after <> '' THEN pairs ELSE 0 END)
FROM plan_access WHERE plan_id = :plan_id GROUP BY organization_id, kind
ORDER BY SUM(pairs) DESC, organization_id, kind
"""

# The last condition repeats ``_effect``.
_IS_LISTED = """plan_id = :plan_id AND (:organization_id = '' OR organization_id = :organization_id)
  AND (:effect = '' OR :effect = CASE WHEN before = '' THEN 'gain' WHEN after = '' THEN 'lose' ELSE 'change' END)"""
_PAGE = """
SELECT {columns} FROM plan_access WHERE {is_listed} AND ordinal > :after ORDER BY ordinal LIMIT :limit
"""
_LARGEST = """
SELECT {columns} FROM plan_access WHERE plan_id = :plan_id AND ordinal IN (
  SELECT ordinal FROM plan_access WHERE {is_listed}
    AND (:after = 0 OR pairs < (SELECT pairs FROM plan_access WHERE plan_id = :plan_id AND ordinal = :after)
      OR pairs = (SELECT pairs FROM plan_access WHERE plan_id = :plan_id AND ordinal = :after) AND ordinal > :after)
  ORDER BY pairs DESC, ordinal LIMIT :limit)
ORDER BY pairs DESC, ordinal
"""
_COLUMNS = tuple(StoredAccessChange.__dataclass_fields__)
_IDS = {"user_ids", "resource_ids"}
_CHARACTERS_OF_ID = 2_000
"""More than an id has in JSON: 512 bytes, of which each may be escaped."""
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')


def access_counts(connection: Connection, plan_id: str) -> list[AccessCount]:
    """The counts of a plan by organization and kind, the largest first."""
    return [
        AccessCount(organization_id, kind, int(gain), int(lose), int(change))
        for organization_id, kind, gain, lose, change in run(connection, _COUNTS, {"plan_id": plan_id})
    ]


def list_access(
    connection: Connection,
    plan_id: str,
    *,
    after: int = 0,
    limit: int = 100,
    organization_id: str = "",
    effect: str = "",
    ordinals: Sequence[int] = (),
    first_ids: int = 0,
    largest_first: bool = False,
) -> list[StoredAccessChange]:
    """The next rows of a plan after the ordinal ``after``, of one organization and effect, and of these ordinals, if
    they are set.

    ``largest_first``: in descending order of pairs, after the row with that ordinal. ``first_ids``: only so many users
    and resources of each row are read. 0: all.
    """
    parameters = {"plan_id": plan_id, "after": after, "limit": limit, "organization_id": organization_id}
    columns = _COLUMNS
    if first_ids:
        columns = tuple(
            f"substr({name}, 1, {first_ids * _CHARACTERS_OF_ID}) AS {name}" if name in _IDS else name
            for name in _COLUMNS
        )
    parameters |= {"effect": effect, "ordinals": json_list(ordinals)}
    is_listed = f"{_IS_LISTED} AND ordinal IN (@numbers(ordinals))" if ordinals else _IS_LISTED
    query = _LARGEST if largest_first else _PAGE
    rows = run(connection, query, parameters, columns=", ".join(columns), is_listed=is_listed)
    return [parsed_row(row, first_ids) for row in rows.mappings()]


def parsed_row(row: RowMapping, first_ids: int) -> StoredAccessChange:
    """The change in a row of ``plan_access``, with all of its ids if ``first_ids`` is 0."""
    values: dict[str, Any] = {**row, "names": json.loads(row["names"])}
    for name in _IDS:
        values[name] = _first(row[name], first_ids) if first_ids else json.loads(row[name])
    return StoredAccessChange(**values)


def _first(beginning: str, number: int) -> list[str]:
    """The first texts of a JSON list of which only the beginning was read."""
    return [json.loads(match[0]) for match in islice(_TEXT.finditer(beginning), number)]


_IDS_OF_ROW = """
SELECT l.key, l.value FROM plan_access p CROSS JOIN @numbered(p.{column}) AS l
WHERE p.plan_id = :plan_id AND p.ordinal = :ordinal AND l.key > :after ORDER BY l.key LIMIT :limit
"""


def access_ids(
    connection: Connection, plan_id: str, ordinal: int, column: str, *, after: int = -1, limit: int = 100
) -> list[tuple[int, str]]:
    """Position and id of the next users or resources of a row (``user_ids`` or ``resource_ids``)."""
    parameters = {"plan_id": plan_id, "ordinal": ordinal, "after": after, "limit": limit}
    return [(int(position), item_id) for position, item_id in run(connection, _IDS_OF_ROW, parameters, column=column)]
