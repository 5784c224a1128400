"""The endpoints of health, readiness and metrics.

``/healthz`` reports that the process runs, and uses nothing else: a process must not be restarted because a database is
unavailable. ``/readyz`` runs all checks and returns 503 if one fails, so that load balancers use other nodes.
"""

from collections.abc import Callable, Mapping

import structlog
from flask import Blueprint, Response, request

from app.foundation.database.errors import log_fields, public_reason
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
