"""Reads the changes of access that a dry run stored with its plan.

``plan_access`` has one row for the same change of access of a set of users to a set of resources.
``app.sync.plan.access_impact`` writes it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection, RowMapping

from app.foundation.database.statements import json_list, run
from app.foundation.text import counted

Effect = Literal["gain", "lose", "change"]

EFFECTS: tuple[Effect, ...] = ("gain", "lose", "change")
LOSSES_FIRST: tuple[Effect, ...] = ("lose", "gain", "change")
"""The order in which lists and pages show them."""

_SHOWN_IDS = 3
"""The users and the resources of a row that its words contain."""


class AccessCause(NamedTuple):
    """The change of a record that changes access."""

    change: str
    """``added``, ``changed`` or ``removed``."""
    record: Mapping[str, object]
    """As in ``record_to_wire``."""


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
    """``users`` and ``resources``: id → name, of the first ones. ``causes``: those of the property."""

    @property
    def effect(self) -> Effect:
        return effect_of(self.before, self.after)

    @property
    def causes(self) -> Sequence[AccessCause]:
        """The changes of records that change the access of the first user to the first resource. Empty if they are not
        known."""
        return [AccessCause(*cause) for cause in self.names.get("causes", ())]

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


def effect_of(before: str | None, after: str | None) -> Effect:
    """The effect of a change from one role to another. None or empty: no access."""
    if not before:
        return "gain"
    return "change" if after else "lose"


def _in_words(ids: Sequence[str], total: int, noun: str, names: Mapping[str, str]) -> str:
    if not ids:
        return counted(total, noun)
    shown = [f'{each} "{name}"' if (name := names.get(each)) and name != each else each for each in ids[:_SHOWN_IDS]]
    more = f" and {total - len(shown):,} more" if total > len(shown) else ""
    return ", ".join(shown) + more


_COUNTS = """
SELECT organization_id, kind, SUM(CASE WHEN before = '' THEN pairs ELSE 0 END),
  SUM(CASE WHEN after = '' THEN pairs ELSE 0 END),
  SUM(CASE WHEN before <> '' AND after <> '' THEN pairs ELSE 0 END)
FROM plan_access WHERE plan_id = :plan_id GROUP BY organization_id, kind
ORDER BY SUM(pairs) DESC, organization_id, kind
"""

# The last condition repeats ``effect_of``.
_IS_LISTED = """plan_id = :plan_id AND (:organization_id = '' OR organization_id = :organization_id)
  AND (:effect = '' OR :effect = CASE WHEN before = '' THEN 'gain' WHEN after = '' THEN 'lose' ELSE 'change' END)"""
_PAGE = """
SELECT {columns} FROM plan_access WHERE {is_listed} AND ordinal > :after ORDER BY ordinal LIMIT :limit
"""
_COUNT = "SELECT COUNT(*) FROM plan_access WHERE {is_listed}"
_LARGEST = """
SELECT {columns} FROM plan_access WHERE plan_id = :plan_id AND ordinal IN (
  SELECT ordinal FROM plan_access WHERE {is_listed}
    AND (:after = 0 OR pairs < (SELECT pairs FROM plan_access WHERE plan_id = :plan_id AND ordinal = :after)
      OR pairs = (SELECT pairs FROM plan_access WHERE plan_id = :plan_id AND ordinal = :after) AND ordinal > :after)
  ORDER BY pairs DESC, ordinal LIMIT :limit)
ORDER BY pairs DESC, ordinal
"""
ACCESS_COLUMNS = tuple(StoredAccessChange.__dataclass_fields__)
"""The columns of ``plan_access``, except that of the plan."""
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
    columns = ACCESS_COLUMNS
    if first_ids:
        columns = tuple(
            f"substr({name}, 1, {first_ids * _CHARACTERS_OF_ID}) AS {name}" if name in _IDS else name
            for name in ACCESS_COLUMNS
        )
    parameters |= {"effect": effect, "ordinals": json_list(ordinals)}
    is_listed = f"{_IS_LISTED} AND ordinal IN (@numbers(ordinals))" if ordinals else _IS_LISTED
    query = _LARGEST if largest_first else _PAGE
    rows = run(connection, query, parameters, columns=", ".join(columns), is_listed=is_listed)
    return [parsed_row(row, first_ids) for row in rows.mappings()]


def count_access(connection: Connection, plan_id: str, organization: str, effect: str) -> int:
    """The number of rows of a plan, of one organization and effect if they are set."""
    parameters = {"plan_id": plan_id, "organization_id": organization, "effect": effect}
    return int(run(connection, _COUNT, parameters, is_listed=_IS_LISTED).scalar_one())


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
