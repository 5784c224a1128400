"""Holds deletes of folders and groups in which other systems have put items, because such a delete includes these.

The rules: ``app/sync/plan/README.md``, "Limits".
"""

# ruff: noqa: S608 - SQL consists of constants of this module; data is in parameters.

import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from sqlalchemy import Connection, Engine, update

from app.client.errors import BackendRefused, CredentialsRefused
from app.foundation.database.engine import reading, writing
from app.foundation.database.statements import json_list, run
from app.foundation.text import counted
from app.sync.apply.backend_reads import BackendReads, Container
from app.sync.apply.batch import in_parts
from app.sync.ledger.items import Kind, noun_of
from app.sync.ledger.observed import Observed
from app.sync.plan.stored import MAX_HOLDS, Hold, Plan, load_plan
from app.sync.plan.tables import PlanRow

_SIDE_BY_SIDE = 64
"""Containers whose contents are in memory at the same time."""

_DELETES = """
SELECT ordinal, kind, organization_id, item_id, operation FROM plan_item
WHERE plan_id = :plan_id AND kind IN ('folder', 'group') AND action = 'delete' AND status = 'planned'
  AND covered_by IS NULL
ORDER BY ordinal
"""

_IS_ITEM = """p.kind = :kind AND p.organization_id = :organization_id
    AND p.container_id = :container_id AND p.item_id = i.value"""

# Folders that leave the deleted folder before it is deleted, with everything in them.
_MOVED = f"""
SELECT i.value FROM (@list(items)) AS i WHERE EXISTS (
  SELECT 1 FROM plan_item p
  WHERE p.plan_id = :plan_id AND {_IS_ITEM} AND p.operation = 'update_folder' AND p.status = 'planned')
"""

# Neither does the plan delete or move these contents, nor did the backend report them as deleted: they are foreign, or
# desired and were moved by another system.
_FOREIGN = f"""
SELECT i.value FROM (@list(items)) AS i WHERE NOT EXISTS (
  SELECT 1 FROM plan_item p
  WHERE p.plan_id = :plan_id AND {_IS_ITEM} AND p.status = 'planned'
    AND (p.action = 'delete' OR p.operation = 'move_documents'))
  AND NOT EXISTS (SELECT 1 FROM deleted_item p WHERE p.ledger_id = :ledger_id AND {_IS_ITEM})
ORDER BY i.value @bytes
"""

_HOLD = "UPDATE plan_item SET status = 'held', message = :message WHERE plan_id = :plan_id AND {which}"

_COUNT_COVERED = """
SELECT COUNT(*) AS items, COUNT(CASE WHEN kind = :kind THEN 1 END) AS alike
FROM plan_item WHERE plan_id = :plan_id AND covered_by = :ordinal
"""

_COUNT_LEDGER = """
SELECT COUNT(*) FROM ledger_item
WHERE ledger_id = :ledger_id AND kind = :kind AND organization_id = :organization_id
"""


class _Delete(NamedTuple):
    """A planned delete of a folder or group."""

    ordinal: int
    kind: str
    organization_id: str
    item_id: str
    operation: str


@dataclass(slots=True)
class _Contents:
    """What the backend has in a container."""

    folders: Sequence[Observed] = ()
    """At any depth. ``parent_id`` is known."""
    members: Sequence[str] = ()
    documents: Sequence[str] = ()
    error: str = ""
    """Why they cannot be read."""


@dataclass(frozen=True, slots=True)
class _Check:
    """Checks the container deletes of one plan."""

    plan: Plan
    reads: BackendReads

    def read(self, delete: _Delete) -> _Contents:
        """The folders or members in a container."""
        organization_id, item_id = delete.organization_id, delete.item_id
        try:
            if delete.kind == Kind.FOLDER:
                return _Contents(folders=self.reads.folders_below(organization_id, item_id))
            members = self.reads.users(Container(Kind.GROUP_MEMBER, organization_id, item_id), None)
            return _Contents(members=[member.item_id for member in members])
        except CredentialsRefused:
            raise
        except BackendRefused as error:
            return _Contents(error=str(error))

    def stay(self, connection: Connection, delete: _Delete, contents: _Contents) -> Sequence[str]:
        """The deleted folder and the folders below it, without those that leave it before."""
        if delete.kind != Kind.FOLDER:
            return []
        below: dict[str, list[str]] = {}
        moved = self._select(connection, _MOVED, delete, Kind.FOLDER, [folder.item_id for folder in contents.folders])
        for folder in contents.folders:
            if folder.item_id not in moved:
                below.setdefault(folder.parent_id, []).append(folder.item_id)
        stay = [delete.item_id]
        for folder_id in stay:
            stay += below.pop(folder_id, ())
        return stay

    def read_documents(self, delete: _Delete, folders: Sequence[str], contents: _Contents) -> None:
        try:
            read = (self.reads.documents_in(delete.organization_id, folder_id) for folder_id in folders)
            contents.documents = list(chain.from_iterable(read))
        except CredentialsRefused:
            raise
        except BackendRefused as error:
            contents.error = str(error)

    def reason(self, connection: Connection, delete: _Delete, folders: Sequence[str], contents: _Contents) -> str:
        """Why the delete is held. Empty if it is not."""
        container = f"{delete.kind} {delete.item_id}"
        if contents.error:
            return f"the contents of {container} cannot be read: {contents.error}"
        inside = {
            Kind.FOLDER: folders[1:],
            Kind.DOCUMENT: contents.documents,
            Kind.GROUP_MEMBER: contents.members,
        }
        foreign = []
        for kind, ids in inside.items():
            if found := self._select(connection, _FOREIGN, delete, kind, ids):
                others = " and others" if len(found) > 1 else ""
                foreign.append(f"{len(found)} {noun_of(kind, len(found))} ({found[0]}{others})")
        return f"{container} contains {' and '.join(foreign)} that this plan does not delete" if foreign else ""

    def _select(
        self, connection: Connection, query: str, delete: _Delete, kind: Kind, ids: Sequence[str]
    ) -> Sequence[str]:
        if not ids:
            return []
        parameters = {
            "plan_id": self.plan.plan_id,
            "ledger_id": self.plan.ledger_id,
            "kind": kind.value,
            "organization_id": delete.organization_id,
            "container_id": delete.item_id if kind is Kind.GROUP_MEMBER else "",
            "items": json_list(ids),
        }
        return run(connection, query, parameters).scalars().all()


