"""Runs and their items as JSON, for the HTTP API and for ``--json`` of the commands."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired, get_args

from pydantic import Field
from typing_extensions import TypedDict

from app.foundation.clock import utc_text
from app.sync.ledger.ledger import ItemKey
from app.sync.plan.access_impact import AccessCount, StoredAccessChange
from app.sync.plan.fields import FieldChange
from app.sync.plan.listing import PlannedChange
from app.sync.plan.rules import Action
from app.sync.runs.run import Run

ItemStatus = Literal["planned", "done", "failed", "held", "discarded", "waiting", "parked", "skipped", "cancelled"]
ItemKind = Literal[
    "organization", "folder", "document", "group", "organizationUser", "folderUser", "documentUser", "groupMember"
]

_Texts = dict[str, str | None]


class NewRun(TypedDict):
    """A run that was queued."""

    runId: str
    status: str


class RunWire(NewRun):
    """A run. Times are ISO 8601 in UTC."""

    trigger: str
    askedBy: str | None
    askedReason: str | None
    dryRun: bool
    verify: bool
    allowDeletes: bool
    organizationIds: list[str]
    userIds: list[str]
    retry: bool
    kinds: list[str]
    items: list[_Texts]
    planId: str | None
    revision: int | None
    counts: Annotated[Mapping[str, Mapping[str, Mapping[str, int]]], Field(description="By kind, action, status.")]
    calls: int
    stages: list[_Texts]
    requested: str | None
    started: str | None
    finished: str | None
    heldAt: str | None
    heldUntil: str | None
    decision: _Texts | None
    resumed: str | None
    cancelRequested: bool
    continuedBy: Annotated[str | None, Field(description="The run that continues this one after an interruption.")]
    error: str | None
    report: Mapping[str, Any]


class ChangedField(TypedDict):
    """A field that an update changes, by its name in the directory's records."""

    field: str
    old: NotRequired[Annotated[object, Field(description="As last sent; null: none. Absent if unknown.")]]
    new: Annotated[object, Field(description="null: none, inherited, or the top of the tree.")]


class ChangeWire(TypedDict):
    """An item of a run's plan."""

    ordinal: int
    phase: int
    action: Annotated[str, Field(json_schema_extra={"enum": [*Action]})]
    kind: Annotated[str, Field(json_schema_extra={"enum": [*get_args(ItemKind)]})]
    organizationId: str
    containerId: Annotated[str | None, Field(description="The folder, document or group of a user's entry.")]
    id: str
    name: Annotated[str | None, Field(description="The name of the item, or of the user of an entry.")]
    containerName: str | None
    operation: str
    reason: Annotated[str, Field(description="The record that caused the item.")]
    status: Annotated[str, Field(json_schema_extra={"enum": [*get_args(ItemStatus)]})]
    message: Annotated[str | None, Field(description="The outcome.")]
    fields: NotRequired[Annotated[list[ChangedField], Field(description="What an update changes.")]]
    allFieldsKnown: NotRequired[Annotated[bool, Field(description="Whether `fields` is complete.")]]


class Changes(TypedDict):
    """A page of changes."""

    changes: list[ChangeWire]
    nextPageToken: NotRequired[str]


class AccessCountWire(TypedDict):
    """How many pairs of user and resource gain, lose or change access in a dry run."""

    organizationId: str
    kind: str
    gain: int
    lose: int
    change: int


class AccessChangeWire(TypedDict):
    """The same change of access of each of the users to each of the resources."""

    ordinal: int
    organizationId: str
    kind: str
    before: Annotated[str | None, Field(description="The role before; null: no access.")]
    after: str | None
    userCount: int
    resourceCount: int
    userIds: Annotated[
        list[str] | None,
        Field(
            description="null: too many ids, if `resourceIds` is null as well; otherwise all enabled users without an "
            "entry in the organization."
        ),
    ]
    resourceIds: Annotated[list[str] | None, Field(description="null: too many ids; the counts are exact.")]


class AccessChanges(TypedDict):
    """A page of the access impact of a dry run. The sums are in its report (``impact``)."""

    accessChanges: list[AccessChangeWire]
    nextPageToken: NotRequired[str]


def access_count_to_wire(count: AccessCount) -> AccessCountWire:
    """A row of the access impact by organization and kind."""
    return {
        "organizationId": count.organization_id,
        "kind": count.kind,
        "gain": count.gain,
        "lose": count.lose,
        "change": count.change,
    }


def access_change_to_wire(change: StoredAccessChange) -> AccessChangeWire:
    """A row of the access impact, with all ids."""
    return {
        "ordinal": change.ordinal,
        "organizationId": change.organization_id,
        "kind": change.kind,
        "before": change.before or None,
        "after": change.after or None,
        "userCount": change.users,
        "resourceCount": change.resources,
        "userIds": list(change.user_ids) or None,
        "resourceIds": list(change.resource_ids) or None,
    }


def run_to_wire(run: Run) -> RunWire:
    """A run as ``GET /resync/{runId}`` and ``usher runs --json`` show it."""
    return {
        "runId": run.run_id,
        "status": run.status.value,
        "trigger": run.trigger,
        "askedBy": run.asked_by,
        "askedReason": run.asked_reason,
        "dryRun": run.dry_run,
        "verify": run.verify,
        "allowDeletes": run.allow_deletes,
        "organizationIds": list(run.organization_ids),
        "userIds": list(run.user_ids),
        "retry": run.retry,
        "kinds": list(run.kinds),
        "items": [_item_to_wire(item) for item in run.items],
        "planId": run.plan_id,
        "revision": run.revision,
        "counts": run.counts,
        "calls": run.calls,
        "stages": [{"status": stage.status.value, "at": _iso(stage.at)} for stage in run.stages],
        "requested": _iso(run.requested_at),
        "started": _iso(run.started_at),
        "finished": _iso(run.finished_at),
        "heldAt": _iso(run.held_at),
        "heldUntil": _iso(run.held_until),
        "decision": _decision_to_wire(run),
        "resumed": _iso(run.resumed_at),
        "cancelRequested": run.cancel_requested,
        "continuedBy": run.continued_by,
        "error": run.error,
        "report": run.report,
    }


def _item_to_wire(item: ItemKey) -> _Texts:
    return {
        "kind": item.kind,
        "organizationId": item.organization_id,
        "containerId": item.container_id or None,
        "id": item.item_id,
    }


def _decision_to_wire(run: Run) -> _Texts | None:
    if run.decision is None:
        return None
    return {
        "decision": run.decision,
        "at": _iso(run.decided_at),
        "by": run.decided_by,
        "reason": run.decision_reason,
    }


def change_to_wire(change: PlannedChange) -> ChangeWire:
    """An item of a run's plan, with its changes, reason and outcome."""
    wire: ChangeWire = {
        "ordinal": change.ordinal,
        "phase": change.phase,
        "action": change.action,
        "kind": change.kind,
        "organizationId": change.organization_id,
        "containerId": change.container_id or None,
        "id": change.item_id,
        "name": change.name,
        "containerName": change.container_name,
        "operation": change.operation,
        "reason": change.reason,
        "status": change.status,
        "message": change.message or None,
    }
    if change.action == Action.UPDATE:
        wire["fields"] = [_field_to_wire(field) for field in change.fields]
        wire["allFieldsKnown"] = change.all_fields_known
    return wire


def _field_to_wire(field: FieldChange) -> ChangedField:
    if not field.old_is_known:
        return {"field": field.field, "new": field.new}
    return {"field": field.field, "old": field.old, "new": field.new}


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else utc_text(moment)
