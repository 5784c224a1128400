"""How does a program start a run, watch it, and decide about what it held back?

``POST /resync`` puts a run into the queue that the workers share; everything else reads or moves that run's row.
Nothing here waits for a worker.
"""

import base64
import binascii
import re
from datetime import datetime
from typing import Annotated, Literal, get_args
from urllib.parse import quote

from flask import Blueprint, Response, request
from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from werkzeug.wrappers import Response as BaseResponse

from app.contract.base import Id, Request
from app.contract.complaint import first_error
from app.contract.errors import FailedPrecondition, InvalidArgument, NotFound
from app.edge.body import read_json
from app.edge.errors import answer_error
from app.edge.json import json_response
from app.edge.tokens import TokenSet, require_bearer
from app.store.runs import Change, Run, RunConflictError, RunNotFoundError, RunRequest, Runs, RunStatus

MAX_BODY_BYTES = 1024 * 1024
MAX_IDS = 10_000

ItemStatus = Literal["planned", "done", "failed", "held", "waiting", "parked", "skipped", "cancelled"]
ItemKind = Literal[
    "organization", "folder", "document", "group", "organizationUser", "folderUser", "documentUser", "groupMember"
]
ITEM_STATUSES: tuple[str, ...] = get_args(ItemStatus)
"""What can become of an item."""

_KEY = re.compile(r"[!-~]{1,200}")
_PAGE_SIZES = range(1, 1001)


def _not_empty(ids: list[str]) -> list[str]:
    if not ids:
        raise ValueError("must not be empty: leave it out for everything")
    return ids


_Narrowing = Annotated[
    list[Id],
    # An empty list is what a program sends that found nobody; taken for everything, it would do the most it can.
    AfterValidator(_not_empty),
    Field(
        max_length=MAX_IDS,
        description="Only these. Left out or null: everything. An empty list is refused.",
        json_schema_extra={"minItems": 1},
    ),
]


class ResyncRequest(Request):
    """The body of ``POST /resync``; unlike the backend's own requests it refuses fields that it does not know."""

    model_config = ConfigDict(extra="forbid")

    organization_ids: _Narrowing | None = None
    user_ids: _Narrowing | None = None
    dry_run: bool | None = None
    verify: bool | None = None
    allow_deletes: bool | None = None


def resync_blueprint(runs: Runs, tokens: TokenSet) -> Blueprint:
    """``/resync`` and what hangs below it; every call shows an admin token."""
    blueprint = Blueprint("resync", __name__)

    @blueprint.before_request
    def _authorize() -> None:
        require_bearer(request, tokens)

    @blueprint.errorhandler(RunNotFoundError)
    def _not_found(error: RunNotFoundError) -> BaseResponse:
        return answer_error(NotFound(str(error)))

    @blueprint.post("/resync")
    def start() -> Response:
        run = _enqueue(runs, _read_request(), _idempotency_key())
        where = f"/resync/{quote(run.run_id, safe='')}"
        return json_response({"runId": run.run_id, "status": run.status.value}, 202, {"Location": where})

    @blueprint.get("/resync/<run_id>")
    def show(run_id: str) -> Response:
        return json_response(run_to_wire(_found(runs, run_id)))

    @blueprint.get("/resync/<run_id>/changes")
    def changes(run_id: str) -> Response:
        return _changes(runs, run_id)

    @blueprint.post("/resync/<run_id>/approve")
    def approve(run_id: str) -> Response:
        _found(runs, run_id)
        try:
            run = runs.approve(run_id)
        except RunConflictError as error:
            raise FailedPrecondition(str(error)) from error
        return json_response(run_to_wire(run), 202)

    @blueprint.post("/resync/<run_id>/cancel")
    def cancel(run_id: str) -> Response:
        held = _found(runs, run_id).status is RunStatus.HELD
        try:
            run = runs.discard(run_id) if held else runs.cancel(run_id)
        except RunConflictError as error:
            raise FailedPrecondition(str(error)) from error
        return json_response(run_to_wire(run), 202)

    return blueprint


def run_to_wire(run: Run) -> dict[str, object]:
    """A run as ``GET /resync/{runId}`` and ``usher runs --json`` show it; times are ISO 8601 in UTC."""
    return {
        "runId": run.run_id,
        "status": run.status.value,
        "trigger": run.trigger,
        "dryRun": run.dry_run,
        "verify": run.verify,
        "allowDeletes": run.allow_deletes,
        "organizationIds": list(run.organization_ids),
        "userIds": list(run.user_ids),
        "planId": run.plan_id,
        "revision": run.revision,
        "counts": run.counts,
        "calls": run.calls,
        "requested": _iso(run.requested_at),
        "started": _iso(run.started_at),
        "finished": _iso(run.finished_at),
        "heldUntil": _iso(run.held_until),
        "cancelRequested": run.cancel_requested,
        "error": run.error,
        "report": run.report,
    }


