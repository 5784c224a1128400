# ruff: noqa: S608 - SQL is put together from constants of this module alone; data travels in parameters.
"""Settles answered calls: writes their effects to the plan, the ledger, failures and the run's counts.

The rules: ``app/sync/ledger/README.md``, "Confirmed and unconfirmed".

``settle`` is part of one transaction. Its number of statements depends on the operations and outcomes that occur, never
on the number of items.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from sqlalchemy import Connection, Engine

from app.foundation.database.engine import is_sqlite, reading
from app.foundation.database.statements import json_list, run
from app.sync.ledger.failures import any_failures, forget_failures, note_failures
from app.sync.ledger.unsupported import remember_unsupported

Counts = dict[str, dict[str, dict[str, int]]]
"""kind → action → {planned, done, failed, held, ...}"""

_NOTHING_TOLD: Mapping[str, str] = {
    "digest": "''",
    "parent_id": "''",
    "access_type": "''",
    "access_role": "''",
    "disabled": "FALSE",
}

_KEY = "kind, organization_id, container_id, item_id"


DOUBTFUL = """'', '', CASE WHEN p.operation = 'update_document_access' THEN '?' ELSE '' END, '', FALSE, FALSE,
    CAST(NULL AS BIGINT)"""
"""The values, from digest on, of an item about which a call was sent and never answered. The next plan adds it again,
which tells everything but a document's access type: that becomes one that differs from whatever it should be."""

DOUBT_ON_CONFLICT = f"""
    ON CONFLICT (ledger_id, {_KEY}) DO UPDATE
    SET certain = FALSE,
        access_type = CASE WHEN excluded.access_type = '?' THEN '?' ELSE ledger_item.access_type END
"""

UNSUPPORTED = "the backend lacks the operation that would tell it"
LEFT_BEHIND = "left behind: the backend lacks the operation that deletes it"

_CONFIRMED_WITH_THE_LAST = f"""CASE WHEN EXISTS (
        SELECT 1 FROM plan_item o WHERE o.plan_id = :plan_id AND o.action <> 'delete' AND o.status <> 'done'
        AND NOT (o.status = 'skipped' AND o.message = '{UNSUPPORTED}')
        AND o.kind = excluded.kind AND o.organization_id = excluded.organization_id
        AND o.container_id = excluded.container_id AND o.item_id = excluded.item_id
    ) THEN ledger_item.certain ELSE TRUE END"""
"""An item with several operations is confirmed by the last of them, if none of them failed."""


@dataclass(kw_only=True)
class Outcomes:
    """What is to be taken in, each item by its ordinal in the plan."""

    ledger_id: int
    plan_id: str
    tells: Mapping[str, tuple[str, ...]]
    """Operation → the columns of the ledger that hold what it tells the backend."""
    done: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By the operation that succeeded for them; an ordinal may stand under several."""
    deleted: list[int] = field(default_factory=list)
    """Deleted, with everything that their calls cover."""
    unsupported: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By operation: cannot be told for want of it; the ledger takes them as told, the plan says skipped."""
    owed: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By operation: of those unsupported or left behind, what the backend would be told if it had the operation."""
    without_roles: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By operation: of those done, what was told without its role or access type."""
    left_behind: list[int] = field(default_factory=list)
    """Cannot be deleted for want of an operation: no longer ours, with what their calls cover."""
    failed: dict[int, str] = field(default_factory=dict)
    unknown: dict[int, str] = field(default_factory=dict)
    """Failed, and nobody knows whether the backend did it."""
    unconfirmed: list[int] = field(default_factory=list)
    """Deletes whose outcome nobody knows and that are still to be sent: the ledger must not rely on them."""
    lost: dict[int, str] = field(default_factory=dict)
    """Failed, because the backend does not hold them any more: the next plan adds them."""
    skipped: dict[int, str] = field(default_factory=dict)
    added_again: list[int] = field(default_factory=list)
    """Of those done: what stands below them in the backend has become unconfirmed."""
    removed_members: list[int] = field(default_factory=list)
    """Of those deleted: organization users, whose other entries in the organization go with them."""

    @property
    def changes_ledger(self) -> bool:
        return any(
            (self.done, self.deleted, self.unsupported, self.left_behind, self.unknown, self.unconfirmed, self.lost)
        )


