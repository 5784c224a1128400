"""Settles answered calls: writes their effects to the plan, the ledger, failures and the run's counts.

The rules: ``app/sync/ledger/README.md``, "Confirmed and unconfirmed".

``settle`` is part of a transaction. Its number of statements does not depend on the number of items.
"""

# ruff: noqa: S608 - SQL consists of constants of this module; data is in parameters.

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from sqlalchemy import Connection

from app.foundation.database.engine import is_sqlite
from app.foundation.database.statements import json_list, run
from app.sync.ledger.failures import any_failures, forget_failures, note_failures
from app.sync.ledger.items import ItemStatus
from app.sync.ledger.ledger import increment_revision

UNSUPPORTED = "not sent: the backend does not support this operation"
LEFT_BEHIND = "left behind: the backend lacks the operation that deletes it"

SETTLES: dict[str, tuple[str, ...]] = {
    "add_organizations": ("digest",),
    "update_organizations": ("digest",),
    "disable_organizations": ("disabled",),
    "add_folder": ("digest", "parent_id", "access_type"),
    "update_folder": ("digest", "parent_id"),
    "update_folder_access": ("access_type",),
    "add_documents": ("digest", "parent_id"),
    "update_documents": ("digest",),
    "move_documents": ("parent_id",),
    "update_document_access": ("access_type",),
    "add_groups": ("digest",),
    "add_users": ("digest", "access_role"),
    "update_users": ("digest", "access_role"),
    "add_users_to_groups": ("digest",),
}
"""The columns of the ledger that an operation sets. An add sets the other columns to their defaults. If the item
existed already, the update that followed sets its own columns. Deletes remove the row, and the rows of what they cover.
"""

_COMPLETE = frozenset({"add_users", "update_users", "add_users_to_groups", "add_groups"})
"""Operations that set all columns that their items use, so that each of them confirms its item alone."""

_DEFAULTS: Mapping[str, str] = {
    **dict.fromkeys(("digest", "parent_id", "access_type", "access_role"), "''"),
    "disabled": "FALSE",
}
"""Column of the ledger → its default, as an SQL expression."""

_KEY = "kind, organization_id, container_id, item_id"
_AMONG = "p.plan_id = :plan_id AND p.ordinal IN (@numbers(ordinals))"

UNCONFIRMED_VALUES = """'', '', CASE WHEN p.operation = 'update_document_access' THEN '?' ELSE '' END, '', FALSE, FALSE,
    CAST(NULL AS BIGINT)"""
"""The values, from digest on, of an item whose call has no answer. The next plan adds it again, which sends everything
but a document's access type: '?' differs from every type, so that it is sent as well."""

UNCONFIRM_ON_CONFLICT = f"""
    ON CONFLICT (ledger_id, {_KEY}) DO UPDATE
    SET certain = FALSE,
        access_type = CASE WHEN excluded.access_type = '?' THEN '?' ELSE ledger_item.access_type END
"""

_CONFIRMED_BY_THE_LAST = f"""CASE WHEN EXISTS (
        SELECT 1 FROM plan_item o WHERE o.plan_id = :plan_id AND o.action <> 'delete' AND o.status <> 'done'
        AND NOT (o.status = 'skipped' AND o.message = '{UNSUPPORTED}')
        AND o.kind = excluded.kind AND o.organization_id = excluded.organization_id
        AND o.container_id = excluded.container_id AND o.item_id = excluded.item_id
    ) THEN ledger_item.certain ELSE TRUE END"""
"""An item with several operations is confirmed by the last of them, if none of them failed."""


