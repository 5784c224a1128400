"""Runs and their items as JSON, for the HTTP API and for ``--json`` of the commands.

Models read the attributes of an object. Items are typed dictionaries, because some of their fields may be absent.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, NotRequired

from pydantic import AliasGenerator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel
from typing_extensions import TypedDict

from app.foundation.clock import utc_text
from app.sync.ledger.items import ITEM_KINDS, ITEM_STATUSES
from app.sync.plan.fields import FieldChange
from app.sync.plan.listing import PlannedChange
from app.sync.plan.rules import Action

_Time = Annotated[datetime, PlainSerializer(utc_text)]
"""A time: ISO 8601 in UTC."""
_NotEmpty = BeforeValidator(lambda value: value or None)
"""An empty value is null on the wire."""


class _Wire(BaseModel):
    """A body made from an object with the same attributes."""

    model_config = ConfigDict(from_attributes=True, alias_generator=AliasGenerator(serialization_alias=to_camel))

    @classmethod
    def of(cls, source: object) -> dict[str, Any]:
        """The body as JSON."""
        return cls.model_validate(source).model_dump(mode="json", by_alias=True)


class NewRun(_Wire):
    """A run that was queued."""

    run_id: str
    status: str


class RunItem(_Wire):
    """An item to retry."""

    kind: str
    organization_id: str
    container_id: Annotated[str | None, _NotEmpty]
    item_id: Annotated[str, Field(serialization_alias="id")]


class RunStage(_Wire):
    """A status that the run had, and when it began."""

    status: str
    at: _Time


class RunDecision(_Wire):
    """The last decision of an operator about the run."""

    decision: str
    decided_at: Annotated[_Time | None, Field(serialization_alias="at")]
    decided_by: Annotated[str | None, Field(serialization_alias="by")]
    decision_reason: Annotated[str | None, Field(serialization_alias="reason")]


class RunWire(NewRun):
    """A run, as ``GET /resync/{runId}`` and ``usher runs --json`` show it. Times are ISO 8601 in UTC."""

    trigger: str
    asked_by: str | None
    asked_reason: str | None
    dry_run: bool
    verify: bool
    allow_deletes: bool
    organization_ids: list[str]
    user_ids: list[str]
    retry: bool
    kinds: list[str]
    items: list[RunItem]
    plan_id: str | None
    revision: int | None
    counts: Annotated[Mapping[str, Mapping[str, Mapping[str, int]]], Field(description="By kind, action, status.")]
    calls: int
    stages: list[RunStage]
    requested_at: Annotated[_Time, Field(serialization_alias="requested")]
    started_at: Annotated[_Time | None, Field(serialization_alias="started")]
    finished_at: Annotated[_Time | None, Field(serialization_alias="finished")]
    held_at: _Time | None
    held_until: _Time | None
    decision: Annotated[RunDecision | None, Field(validation_alias="last_decision")]
    resumed_at: Annotated[_Time | None, Field(serialization_alias="resumed")]
    cancel_requested: bool
    continued_by: Annotated[str | None, Field(description="The run that continues this one after an interruption.")]
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
    kind: Annotated[str, Field(json_schema_extra={"enum": [*ITEM_KINDS]})]
    organizationId: str
    containerId: Annotated[str | None, Field(description="The folder, document or group of a user's entry.")]
    id: str
    name: Annotated[str | None, Field(description="The name of the item, or of the user of an entry.")]
    containerName: str | None
    operation: str
    reason: Annotated[str, Field(description="The record that caused the item.")]
    status: Annotated[str, Field(json_schema_extra={"enum": [*ITEM_STATUSES]})]
    message: Annotated[str | None, Field(description="The outcome.")]
    fields: NotRequired[Annotated[list[ChangedField], Field(description="What an update changes.")]]
    allFieldsKnown: NotRequired[Annotated[bool, Field(description="Whether `fields` is complete.")]]


class Changes(TypedDict):
    """A page of changes."""

    changes: list[ChangeWire]
    nextPageToken: NotRequired[str]


class AccessCountWire(_Wire):
    """How many pairs of user and resource gain, lose or change access in a dry run."""

    organization_id: str
    kind: str
    gain: int
    lose: int
    change: int


class AccessChangeWire(_Wire):
    """The same change of access of each of the users to each of the resources."""

    ordinal: int
    organization_id: str
    kind: str
    before: Annotated[str | None, _NotEmpty, Field(description="The role before; null: no access.")]
    after: Annotated[str | None, _NotEmpty]
    users: Annotated[int, Field(serialization_alias="userCount")]
    resources: Annotated[int, Field(serialization_alias="resourceCount")]
    user_ids: Annotated[
        list[str] | None,
        _NotEmpty,
        Field(
            description="null: too many ids, if `resourceIds` is null as well; otherwise all enabled users without an "
            "entry in the organization."
        ),
    ]
    resource_ids: Annotated[list[str] | None, _NotEmpty, Field(description="null: too many ids; the counts are exact.")]


class AccessChanges(TypedDict):
    """A page of the access impact of a dry run. The sums are in its report (``impact``)."""

    accessChanges: list[AccessChangeWire]
    nextPageToken: NotRequired[str]


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