_BELOW = (
    ("ledger_id, kind, organization_id, container_id", "document", ("documentUser",)),
    ("ledger_id, kind, organization_id, container_id", "folder", ("folderUser",)),
    ("ledger_id, kind, organization_id, parent_id", "folder", ("folder", "document")),
    (
        "ledger_id, kind, organization_id",
        "organization",
        ("folder", "document", "group", "organizationUser", "folderUser", "documentUser", "groupMember"),
    ),
)
"""By which columns of the ledger what is in a container is found: the container's kind and the kinds in it."""


def settle(connection: Connection, outcomes: Outcomes, *, now_ms: int, random: Random) -> None:
    """Takes answers in: the plan's items, the ledger with its revision, and the failures."""
    step = _Step(connection, outcomes)
    told = list(dict.fromkeys(ordinal for ordinals in outcomes.done.values() for ordinal in ordinals))
    unsupported = [ordinal for ordinals in outcomes.unsupported.values() for ordinal in ordinals]
    failed = outcomes.failed | outcomes.unknown | outcomes.lost
    # The plan first: whether a thing is confirmed depends on which of its operations are still to come.
    step.mark(told, "done", "")
    step.mark(unsupported, "skipped", UNSUPPORTED)
    step.mark(outcomes.deleted, "done", "", covered="done")
    step.mark(outcomes.left_behind, "skipped", LEFT_BEHIND, covered="skipped")
    step.mark_each(failed, "failed")
    step.mark_each(outcomes.skipped, "skipped")
    for by_operation in (outcomes.done, outcomes.unsupported):
        for operation, ordinals in by_operation.items():
            step.tell(operation, ordinals)
    for by_operation, without_roles in ((outcomes.owed, False), (outcomes.without_roles, True)):
        for operation, ordinals in by_operation.items():
            remember_unsupported(
                connection,
                ledger_id=outcomes.ledger_id,
                plan_id=outcomes.plan_id,
                operation=operation,
                ordinals=ordinals,
                without_roles=without_roles,
            )
    step.unconfirm_below(outcomes.added_again)
    step.unconfirm_members_entries(outcomes.removed_members)
    step.drop(outcomes.deleted + list(outcomes.lost), said_to_be_deleted=True)
    step.drop(outcomes.left_behind, said_to_be_deleted=False)
    step.unconfirm([*outcomes.unknown, *outcomes.unconfirmed])
    succeeded = told + outcomes.deleted
    if succeeded and any_failures(connection, outcomes.ledger_id):
        forget_failures(connection, ledger_id=outcomes.ledger_id, plan_id=outcomes.plan_id, ordinals=succeeded)
    note_failures(
        connection,
        ledger_id=outcomes.ledger_id,
        plan_id=outcomes.plan_id,
        messages=failed,
        now_ms=now_ms,
        random=random,
    )
    if outcomes.changes_ledger:
        run(
            connection,
            "UPDATE ledger SET ledger_revision = ledger_revision + 1 WHERE ledger_id = :ledger_id",
            {"ledger_id": outcomes.ledger_id},
        )


