"""The endpoints of pushes: changes, uploads, and the state of a source.

The rules: ``app/service/push/README.md``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from io import BufferedReader
from threading import BoundedSemaphore
from typing import Any

import structlog
from flask import Blueprint, Flask, Response, request
from sqlalchemy import Engine
from werkzeug.routing import BaseConverter

from app.access.refresh.push_sequences import PushState, SequenceConflictError, push_states
from app.access.refresh.pushes import NumberedPush, apply_push
from app.access.source_states import source_states
from app.contract.errors import (
    PAYLOAD_TOO_LARGE,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)
from app.directory.pushes import ForeignPushError, MalformedPushError, Push, push_from_object
from app.foundation.clock import Clock, from_epoch_ms, utc_text
from app.foundation.database.engine import reading
from app.http.body import check_type, read_json
from app.http.json import json_response
from app.http.tokens import bearer_token, token_fingerprint
from app.service.push.auditing import PushAudit
from app.service.push.targets import PushTarget, Targets
from app.service.push.upload import apply_upload, problem_details
from app.service.push.wire import LINES_TYPES, SourceStateWire, UploadAnswer

_log = structlog.stdlib.get_logger(__name__)

MAX_PUSH_BYTES = 8 * 1024 * 1024
"""The maximum size of a push."""
MAX_UPLOAD_BYTES = 512 * 1024 * 1024
"""The maximum size of an upload."""

_BUFFER_BYTES = 1024 * 1024


class SourceNameConverter(BaseConverter):
    """The name of a source in a URL. It may contain slashes, because the name of a file is its path."""

    regex = ".+"
    part_isolating = False


@dataclass(frozen=True, slots=True)
class PushParts:
    """The dependencies of the endpoints."""

    engine: Engine
    targets: Targets
    clock: Clock
    audit: PushAudit
    uploads: BoundedSemaphore
    """Limits the uploads that this process receives at a time: each occupies a thread until it has arrived."""
    follow: Callable[[int], None]
    """Waits until this node answers permission calls by a revision, so that the next call sees what was pushed."""

    def target(self, name: str, *, is_scim: bool = False) -> PushTarget:
        """The source with this name. Raises as ``Targets.require``. Audits a wrong token, unless it is throttled."""
        try:
            return self.targets.require(request, name, is_scim=is_scim)
        except Unauthenticated:
            if bearer_token(request.environ) is not None:
                self.audit.record_wrong_token(is_known=name in self.targets.by_name)
            raise
        except (NotFound, PermissionDenied) as error:
            self.audit.record_refusal(error.message)
            raise


def install_push(app: Flask, parts: PushParts) -> None:
    """Adds ``/directory/NAME`` and ``/directory/NAME/changes`` to the app. Each call needs a token of its source."""
    app.url_map.converters["source"] = SourceNameConverter
    blueprint = Blueprint("push", __name__)

    @blueprint.post("/directory/<source:name>/changes")
    def changes(name: str) -> Response:
        answer = _apply_push(parts, parts.target(name))
        parts.follow(answer.get("revision", 0))
        return json_response(answer)

    @blueprint.put("/directory/<source:name>")
    def upload(name: str) -> Response:
        answer = _apply_upload(parts, parts.target(name))
        parts.follow(answer["revision"])
        return json_response(answer)

    @blueprint.get("/directory/<source:name>")
    def state(name: str) -> Response:
        return json_response(_state(parts, parts.target(name)))

    app.register_blueprint(blueprint)


def _read_push(parts: PushParts, target: PushTarget) -> Push:
    """The push in the body. Raises ``InvalidArgument``, or ``PermissionDenied`` after an audit row."""
    body = read_json(request, max_bytes=MAX_PUSH_BYTES, odd_values=True)
    try:
        return push_from_object(body, target.allowed)
    except MalformedPushError as error:
        raise InvalidArgument(str(error), details=problem_details(error.items)) from error
    except ForeignPushError as error:
        parts.audit.record_refusal(str(error))
        raise PermissionDenied(str(error), details=problem_details(error.items)) from error


def _apply_push(parts: PushParts, target: PushTarget) -> dict[str, Any]:
    push = _read_push(parts, target)
    numbered = NumberedPush(
        source=target.name,
        sequence=push.sequence,
        previous_sequence=push.previous_sequence,
        upserts=push.upserts,
        removals=push.removals,
        by=token_fingerprint(request),
    )
    try:
        answer = apply_push(
            parts.engine,
            numbered,
            configured=parts.targets.configured,
            only_pushed=target.only_pushed,
            clock=parts.clock,
            audit_hook=parts.audit.push_audit_hook(target.name, f"sequence {push.sequence}"),
        )
    except SequenceConflictError as error:
        raise FailedPrecondition(str(error), http_code=409, details={"sequence": error.last}) from error
    _log.info(
        "push",
        source=target.name,
        sequence=push.sequence,
        upserts=len(push.upserts),
        removals=len(push.removals),
        revision=answer.get("revision"),
        left_out=len(answer.get("leftOut", ())),
    )
    return answer


def _apply_upload(parts: PushParts, target: PushTarget) -> UploadAnswer:
    if list(request.args.items(multi=True)) not in ([], [("acceptShrink", "true")], [("acceptShrink", "false")]):
        raise InvalidArgument("acceptShrink: must be true or false, and occur once; there is no other parameter")
    check_type(request, LINES_TYPES)
    length = request.content_length
    if length is None:
        raise InvalidArgument("Content-Length is missing; send the length of the body", http_code=411)
    if length > MAX_UPLOAD_BYTES:
        raise InvalidArgument(f"the body is larger than {MAX_UPLOAD_BYTES} bytes", http_code=PAYLOAD_TOO_LARGE)
    if not parts.uploads.acquire(blocking=False):
        raise Unavailable("too many uploads are being received; try again later")
    accept_shrink = request.args.get("acceptShrink") == "true"
    try:
        answer = apply_upload(
            parts.engine,
            parts.targets,
            target,
            BufferedReader(request.stream, _BUFFER_BYTES),  # type: ignore[type-var] # a raw stream
            accept_shrink=accept_shrink,
            by=token_fingerprint(request),
            clock=parts.clock,
            audit_hook=parts.audit.upload_audit_hook(target.name, accept_shrink=accept_shrink),
        )
    except PermissionDenied as error:
        parts.audit.record_refusal(error.message)
        raise
    finally:
        parts.uploads.release()
    _log.info("pushed_everything", source=target.name, records=answer["records"], revision=answer["revision"])
    return answer


def _state(parts: PushParts, target: PushTarget) -> SourceStateWire:
    with reading(parts.engine) as connection:
        push = push_states(connection).get(target.name, PushState())
        source = next((state for state in source_states(connection) if state.name == target.name), None)
    read_at = None if source is None or target.only_pushed else source.last_good_at
    latest = max((at for at in (push.pushed_at, read_at) if at is not None), default=None)
    age = None if latest is None else max(0.0, round(parts.clock().timestamp() - latest / 1000, 3))
    return {
        "source": target.name,
        "sequence": push.sequence,
        "records": 0 if source is None else source.records,
        "dangling": 0 if source is None else source.dangling,
        "pushed": _text(push.pushed_at),
        "read": _text(read_at),
        "ageSeconds": age,
    }


def _text(at: int | None) -> str | None:
    return None if at is None else utc_text(from_epoch_ms(at))