def hold_shared(engine: Engine, plan: Plan, reads: BackendReads, *, approving: str | None, threads: int) -> Plan:
    """Reads the contents of the folders and groups that a plan deletes, and holds deletes that include items which the
    plan does not delete. Returns the plan with these holds. Raises ``ClientError`` if the backend does not answer, or
    refuses the credentials.

    ``approving``: the id of the plan whose held deletes were approved. Those that were held for this reason are not
    held again."""
    with reading(engine) as connection:
        deletes = [_Delete(*row) for row in run(connection, _DELETES, {"plan_id": plan.plan_id})]
        approved = None if approving is None else load_plan(connection, approving)
    accepted = (
        {(hold.kind, hold.organization_id) for hold in approved.holds if hold.limit == "foreign"} if approved else ()
    )
    # Without the operation, a container is emptied one by one.
    deletes = [one for one in deletes if one[1:3] not in accepted and not reads.lacks(one.operation)]
    held: list[tuple[_Delete, str]] = []
    check = _Check(plan, reads)
    with ThreadPoolExecutor(threads, thread_name_prefix="contents") as pool:
        for chunk in in_parts(deletes, _SIDE_BY_SIDE):
            contents = list(pool.map(check.read, chunk))
            with reading(engine) as connection:
                folders = [check.stay(connection, *one) for one in zip(chunk, contents, strict=True)]
            list(pool.map(check.read_documents, chunk, folders, contents))
            with reading(engine) as connection:
                reasons = [check.reason(connection, *one) for one in zip(chunk, folders, contents, strict=True)]
            held += [(delete, reason) for delete, reason in zip(chunk, reasons, strict=True) if reason]
    return _hold(engine, plan, held) if held else plan


def _hold(engine: Engine, plan: Plan, held: Sequence[tuple[_Delete, str]]) -> Plan:
    decide = "approve the deletes, or keep the items in the backend"
    holds = list(plan.holds)
    with writing(engine) as connection:
        deletes, contained = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for delete, reason in held:
            parameters = {"plan_id": plan.plan_id, "ordinal": delete.ordinal, "kind": delete.kind}
            covered = run(connection, _COUNT_COVERED, parameters).one()
            deletes[delete[1:3]] += 1 + covered.alike
            contained[delete[1:3]] += covered.items - covered.alike
            # One condition for both would be a scan of the plan.
            for which in ("ordinal = :ordinal", "covered_by = :ordinal"):
                run(connection, _HOLD, parameters | {"message": f"{reason}: {decide}"}, which=which)
        for kind, organization_id in deletes:
            alike = [reason for delete, reason in held if delete[1:3] == (kind, organization_id)]
            key = {"ledger_id": plan.ledger_id, "kind": kind, "organization_id": organization_id}
            further = f"; {counted(len(alike) - 1, 'further delete')}" if len(alike) > 1 else ""
            hold = Hold(
                kind=kind,
                organization_id=organization_id,
                deletes=deletes[kind, organization_id],
                contained=contained[kind, organization_id],
                in_ledger=run(connection, _COUNT_LEDGER, key).scalar_one(),
                limit="foreign",
                reason=f"{alike[0]}{further}: {decide}",
            )
            holds.append(hold)
        limits = json.dumps([hold.to_wire() for hold in holds[:MAX_HOLDS]], ensure_ascii=False)
        plans = PlanRow.__table__
        connection.execute(update(plans).where(plans.c.plan_id == plan.plan_id).values(limits=limits))
        changed = load_plan(connection, plan.plan_id)
    assert changed is not None  # noqa: S101 - its row was changed above
    return changed