class _Step:
    """The single effects, each one statement over a set of ordinals."""

    def __init__(self, connection: Connection, outcomes: Outcomes) -> None:
        self._connection = connection
        self._tells = outcomes.tells
        self._base = {"ledger_id": outcomes.ledger_id, "plan_id": outcomes.plan_id}
        self._among = "p.plan_id = :plan_id AND p.ordinal IN (@numbers(ordinals))"

    def tell(self, operation: str, ordinals: Sequence[int]) -> None:
        """The backend accepted what the operation tells. What was added is new in all respects."""
        told = self._tells[operation]
        adds = operation.startswith("add_")
        held = {"access_type": "CASE WHEN p.access_type = '' THEN p.in_force ELSE p.access_type END"}
        given = held if operation == "update_document_access" else {}
        values = ", ".join(
            given.get(name, f"p.{name}") if name in told else nothing for name, nothing in _NOTHING_TOLD.items()
        )
        changed = ", ".join(f"{name} = excluded.{name}" for name in (_NOTHING_TOLD if adds else told))
        of_several = operation not in {"add_users", "update_users", "add_users_to_groups", "add_groups"}
        # What was not known here and is updated all the same was met by an add: the rest of it is not known either.
        known = "TRUE" if adds or not of_several else "FALSE"
        self._run(
            f"""
            INSERT INTO ledger_item (ledger_id, {_KEY}, digest, parent_id, access_type, access_role, disabled, certain,
                                     gone_at)
            SELECT CAST(:ledger_id AS INTEGER), p.kind, p.organization_id, p.container_id, p.item_id, {values},
                   {known}, CAST(NULL AS BIGINT)
            FROM plan_item p WHERE {self._among}
            ON CONFLICT (ledger_id, {_KEY}) DO UPDATE
            SET {changed}, certain = {_CONFIRMED_WITH_THE_LAST if of_several else "TRUE"}, gone_at = NULL
            """,
            ordinals,
        )

    def drop(self, ordinals: Sequence[int], *, said_to_be_deleted: bool) -> None:
        """They are no longer in the ledger, nor what their calls cover.

        Where the backend says that it does not hold them any more, a verify will look. What is left behind is known to
        be there, and ``app.sync.ledger.unsupported`` remembers it.
        """
        for keys in self._keys():
            if said_to_be_deleted:
                self._run(
                    f"""
                    INSERT INTO deleted_item (ledger_id, {_KEY})
                    SELECT ledger_id, {_KEY} FROM ledger_item WHERE (ledger_id, {_KEY}) IN ({keys})
                    ON CONFLICT DO NOTHING
                    """,
                    ordinals,
                )
            self._run(f"DELETE FROM ledger_item WHERE (ledger_id, {_KEY}) IN ({keys})", ordinals)

    def unconfirm(self, ordinals: Sequence[int]) -> None:
        """Nobody knows what the backend holds. An add may have come through, so it becomes ours to delete."""
        self._run(
            f"""
            INSERT INTO ledger_item (ledger_id, {_KEY}, digest, parent_id, access_type, access_role, disabled, certain,
                                     gone_at)
            SELECT CAST(:ledger_id AS INTEGER), p.kind, p.organization_id, p.container_id, p.item_id, {DOUBTFUL}
            FROM plan_item p WHERE {self._among} AND p.action <> 'delete'
            {DOUBT_ON_CONFLICT}
            """,
            ordinals,
        )
        for keys in self._keys():
            self._run(f"UPDATE ledger_item SET certain = FALSE WHERE (ledger_id, {_KEY}) IN ({keys})", ordinals)

    def unconfirm_below(self, ordinals: Sequence[int]) -> None:
        """The backend had lost them and they were added again: what stood in them may be lost with them."""
        for columns, container, kinds in _BELOW:
            below = " UNION ".join(f"SELECT '{kind}' AS kind" for kind in kinds)
            self._run(
                f"""
                UPDATE ledger_item SET certain = FALSE WHERE ({columns}) IN (
                    SELECT CAST(:ledger_id AS INTEGER), k.kind, p.organization_id
                        {", p.item_id" if container != "organization" else ""}
                    FROM plan_item p CROSS JOIN ({below}) k WHERE {self._among} AND p.kind = '{container}'
                )
                """,
                ordinals,
            )

    def unconfirm_members_entries(self, ordinals: Sequence[int]) -> None:
        """Removing a user from an organization takes their entries on its folders, documents and groups with it."""
        self._run(
            f"""
            UPDATE ledger_item SET certain = FALSE
            WHERE (ledger_id, kind, item_id, organization_id) IN (
                SELECT CAST(:ledger_id AS INTEGER), k.kind, p.item_id, p.organization_id
                FROM plan_item p
                CROSS JOIN (SELECT 'folderUser' AS kind UNION SELECT 'documentUser' UNION SELECT 'groupMember') k
                WHERE {self._among}
            )
            """,
            ordinals,
        )

    def mark(self, ordinals: Sequence[int], status: str, message: str, *, covered: str = "") -> None:
        """The items' status in the plan, and that of what their calls cover."""
        values = {"status": status, "message": message}
        self._run(
            f"UPDATE plan_item AS p SET status = :status, message = :message WHERE {self._among}", ordinals, **values
        )
        if covered:
            self._run(
                """
                UPDATE plan_item SET status = :status, message = :message
                WHERE plan_id = :plan_id AND status = 'planned' AND covered_by IN (@numbers(ordinals))
                """,
                ordinals,
                **(values | {"status": covered}),
            )

    def mark_each(self, messages: Mapping[int, str], status: str) -> None:
        """As ``mark``, every message with the items that share it. What their calls would have covered is skipped."""
        shared: dict[str, list[int]] = defaultdict(list)
        for ordinal, message in messages.items():
            shared[message].append(ordinal)
        for message, ordinals in shared.items():
            self.mark(ordinals, status, message, covered="skipped")

    def _keys(self) -> tuple[str, str]:
        """Queries for the keys of the items and of what their calls cover; a union of both would use no index."""
        key = "CAST(:ledger_id AS INTEGER), p.kind, p.organization_id, p.container_id, p.item_id"
        covered = "p.plan_id = :plan_id AND p.covered_by IN (@numbers(ordinals))"
        return (
            f"SELECT {key} FROM plan_item p WHERE {self._among}",
            f"SELECT {key} FROM plan_item p WHERE {covered}",
        )

    def _run(self, sql: str, ordinals: Sequence[int], **parameters: object) -> None:
        if ordinals:
            values = self._base | {"ordinals": json_list(ordinals)} | parameters
            run(self._connection, sql, values)


