"""The endpoints of runs: start, status, changes, approve and cancel.

``POST /resync`` queues a run for the workers. The other endpoints read or update its row. None waits for a worker.
"""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import quote

import structlog
from flask import Blueprint, Response, request
from pydantic import Field, ValidationInfo, field_validator
from werkzeug.wrappers import Response as BaseResponse

from app.contract.base import Id
from app.contract.errors import FailedPrecondition, InvalidArgument, NotFound
from app.foundation.audit import MAX_REASON, AuditAction, subject_of_refused
from app.foundation.text import named
from app.http.errors import answer_error
from app.http.json import json_response
from app.http.throttle import TooManyRequests
from app.service.admin.auth import AdminAuth, actor, caller_name
from app.service.admin.body import NOT_EMPTY, StrictRequest, read_body
from app.service.admin.page_token import invalid_page_token, page_token, read_page_token
from app.service.admin.wire import AccessChangeWire, NewRun, RunWire, change_to_wire
from app.sync.ledger.items import ITEM_KINDS, ITEM_STATUSES, ItemKey
from app.sync.plan.listing import PlannedChange
from app.sync.plan.stored_access import StoredAccessChange
from app.sync.runs.audit import audited, requested_action
from app.sync.runs.lifecycle import Runs
from app.sync.runs.run import QueueFullError, Run, RunConflictError, RunNotFoundError, RunRequest

_log = structlog.stdlib.get_logger(__name__)

MAX_IDS = 10_000
MAX_ITEMS = 1_000

_ItemKind = Literal[
    "organization", "folder", "document", "group", "organizationUser", "folderUser", "documentUser", "groupMember"
]
"""The values of ``Kind``. As an enum, pydantic would move them to a schema of their own."""
_KEY = re.compile(r"[!-~]{1,200}")
_QUEUE_RETRY_SECONDS = 60
_PAGE_SIZES = range(1, 1001)

_MIN_ITEMS = Field(json_schema_extra={"minItems": 1})
_Selection = Annotated[
    list[Id],
    NOT_EMPTY,
    _MIN_ITEMS,
    Field(max_length=MAX_IDS, description="Only these. Left out or null: everything. An empty list is refused."),
]


class RetriedItem(StrictRequest):
    """An item to retry, with the fields of a run's changes."""

    kind: _ItemKind
    organization_id: Id
    container_id: Id | None = None
    id: Id

    @property
    def key(self) -> ItemKey:
        return ItemKey(self.kind, self.organization_id, self.container_id or "", self.id)


class ResyncRequest(StrictRequest):
    """The body of ``POST /resync``. Unlike requests of the backend's API, it refuses unknown fields."""

    organization_ids: _Selection | None = None
    user_ids: _Selection | None = None
    dry_run: bool | None = None
    verify: bool | None = None
    allow_deletes: bool | None = None
    retry: Annotated[bool | None, Field(description="Retry parked items, and items that wait for their next try.")] = (
        None
    )
    reason: Annotated[str | None, Field(max_length=MAX_REASON, description="The reason, for the audit log.")] = None
    kinds: Annotated[
        Annotated[list[_ItemKind], Field(max_length=len(ITEM_KINDS))] | None,
        NOT_EMPTY,
        _MIN_ITEMS,
        Field(description="With `retry`: only items of these kinds."),
    ] = None
    items: Annotated[
        Annotated[list[RetriedItem], Field(max_length=MAX_ITEMS)] | None,
        NOT_EMPTY,
        _MIN_ITEMS,
        Field(description="With `retry`: only these items."),
    ] = None

    @field_validator("kinds", "items")
    @classmethod
    def _check_retry(cls, selected: Any, info: ValidationInfo) -> Any:
        if selected is not None and not info.data.get("retry"):
            raise ValueError("selects retried items: it needs retry true")
        return selected


class DecisionRequest(StrictRequest):
    """The optional body of approving or cancelling a run."""

    reason: Annotated[str, Field(max_length=MAX_REASON)] | None = None


def resync_blueprint(runs: Runs, auth: AdminAuth) -> Blueprint:
    """``/resync`` and the endpoints below it. All of them require an admin token."""
    blueprint = Blueprint("resync", __name__)

    @blueprint.before_request
    def _authorize() -> None:
        auth.require()

    @blueprint.errorhandler(RunNotFoundError)
    def _not_found(error: RunNotFoundError) -> BaseResponse:
        return answer_error(NotFound(str(error)))

    @blueprint.post("/resync")
    def start() -> Response:
        run = _enqueue(runs, read_body(ResyncRequest), _idempotency_key(), auth)
        # All log lines of this request contain the request id. This one relates it to the run.
        _log.info("run_asked_for", run_id=run.run_id, status=run.status.value)
        url = f"/resync/{quote(run.run_id, safe='')}"
        return json_response(NewRun.of(run), 202, {"Location": url})

    @blueprint.get("/resync/<run_id>")
    def show(run_id: str) -> Response:
        return json_response(RunWire.of(_existing_run(runs, run_id)))

    @blueprint.get("/resync/<run_id>/changes")
    def changes(run_id: str) -> Response:
        return _changes(runs, run_id)

    @blueprint.get("/resync/<run_id>/access")
    def access_changes(run_id: str) -> Response:
        return _access_changes(runs, run_id)

    def change(run_id: str, method: Callable[..., Run], action: AuditAction) -> Response:
        _existing_run(runs, run_id)
        reason = read_body(DecisionRequest).reason
        audit_hook = audited(auth.audit, actor(), action, reason)
        try:
            run = method(run_id, by=caller_name(), reason=reason, audit_hook=audit_hook)
        except RunConflictError as error:
            auth.record_refusal(str(error), subject=subject_of_refused(action, run_id))
            raise FailedPrecondition(str(error)) from error
        return json_response(RunWire.of(run), 202)

    @blueprint.post("/resync/<run_id>/approve")
    def approve(run_id: str) -> Response:
        return change(run_id, runs.approve, AuditAction.APPROVE)

    @blueprint.post("/resync/<run_id>/cancel")
    def cancel(run_id: str) -> Response:
        return change(run_id, runs.cancel, AuditAction.CANCEL)

    return blueprint


