"""The endpoints of health, readiness and metrics.

``/healthz`` reports that the process runs, and uses nothing else: a process must not be restarted because a database is
unavailable. ``/readyz`` runs all checks and returns 503 if one fails, so that load balancers use other nodes. While the
database cannot be reached, a node is ready as long as its index answers permission calls.
"""

import time
from collections.abc import Callable, Mapping

import structlog
from flask import Blueprint, Response, request
from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError

from app.access.index.index import AccessIndex
from app.access.refresh.push_sequences import push_states
from app.access.refresh.reads import FAILED
from app.access.revisions import latest_revision
from app.access.source_states import oldest_good_read, source_states
from app.foundation.clock import Clock
from app.foundation.database.engine import reading
from app.foundation.database.errors import NoTurnError, is_outage, log_fields, public_reason
from app.foundation.database.programs import ForeignDatabaseError, SchemaError, SchemaState
from app.http.json import json_response

_log = structlog.stdlib.get_logger(__name__)

Check = Callable[[], str]
"""Returns a short text. Raises ``NotReadyError`` or ``DegradedError`` if the check fails."""


class NotReadyError(Exception):
    """A check failed. The text is returned to the caller."""


class DegradedError(Exception):
    """A check failed, but permission calls are answered. The text is returned to the caller."""


def health_blueprint(checks: Mapping[str, Check]) -> Blueprint:
    """``/healthz`` and ``/readyz``. All ``checks`` run, in their order."""
    blueprint = Blueprint("health", __name__)

    @blueprint.get("/healthz")
    def healthz() -> Response:
        return json_response({"status": "ok"})

    @blueprint.get("/readyz")
    def readyz() -> Response:
        results: dict[str, dict[str, str]] = {}
        for name, check in checks.items():
            try:
                results[name] = {"state": "ok", "detail": check()}
            except NotReadyError as error:
                results[name] = {"state": "failed", "detail": str(error)}
            except DegradedError as error:
                results[name] = {"state": "degraded", "detail": str(error)}
            except Exception as error:  # noqa: BLE001 - it is logged
                _log.warning("readiness_check_failed", check=name, **log_fields(error))
                results[name] = {"state": "failed", "detail": public_reason(error)}
        ready = all(result["state"] != "failed" for result in results.values())
        return json_response({"status": "ready" if ready else "not_ready", "checks": results}, 200 if ready else 503)

    return blueprint


def metrics_blueprint(render: Callable[[str], tuple[bytes, str]], require: Callable[[], None] | None) -> Blueprint:
    """``/metrics``. ``render`` returns text and content type for an ``Accept`` header. ``require`` raises to refuse."""
    blueprint = Blueprint("metrics", __name__)

    @blueprint.get("/metrics")
    def metrics() -> Response:
        if require is not None:
            require()
        text, content_type = render(request.headers.get("Accept", ""))
        return Response(text, content_type=content_type, headers={"Vary": "Accept"})

    return blueprint


def readiness_checks(
    engine: Engine,
    clock: Clock,
    schema_state: Callable[[], SchemaState],
    index: AccessIndex | None,
    *,
    max_age: float = 0,
) -> Mapping[str, Check]:
    """The checks. ``max_age`` is the maximum age of the directory, in seconds. 0: any age."""
    checks: Mapping[str, Check] = {
        "database": lambda: _check_database(engine),
        "migrations": lambda: _check_migrations(schema_state),
        "accessModel": lambda: _check_access_model(engine, clock),
        "directory": lambda: _check_directory(engine, clock, max_age),
    }
    if index is None:
        return checks
    checks = {name: _degraded_if_unreachable(check, index) for name, check in checks.items()}
    return {**checks, "index": lambda: _check_index(index)}


def _degraded_if_unreachable(check: Check, index: AccessIndex) -> Check:
    """The check. It is degraded, not failed, if the database cannot be reached while the index answers."""

    def checked() -> str:
        if not index.state.is_used:
            return check()
        try:
            with index.free_turn():
                return check()
        except NoTurnError:
            return "not checked: too many requests are in progress; the index has reached the database"
        except SQLAlchemyError as error:
            if not is_outage(error):
                raise
            message = "the database cannot be reached; permission calls are answered from the index"
            raise DegradedError(message) from error

    return checked


def _check_index(index: AccessIndex) -> str:
    state = index.state
    if not state.is_used:
        cause = "behind the database" if state.revision else "not built yet"
        raise DegradedError(f"{cause}; permission calls are answered from the database")
    return f"revision {state.revision}, equal to the database's {state.staleness or 0:.0f} s ago"


def _check_database(engine: Engine) -> str:
    began = time.perf_counter()
    with reading(engine) as connection:
        connection.execute(select(1))
    return f"{engine.dialect.name} answered in {(time.perf_counter() - began) * 1000:.1f} ms"


def _check_migrations(schema_state: Callable[[], SchemaState]) -> str:
    try:
        state = schema_state()
    except (SchemaError, ForeignDatabaseError) as error:
        raise NotReadyError(str(error)) from error
    if state is SchemaState.OLDER:
        raise NotReadyError("the schema is older than this version: run usher db upgrade")
    return "current" if state is SchemaState.CURRENT else "newer than this version, which can still use it"


def _check_access_model(engine: Engine, clock: Clock) -> str:
    with reading(engine) as connection:
        revision, created_at = latest_revision(connection)
    if created_at is None:
        raise NotReadyError("the directory has never been read: run usher directory refresh")
    return f"revision {revision}, {_age(clock, created_at)} s old"


def _check_directory(engine: Engine, clock: Clock, max_age: float) -> str:
    with reading(engine) as connection:
        states = [state for state in source_states(connection) if state.is_configured]
        pushes = push_states(connection)
    read_at = oldest_good_read(states)
    if read_at is None:
        raise NotReadyError("no source has ever been read successfully")
    age = _age(clock, read_at)
    # This endpoint requires no token, so it contains no names and reasons. Metrics and runs contain them.
    failed = sum(state.last_verdict == FAILED for state in states)
    refused = sum(state.refusal is not None for state in states)
    incremental = sum(state.reports_changes for state in states)
    parts = [f"read successfully {age} s ago"]
    if failed:
        parts.append(f"{failed} of {len(states)} sources failed since")
    if refused:
        parts.append(f"{refused} of {len(states)} refused because of what they would remove")
    if incremental:
        parts.append(f"{incremental} of {len(states)} read incrementally")
    if pushes:
        last = max(push.pushed_at or 0 for push in pushes.values())
        parts.append(f"last push {_age(clock, last)} s ago")
    text = "; ".join(parts)
    if max_age and age > max_age:
        raise NotReadyError(f"{text}; directory.max_age allows {max_age:g} s")
    return text


def _age(clock: Clock, at_ms: int) -> int:
    return max(0, round(clock().timestamp() - at_ms / 1000))