@dataclass(kw_only=True)
class Settlement:
    """The items that a transaction settles, by outcome. Items are ordinals of the plan."""

    ledger_id: int
    plan_id: str
    done: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The operation that succeeded → items. An item may have several."""
    deleted: list[int] = field(default_factory=list)
    """Deleted, with everything that they cover."""
    unsupported: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The operation that the backend lacks → items, which the ledger stores as done and the plan as skipped."""
    to_send_when_supported: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The operation that the backend lacks → items."""
    without_roles: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The operation → items that are done, but were sent without role or access type."""
    left_behind: list[int] = field(default_factory=list)
    """Cannot be deleted. Removed from the ledger, with everything that they cover."""
    failed: dict[int, str] = field(default_factory=dict)
    unknown: dict[int, str] = field(default_factory=dict)
    """Failed without a usable answer: the backend may have done it."""
    unconfirmed: list[int] = field(default_factory=list)
    """Deletes with an unknown outcome that are sent again in this run."""
    lost: dict[int, str] = field(default_factory=dict)
    """Failed because the backend does not have them any more: the next plan adds them."""
    skipped: dict[int, str] = field(default_factory=dict)
    """Not sent, with the reason. The ledger does not change."""
    added_again: list[int] = field(default_factory=list)
    """Done by an add because they were missing: what the ledger has below them becomes unconfirmed."""
    removed_members: list[int] = field(default_factory=list)
    """Deleted organization users: the backend has removed their other entries in the organization too."""

    @property
    def changes_ledger(self) -> bool:
        """Whether its items change rows of the ledger."""
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
"""The columns of the ledger that find the contents of a container, the container's kind, and the kinds in it."""


def settle(connection: Connection, settlement: Settlement, *, now_ms: int, random: Random) -> None:
    """Writes the effects of a settlement."""
    writer = _SettlementWriter(connection, settlement)
    done = list(dict.fromkeys(ordinal for ordinals in settlement.done.values() for ordinal in ordinals))
    unsupported = [ordinal for ordinals in settlement.unsupported.values() for ordinal in ordinals]
    failed = settlement.failed | settlement.unknown | settlement.lost
    # The plan first: whether an item is confirmed depends on the status of its other operations.
    writer.mark(done, ItemStatus.DONE, "")
    writer.mark(unsupported, ItemStatus.SKIPPED, UNSUPPORTED)
    writer.mark(settlement.deleted, ItemStatus.DONE, "", covered=ItemStatus.DONE)
    writer.mark(settlement.left_behind, ItemStatus.SKIPPED, LEFT_BEHIND, covered=ItemStatus.SKIPPED)
    writer.mark_each(failed, ItemStatus.FAILED)
    writer.mark_each(settlement.skipped, ItemStatus.SKIPPED)
    for by_operation in (settlement.done, settlement.unsupported):
        for operation, ordinals in by_operation.items():
            writer.accept(operation, ordinals)
    for by_operation, without_roles in ((settlement.to_send_when_supported, False), (settlement.without_roles, True)):
        for operation, ordinals in by_operation.items():
            writer.note_unsupported(operation, ordinals, without_roles=without_roles)
    writer.unconfirm_below(settlement.added_again)
    writer.unconfirm_entries(settlement.removed_members)
    writer.remove(settlement.deleted + list(settlement.lost), note_deleted=True)
    writer.remove(settlement.left_behind, note_deleted=False)
    writer.unconfirm([*settlement.unknown, *settlement.unconfirmed])
    succeeded = done + settlement.deleted
    if succeeded and any_failures(connection, settlement.ledger_id):
        forget_failures(connection, ledger_id=settlement.ledger_id, plan_id=settlement.plan_id, ordinals=succeeded)
    note_failures(
        connection,
        ledger_id=settlement.ledger_id,
        plan_id=settlement.plan_id,
        messages=failed,
        now_ms=now_ms,
        random=random,
    )
    if settlement.changes_ledger:
        increment_revision(connection, settlement.ledger_id)


def _selected(name: str, operation: str) -> str:
    """The value of a column of the ledger after the operation."""
    if name not in SETTLES[operation]:
        return _DEFAULTS[name]
    if name == "access_type" and operation == "update_document_access":
        return "CASE WHEN p.access_type = '' THEN p.in_force ELSE p.access_type END"
    return f"p.{name}"


