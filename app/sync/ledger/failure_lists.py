"""Lists and counts the failed items, for the console, notifications and metrics."""

# ruff: noqa: S608 - SQL consists of constants of this module; data is in parameters.

from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row

from app.foundation.database.statements import run
from app.sync.ledger.failures import message_digest
from app.sync.ledger.items import ITEM_KINDS, ItemKey


class FailureKey(NamedTuple):
    """The key of a failure: an item, and whether its delete failed."""

    kind: str
    organization_id: str
    container_id: str
    item_id: str
    deleting: bool

    @property
    def item(self) -> ItemKey:
        return ItemKey(*self[:-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An item that failed. ``retry_at`` is epoch milliseconds."""

    kind: str
    organization_id: str
    container_id: str
    item_id: str
    deleting: bool
    failures: int
    retry_at: int
    parked: bool
    message: str

    @property
    def key(self) -> FailureKey:
        return FailureKey(self.kind, self.organization_id, self.container_id, self.item_id, self.deleting)


@dataclass(frozen=True, slots=True)
class FailureCount:
    """The number of items of one kind that wait for a retry, or are parked."""

    kind: str
    parked: bool
    items: int
    since: int | None
    """When the first of them failed first, in epoch milliseconds. None if unknown."""


_NO_LIMIT = 1 << 62


def _first(columns: str, parked: str = ":parked") -> str:
    """A query for the first ``limit`` failures, parked or not. It reads a range of the index for each kind: with a list
    of kinds, PostgreSQL would read all of them."""
    ranges = (
        f"SELECT {columns} FROM item_failure f @by(ix_item_failure_listed)"
        f" WHERE f.ledger_id = :ledger_id AND f.parked = {parked} AND f.kind = '{kind}'"
        for kind in ITEM_KINDS
    )
    return f"{' UNION ALL '.join(ranges)} LIMIT :most"


_SHOWN = ", ".join(f"f.{name}" for name in Failure.__dataclass_fields__)

_COUNTED = f"""
SELECT kind, COUNT(*) AS items, MIN(failing_since) AS since FROM ({_first("f.kind, f.failing_since")}) AS failed
GROUP BY kind ORDER BY kind
"""

_WORST = f"""
SELECT * FROM ({_first(_SHOWN)}) AS failed
ORDER BY failures DESC, kind, organization_id, container_id, item_id, deleting LIMIT 1
"""


def count_failures(connection: Connection, ledger_id: int, *, limit: int | None = None) -> list[FailureCount]:
    """The number of failed items of each kind. Counts at most ``limit`` that wait, and ``limit`` that are parked."""
    counts = [
        FailureCount(row.kind, parked, row.items, row.since)
        for parked in (False, True)
        for row in run(connection, _COUNTED, _parameters(ledger_id, parked=parked, limit=limit))
    ]
    return sorted(counts, key=lambda group: (group.kind, group.parked))


def _parameters(ledger_id: int, *, parked: bool, limit: int | None) -> dict[str, object]:
    return {"ledger_id": ledger_id, "parked": parked, "most": _NO_LIMIT if limit is None else limit}


_OF_ITEM = f"""
SELECT {_SHOWN} FROM item_failure f
WHERE f.ledger_id = :ledger_id AND f.kind = :kind AND f.organization_id = :organization_id
  AND f.container_id = :container_id AND f.item_id = :item_id
ORDER BY f.deleting
"""

_NUMBER = f"SELECT COUNT(*) FROM ({_first('f.kind')}) AS counted"


def number_of_failures(connection: Connection, ledger_id: int, *, parked: bool, limit: int) -> int:
    """The number of items that are parked, or that wait for a retry, counted up to ``limit``."""
    return int(run(connection, _NUMBER, _parameters(ledger_id, parked=parked, limit=limit)).scalar_one())


def worst_failure(connection: Connection, ledger_id: int, *, parked: bool, limit: int | None = None) -> Failure | None:
    """The item that failed most often, of the first ``limit`` that are parked, or that wait."""
    row = run(connection, _WORST, _parameters(ledger_id, parked=parked, limit=limit)).first()
    return None if row is None else _failure(row)


def _failure(row: Row[Any]) -> Failure:
    return Failure(**{**row._asdict(), "deleting": bool(row.deleting), "parked": bool(row.parked)})


def failures_of(connection: Connection, ledger_id: int, key: ItemKey) -> list[Failure]:
    """The failures of one item: writing it, deleting it, or both."""
    return [_failure(row) for row in run(connection, _OF_ITEM, {"ledger_id": ledger_id, **key._asdict()})]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """What failures have in common. None for any value."""

    kind: str | None = None
    organization_id: str | None = None
    message: str | None = None


MAX_GROUPED = 10_000
"""The maximum of failures that are grouped."""


@dataclass(frozen=True, slots=True)
class SameFailures:
    """The failures with one message."""

    message: str
    organization_id: str | None
    """None: they are in several."""
    kinds: dict[str, int]
    """Kind → number of items."""
    parked: int
    """The number of items that are parked."""
    since: int | None
    """When the first of them failed first, in epoch milliseconds. None if unknown."""


_GROUPS = f"""
SELECT message, MIN(organization_id) AS first, MAX(organization_id) AS last, MIN(failing_since) AS since,
  COUNT(CASE WHEN parked THEN 1 END) AS parked,
  {", ".join(f"COUNT(CASE WHEN kind = '{kind}' THEN 1 END) AS of_{kind.lower()}" for kind in ITEM_KINDS)}
FROM ({{failures}}) AS failed
GROUP BY message ORDER BY COUNT(*) DESC, message LIMIT :limit
"""


_GROUPED = "f.kind, f.organization_id, f.message, f.failing_since, f.parked"
_IN_ONE_STATE = _first(_GROUPED)
_IN_BOTH_STATES = (
    f"SELECT * FROM ({_IN_ONE_STATE}) AS one UNION ALL SELECT * FROM ({_first(_GROUPED, ':other')}) AS two"
)


def failure_groups(
    connection: Connection, ledger_id: int, *, parked: bool | None, limit: int, most: int = MAX_GROUPED
) -> list[SameFailures]:
    """Groups of failures by message, the largest first. Groups the first ``most`` failures that are parked, and those
    that are not. ``parked``: only these; None: both."""
    parameters = {**_parameters(ledger_id, parked=bool(parked), limit=most), "limit": limit, "other": not parked}
    failures = _IN_BOTH_STATES if parked is None else _IN_ONE_STATE
    return [
        SameFailures(
            row.message,
            row.first if row.first == row.last else None,
            {kind: items for kind in ITEM_KINDS if (items := getattr(row, f"of_{kind.lower()}"))},
            row.parked,
            row.since,
        )
        for row in run(connection, _GROUPS, parameters, failures=failures)
    ]


_WITHIN = FailureKey._fields[1:]
"""The order of failures of one kind."""

_PAGE = f"""
SELECT {_SHOWN} FROM item_failure f @by({{index}})
WHERE f.ledger_id = :ledger_id AND f.parked = :parked AND f.kind = :kind {{alike}} {{behind}}
ORDER BY {", ".join(f"f.{name}" for name in _WITHIN)} LIMIT :limit
"""


def failures_page(
    connection: Connection,
    ledger_id: int,
    *,
    parked: bool,
    like: FailureGroup | None = None,
    after: FailureKey | None = None,
    limit: int = 50,
) -> list[Failure]:
    """A page of failures, parked or waiting, ordered by key: kind, organization, container, item and ``deleting``.

    ``like``: of one group. ``after``: the key after which the page begins. Each kind is a range of an index, of which
    no more rows are read than returned.
    """
    like = like or FailureGroup()
    parameters: dict[str, object] = {"ledger_id": ledger_id, "parked": parked}
    alike = ""
    if like.message is not None:
        alike += " AND f.message_digest = :message_digest AND f.message = :message"
        parameters |= {"message": like.message, "message_digest": message_digest(like.message)}
    if like.organization_id is not None:
        alike += " AND f.organization_id = :organization_id"
        parameters["organization_id"] = like.organization_id
    failures: list[Failure] = []
    for kind in sorted(ITEM_KINDS) if like.kind is None else [like.kind]:
        if after is not None and kind < after.kind:
            continue
        behind = "" if after is None or kind > after.kind else _after(after, like, parameters)
        page = run(
            connection,
            _PAGE,
            {**parameters, "kind": kind, "limit": limit - len(failures)},
            index="ix_item_failure_listed" if like.message is None else "ix_item_failure_alike",
            alike=alike,
            behind=behind,
        )
        failures += [_failure(row) for row in page]
        if len(failures) >= limit:
            break
    return failures


def _after(key: FailureKey, like: FailureGroup, parameters: dict[str, object]) -> str:
    """The condition on the failures of the kind of ``key`` that follow it. Adds its values to ``parameters``."""
    # In an organization, the range of the index begins with the container.
    columns = _WITHIN if like.organization_id is None else _WITHIN[1:]
    parameters |= {f"last_{name}": getattr(key, name) for name in _WITHIN}
    return f"AND ({', '.join(f'f.{name}' for name in columns)}) > ({', '.join(f':last_{name}' for name in columns)})"