def change_to_wire(change: Change) -> dict[str, object]:
    """One item of a run's plan, with why it is there and what became of it."""
    return {
        "ordinal": change.ordinal,
        "phase": change.phase,
        "action": change.action,
        "kind": change.kind,
        "organizationId": change.organization_id,
        "containerId": change.container_id or None,
        "id": change.item_id,
        "operation": change.operation,
        "reason": change.reason,
        "status": change.status,
        "message": change.message or None,
    }


def _read_request() -> ResyncRequest:
    # No body at all is the plainest way to say: everything.
    if request.content_length in {0, None} and "Transfer-Encoding" not in request.headers:
        return ResyncRequest()
    body = read_json(request, max_bytes=MAX_BODY_BYTES)
    if not isinstance(body, dict):
        raise InvalidArgument("the body must be a JSON object")
    for name in body:
        if not any(name == field.alias for field in ResyncRequest.model_fields.values()):
            known = ", ".join(str(field.alias) for field in ResyncRequest.model_fields.values())
            raise InvalidArgument(f"body.{_shown(name)}: not a field of this request; it knows {known}")
    try:
        return ResyncRequest.from_wire(body)
    except ValidationError as error:
        raise InvalidArgument(first_error(error, body, root="body")) from error


def _idempotency_key() -> str | None:
    key = request.headers.get("Idempotency-Key")
    if key is not None and not _KEY.fullmatch(key):
        raise InvalidArgument("Idempotency-Key: must be 1 to 200 printable ASCII characters without spaces")
    return key


def _enqueue(runs: Runs, wanted: ResyncRequest, idempotency_key: str | None) -> Run:
    try:
        run, _ = runs.enqueue(
            RunRequest(
                trigger="resync",
                organization_ids=tuple(wanted.organization_ids or ()),
                user_ids=tuple(wanted.user_ids or ()),
                dry_run=bool(wanted.dry_run),
                verify=bool(wanted.verify),
                allow_deletes=bool(wanted.allow_deletes),
                idempotency_key=idempotency_key,
            )
        )
    except RunConflictError as error:
        raise FailedPrecondition(f"Idempotency-Key: {error}") from error
    return run


def _found(runs: Runs, run_id: str) -> Run:
    # Ids that a database could not even compare are no ids of ours.
    if not _KEY.fullmatch(run_id):
        raise NotFound("there is no such run")
    return runs.get(run_id)


def _changes(runs: Runs, run_id: str) -> Response:
    unknown = set(request.args) - {"status", "kind", "pageToken", "pageSize"}
    if unknown:
        raise InvalidArgument(f"{_shown(min(unknown))}: not a parameter; use status, kind, pageToken, pageSize")
    status = _one_of("status", ITEM_STATUSES)
    kind = _one_of("kind", get_args(ItemKind))
    size_text = request.args.get("pageSize", "200")
    size = int(size_text) if size_text.isascii() and size_text.isdigit() and len(size_text) < 6 else 0
    if size not in _PAGE_SIZES:
        raise InvalidArgument(f"pageSize: must be a number from {_PAGE_SIZES.start} to {_PAGE_SIZES.stop - 1}")
    run = _found(runs, run_id)
    query = f"{run.run_id}|{run.plan_id}|{status}|{kind}"
    found = runs.changes(run_id, status, kind, _after(query, request.args.get("pageToken")), size + 1)
    body: dict[str, object] = {"changes": [change_to_wire(change) for change in found[:size]]}
    if len(found) > size:
        body["nextPageToken"] = _page_token(query, found[size - 1].ordinal)
    return json_response(body)


def _one_of(name: str, known: tuple[str, ...]) -> str | None:
    value = request.args.get(name) or None
    if value is not None and value not in known:
        raise InvalidArgument(f"{name}: must be one of {', '.join(known)}")
    return value


def _page_token(query: str, ordinal: int) -> str:
    return base64.urlsafe_b64encode(f"{query}|{ordinal}".encode()).decode().rstrip("=")


def _after(query: str, token: str | None) -> int | None:
    """Where a page begins. The token names the query that it belongs to, so one from elsewhere is refused."""
    if not token:
        return None
    try:
        text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    except (binascii.Error, ValueError):
        text = ""
    of_query, _, ordinal = text.rpartition("|")
    if of_query != query or not re.fullmatch(r"[0-9]{1,18}", ordinal):
        raise InvalidArgument("pageToken: not a token of this list; start again without one")
    return int(ordinal)


def _shown(name: str) -> str:
    shown = name if len(name) <= 80 else f"{name[:80]}…"
    return shown if shown.isprintable() else ascii(shown)


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
