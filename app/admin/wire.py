"""A run and its items as JSON: for the operators' API, and for commands, which live without the web."""

from datetime import datetime

from app.clock import utc_text
from app.ledger.chosen import ItemKey
from app.plan.listing import FieldChange, PlannedChange
from app.plan.rules import Action
from app.runs.run import Run


def run_to_wire(run: Run) -> dict[str, object]:
    """A run as ``GET /resync/{runId}`` and ``usher runs --json`` show it; times are ISO 8601 in UTC."""
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


def _item_to_wire(item: ItemKey) -> dict[str, object]:
    return {
        "kind": item.kind,
        "organizationId": item.organization_id,
        "containerId": item.container_id or None,
        "id": item.item_id,
    }


def _decision_to_wire(run: Run) -> dict[str, object] | None:
    if run.decision is None:
        return None
    return {
        "decision": run.decision,
        "at": _iso(run.decided_at),
        "by": run.decided_by,
        "reason": run.decision_reason,
    }


def change_to_wire(change: PlannedChange) -> dict[str, object]:
    """An item of a run's plan, with its changes, reason and outcome."""
    wire: dict[str, object] = {
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


def _field_to_wire(field: FieldChange) -> dict[str, object]:
    old = {"old": field.old} if field.old_is_known else {}
    return {"field": field.field, **old, "new": field.new}


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else utc_text(moment)