def count_items(connection: Connection, plan_id: str) -> Counts:
    """How many items of each kind, action and status the plan has now."""
    counts: Counts = {}
    rows = run(
        connection,
        """
        SELECT kind, action, status, count(*) AS number FROM plan_item
        WHERE plan_id = :plan_id GROUP BY kind, action, status
        """,
        {"plan_id": plan_id},
    )
    for row in rows:
        counts.setdefault(row.kind, {}).setdefault(row.action, {})[row.status] = row.number
    return counts


def read_counts(connection: Connection, plan_id: str) -> Counts:
    """The same as a run keeps it: ``planned`` counts all of them, whatever became of them."""
    return counted_as_planned(count_items(connection, plan_id))


def counted_as_planned(counts: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Counts:
    """Counts of items by status as a run keeps them."""
    return {
        kind: {
            action: {"planned": sum(by_status.values())}
            | {status: number for status, number in by_status.items() if status != "planned"}
            for action, by_status in actions.items()
        }
        for kind, actions in counts.items()
    }


def add_counts(one: Counts, other: Counts) -> Counts:
    """Both together."""
    total: Counts = {}
    for counts in (one, other):
        for kind, actions in counts.items():
            for action, numbers in actions.items():
                sums = total.setdefault(kind, {}).setdefault(action, {})
                for status, number in numbers.items():
                    sums[status] = sums.get(status, 0) + number
    return total


def total(counts: Mapping[str, Mapping[str, Mapping[str, int]]], *statuses: str) -> int:
    """How many items, over all kinds and actions, have one of these statuses; without any, all of them."""
    return sum(
        number
        for actions in counts.values()
        for by_status in actions.values()
        for status, number in by_status.items()
        if not statuses or status in statuses
    )


def store_counts(connection: Connection, run_id: str, counts: Counts, calls: int) -> bool:
    """Keeps the run's counts and its number of write calls so far; whether someone wants the run cancelled."""
    wanted = run(
        connection,
        "UPDATE run SET counts = :counts, calls = :calls WHERE run_id = :run_id RETURNING cancel_requested",
        {"counts": json.dumps(counts), "calls": calls, "run_id": run_id},
    ).scalar()
    return bool(wanted)


def is_still_applying(connection: Connection, run_id: str) -> bool:
    """Whether nobody has ended the run meanwhile, and nobody can before this transaction ends.

    A process that lost its lock without noticing finds out here: whoever took over has ended its run. Then it must not
    write down anything, neither calls, whose numbers are not its own any more, nor answers, which are too old.
    """
    what, lock = "1", ""
    if not is_sqlite(connection):
        # A process that is frozen in the middle must not keep the row from whoever takes over.
        what, lock = "set_config('idle_in_transaction_session_timeout', '10s', TRUE)", "FOR UPDATE"
    found = run(
        connection, f"SELECT {what} FROM run WHERE run_id = :run_id AND status = 'applying' {lock}", {"run_id": run_id}
    )
    return found.first() is not None


def cancel_unsent(connection: Connection, plan_id: str, message: str) -> int:
    """Ends what was not sent any more; how many items."""
    return run(
        connection,
        """
        UPDATE plan_item SET status = 'cancelled', message = :message
        WHERE plan_id = :plan_id AND status = 'planned'
        """,
        {"plan_id": plan_id, "message": message},
    ).rowcount


def phase_totals(engine: Engine, plan_id: str) -> dict[int, int]:
    """How many items of each phase are to be applied, those covered by another's call included."""
    with reading(engine) as connection:
        rows = run(
            connection,
            """
            SELECT phase, count(*) AS number FROM plan_item
            WHERE plan_id = :plan_id AND status = 'planned' GROUP BY phase
            """,
            {"plan_id": plan_id},
        )
        return {row.phase: row.number for row in rows}
