"""The endpoints of health: whether this process lives, can answer, and how it is doing.

``/healthz`` says that the process lives and touches nothing else: who restarts processes by it must not restart them
because a database is away. ``/readyz`` runs every check and is 503 as soon as one fails: who sends requests by it sends
them elsewhere meanwhile.
"""

from collections.abc import Callable, Mapping

import structlog
from flask import Blueprint, Response, request

from app.database.trouble import log_fields, outage_in_words
from app.edge.json import json_response

Check = Callable[[], str]
"""Gives one phrase about what it found; raises when what it looks at is not as it must be."""


class NotReadyError(Exception):
    """A check failed; the text is for whoever asks."""


def health_blueprint(checks: Mapping[str, Check]) -> Blueprint:
    """``/healthz`` and ``/readyz``; ``checks`` run in their order, all of them."""
    blueprint = Blueprint("health", __name__)
    log = structlog.stdlib.get_logger(__name__)

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
            except Exception as error:  # noqa: BLE001 - log_fields tells all of it
                log.warning("readiness_check_failed", check=name, **log_fields(error))
                results[name] = {"state": "failed", "detail": outage_in_words(error)}
        ready = all(result["state"] == "ok" for result in results.values())
        return json_response({"status": "ready" if ready else "not_ready", "checks": results}, 200 if ready else 503)

    return blueprint


def metrics_blueprint(render: Callable[[str], tuple[bytes, str]], require: Callable[[], None] | None) -> Blueprint:
    """``/metrics``; ``render`` gives the text that an ``Accept`` header asks for and its content type, ``require``
    raises for whoever may not see it, None: everyone may."""
    blueprint = Blueprint("metrics", __name__)

    @blueprint.get("/metrics")
    def metrics() -> Response:
        if require is not None:
            require()
        text, content_type = render(request.headers.get("Accept", ""))
        return Response(text, content_type=content_type, headers={"Vary": "Accept"})

    return blueprint