class _SettlementWriter:
    """Writes effects, each for a set of ordinals."""

    def __init__(self, connection: Connection, settlement: Settlement) -> None:
        self._connection = connection
        self._base = {"ledger_id": settlement.ledger_id, "plan_id": settlement.plan_id}

    def accept(self, operation: str, ordinals: Sequence[int]) -> None:
        """Stores what the operation set. An add sets all columns."""
        adds = operation.startswith("add_")
        values = ", ".join(_selected(name, operation) for name in _DEFAULTS)
        changed = ", ".join(f"{name} = excluded.{name}" for name in (_DEFAULTS if adds else SETTLES[operation]))
        of_several = operation not in _COMPLETE
        # An update of an item that the ledger lacks followed an add that found it: its other columns are unknown.
        known = "TRUE" if adds or not of_several else "FALSE"
        self._run(
            f"""
            INSERT INTO ledger_item (ledger_id, {_KEY}, digest, parent_id, access_type, access_role, disabled, certain,
                                     gone_at)
            SELECT CAST(:ledger_id AS INTEGER), p.kind, p.organization_id, p.container_id, p.item_id, {values},
                   {known}, CAST(NULL AS BIGINT)
            FROM plan_item p WHERE {_AMONG}
            ON CONFLICT (ledger_id, {_KEY}) DO UPDATE
            SET {changed}, certain = {_CONFIRMED_BY_THE_LAST if of_several else "TRUE"}, gone_at = NULL
            """,
            ordinals,
        )

    def remove(self, ordinals: Sequence[int], *, note_deleted: bool) -> None:
        """Removes items, and what they cover, from the ledger. ``note_deleted``: until a verify has checked them."""
        for keys in self._keys():
            if note_deleted:
                self._run(
                    f"""
                    INSERT INTO deleted_item (ledger_id, {_KEY})
                    SELECT ledger_id, {_KEY} FROM ledger_item WHERE (ledger_id, {_KEY}) IN ({keys})
                    ON CONFLICT DO NOTHING
                    """,
                    ordinals,
                )
            self._run(f"DELETE FROM ledger_item WHERE (ledger_id, {_KEY}) IN ({keys})", ordinals)

    def note_unsupported(self, operation: str, ordinals: Sequence[int], *, without_roles: bool) -> None:
        """Stores items to send once the backend supports the operation. ``without_roles``: they were sent, but without
        roles and access types."""
        # `plain` is the column's old name.
        self._run(
            f"""
            INSERT INTO untold_item (ledger_id, operation, plain, {_KEY})
            SELECT CAST(:ledger_id AS INTEGER), CAST(:operation AS TEXT), {"TRUE" if without_roles else "FALSE"},
                   p.kind, p.organization_id, p.container_id, p.item_id
            FROM plan_item p WHERE {_AMONG}
            ON CONFLICT DO NOTHING
            """,
            ordinals,
            operation=operation,
        )

    def unconfirm(self, ordinals: Sequence[int]) -> None:
        """Marks items as unconfirmed. An add may have succeeded, so it gets a row."""
        self._run(
            f"""
            INSERT INTO ledger_item (ledger_id, {_KEY}, digest, parent_id, access_type, access_role, disabled, certain,
                                     gone_at)
            SELECT CAST(:ledger_id AS INTEGER), p.kind, p.organization_id, p.container_id, p.item_id,
                   {UNCONFIRMED_VALUES}
            FROM plan_item p WHERE {_AMONG} AND p.action <> 'delete'
            {UNCONFIRM_ON_CONFLICT}
            """,
            ordinals,
        )
        for keys in self._keys():
            self._run(f"UPDATE ledger_item SET certain = FALSE WHERE (ledger_id, {_KEY}) IN ({keys})", ordinals)

    def unconfirm_below(self, ordinals: Sequence[int]) -> None:
        """Marks the contents of these containers as unconfirmed: the backend may have lost them too."""
        for columns, container, kinds in _BELOW:
            below = " UNION ".join(f"SELECT '{kind}' AS kind" for kind in kinds)
            self._run(
                f"""
                UPDATE ledger_item SET certain = FALSE WHERE ({columns}) IN (
                    SELECT CAST(:ledger_id AS INTEGER), k.kind, p.organization_id
                        {", p.item_id" if container != "organization" else ""}
                    FROM plan_item p CROSS JOIN ({below}) k WHERE {_AMONG} AND p.kind = '{container}'
                )
                """,
                ordinals,
            )

    def unconfirm_entries(self, ordinals: Sequence[int]) -> None:
        """Marks the entries of removed organization users on folders, documents and groups as unconfirmed."""
        self._run(
            f"""
            UPDATE ledger_item SET certain = FALSE
            WHERE (ledger_id, kind, item_id, organization_id) IN (
                SELECT CAST(:ledger_id AS INTEGER), k.kind, p.item_id, p.organization_id
                FROM plan_item p
                CROSS JOIN (SELECT 'folderUser' AS kind UNION SELECT 'documentUser' UNION SELECT 'groupMember') k
                WHERE {_AMONG}
            )
            """,
            ordinals,
        )

    def mark(
        self, ordinals: Sequence[int], status: ItemStatus, message: str, *, covered: ItemStatus | None = None
    ) -> None:
        """Sets the status of plan items, and with ``covered`` that of the items that they cover."""
        values = {"status": status.value, "message": message}
        self._run(f"UPDATE plan_item AS p SET status = :status, message = :message WHERE {_AMONG}", ordinals, **values)
        if covered is not None:
            self._run(
                """
                UPDATE plan_item SET status = :status, message = :message
                WHERE plan_id = :plan_id AND status = 'planned' AND covered_by IN (@numbers(ordinals))
                """,
                ordinals,
                **(values | {"status": covered.value}),
            )

    def mark_each(self, messages: Mapping[int, str], status: ItemStatus) -> None:
        """Sets the status of items with a message each. The items that they cover are skipped."""
        shared: dict[str, list[int]] = defaultdict(list)
        for ordinal, message in messages.items():
            shared[message].append(ordinal)
        for message, ordinals in shared.items():
            self.mark(ordinals, status, message, covered=ItemStatus.SKIPPED)

    def _keys(self) -> tuple[str, str]:
        """Queries for the keys of the items and of what they cover. A union of both would use no index."""
        key = "CAST(:ledger_id AS INTEGER), p.kind, p.organization_id, p.container_id, p.item_id"
        covered = "p.plan_id = :plan_id AND p.covered_by IN (@numbers(ordinals))"
        return (f"SELECT {key} FROM plan_item p WHERE {_AMONG}", f"SELECT {key} FROM plan_item p WHERE {covered}")

    def _run(self, sql: str, ordinals: Sequence[int], **parameters: object) -> None:
        if ordinals:
            values = self._base | {"ordinals": json_list(ordinals)} | parameters
            run(self._connection, sql, values)