def _idempotency_key() -> str | None:
    key = request.headers.get("Idempotency-Key")
    if key is not None and not _KEY.fullmatch(key):
        raise InvalidArgument("Idempotency-Key: must be 1 to 200 printable ASCII characters without spaces")
    return key


def _enqueue(runs: Runs, body: ResyncRequest, idempotency_key: str | None, auth: AdminAuth) -> Run:
    run_request = RunRequest(
        trigger="resync",
        organization_ids=tuple(body.organization_ids or ()),
        user_ids=tuple(body.user_ids or ()),
        dry_run=bool(body.dry_run),
        verify=bool(body.verify),
        allow_deletes=bool(body.allow_deletes),
        retry=bool(body.retry),
        kinds=tuple(body.kinds or ()),
        items=tuple(item.key for item in body.items or ()),
        idempotency_key=idempotency_key,
        asked_by=caller_name(),
        asked_reason=body.reason,
    )
    action = requested_action(run_request)
    try:
        run, _ = runs.enqueue(run_request, audit_hook=audited(auth.audit, actor(), action, body.reason))
    except RunConflictError as error:
        auth.record_refusal(str(error), subject=action)
        raise FailedPrecondition(f"Idempotency-Key: {error}") from error
    except QueueFullError as error:
        auth.record_refusal(str(error), subject=action)
        raise TooManyRequests(str(error), retry_after=_QUEUE_RETRY_SECONDS) from error
    return run


def _existing_run(runs: Runs, run_id: str) -> Run:
    """The run. Raises ``NotFound`` or ``RunNotFoundError``."""
    # Other characters cannot occur in an id, and some of them cannot be compared by a database.
    if not _KEY.fullmatch(run_id):
        raise NotFound("there is no such run")
    return runs.get(run_id)


def _changes(runs: Runs, run_id: str) -> Response:
    _refuse_other_parameters("status", "kind", "pageToken", "pageSize")
    status = _one_of("status", ITEM_STATUSES)
    kind = _one_of("kind", ITEM_KINDS)
    size = _page_size()
    run = _existing_run(runs, run_id)
    query = f"{run.run_id}|{run.plan_id}|{status}|{kind}"
    rows = runs.changes(run_id, status, kind, _after(query), size + 1)
    changes = [change_to_wire(change) for change in rows[:size]]
    return json_response({"changes": changes, **_next_page(query, rows, size)})


def _access_changes(runs: Runs, run_id: str) -> Response:
    _refuse_other_parameters("pageToken", "pageSize")
    size = _page_size()
    run = _existing_run(runs, run_id)
    query = f"{run.run_id}|{run.plan_id}|access"
    rows = runs.access_changes(run_id, _after(query) or 0, size + 1)
    changes = [AccessChangeWire.of(change) for change in rows[:size]]
    return json_response({"accessChanges": changes, **_next_page(query, rows, size)})


def _next_page(query: str, rows: Sequence[PlannedChange | StoredAccessChange], size: int) -> dict[str, str]:
    return {"nextPageToken": page_token(query, [rows[size - 1].ordinal])} if len(rows) > size else {}


def _refuse_other_parameters(*known: str) -> None:
    unknown = set(request.args) - {*known}
    if unknown:
        raise InvalidArgument(f"{named(min(unknown), limit=80)}: not a parameter; use {', '.join(known)}")


def _page_size() -> int:
    text = request.args.get("pageSize", "200")
    size = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    if size not in _PAGE_SIZES:
        raise InvalidArgument(f"pageSize: must be a number from {_PAGE_SIZES.start} to {_PAGE_SIZES.stop - 1}")
    return size


def _one_of(name: str, known: tuple[str, ...]) -> str | None:
    value = request.args.get(name) or None
    if value is not None and value not in known:
        raise InvalidArgument(f"{name}: must be one of {', '.join(known)}")
    return value


def _after(query: str) -> int | None:
    """The ordinal after which a page begins. A token contains its query, and is refused for another one."""
    if not (token := request.args.get("pageToken")):
        return None
    match read_page_token(token, query):
        case [int(ordinal)] if 0 <= ordinal < 10**18:
            return ordinal
        case _:
            raise invalid_page_token()