def store_counts(connection: Connection, run_id: str, counts: Mapping[str, object], calls: int) -> bool:
    """Stores the counts and the number of write calls. Returns whether the run is to be cancelled."""
    cancelled = run(
        connection,
        "UPDATE run SET counts = :counts, calls = :calls WHERE run_id = :run_id RETURNING cancel_requested",
        {"counts": json.dumps(counts), "calls": calls, "run_id": run_id},
    ).scalar()
    return bool(cancelled)


def is_still(connection: Connection, run_id: str, status: Literal["verifying", "applying"]) -> bool:
    """Whether the run still has this status. Locks its row until this transaction ends.

    A process that lost the lock unnoticed must not write what it sent or read: another process has ended its run.
    """
    columns, lock = "1", ""
    if not is_sqlite(connection):
        # A process that is frozen in the transaction must not block the process that takes over.
        columns, lock = "set_config('idle_in_transaction_session_timeout', '10s', TRUE)", "FOR UPDATE"
    rows = run(
        connection,
        f"SELECT {columns} FROM run WHERE run_id = :run_id AND status = :status {lock}",
        {"run_id": run_id, "status": status},
    )
    return rows.first() is not None


def cancel_unsent(connection: Connection, plan_id: str, message: str) -> int:
    """Cancels the items that were not sent, and returns their number."""
    return run(
        connection,
        """
        UPDATE plan_item SET status = 'cancelled', message = :message
        WHERE plan_id = :plan_id AND status = 'planned'
        """,
        {"plan_id": plan_id, "message": message},
    ).rowcount
