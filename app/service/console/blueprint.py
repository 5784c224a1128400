"""The blueprint of the console: pages, assets and error pages.

The rest of the service reports errors as JSON envelopes.
"""

from functools import partial

import structlog
from flask import Blueprint, Response, make_response, request
from werkzeug.exceptions import HTTPException, NotFound

from app.contract.errors import ContractError
from app.foundation.database.errors import NoTurnError, is_outage, log_fields
from app.http.request_id import current_request_id
from app.service.console.console import Console, ConsoleParts
from app.service.console.gate import RoleTooLow, SignInNeeded
from app.service.console.oidc.sign_in import MAX_BACK_BYTES
from app.service.console.pages import (  # noqa: F401 - they register their views
    access,
    access_impact,
    audit,
    browse,
    doctor,
    explain,
    held,
    items,
    oidc_sign_in,
    overview,
    parked,
    preferences,
    preview_file,
    run,
    runs,
    search,
    sign_in,
    sources,
    sync,
    system,
    users,
)
from app.service.console.transactions import TooSlowError
from app.service.console.urls import PREFIX, address, go_to
from app.service.console.views import VIEWS
from app.sync.runs.run import RunNotFoundError

_log = structlog.stdlib.get_logger(__name__)

_CACHE_FOREVER = "public, max-age=31536000, immutable"

_TITLES = {
    400: "Bad request",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    413: "Too large",
    415: "Unsupported format",
    429: "Too many requests",
    503: "Not available right now",
}


def console_blueprint(parts: ConsoleParts) -> Blueprint:
    console = Console(parts)
    blueprint = Blueprint("console", __name__, url_prefix=PREFIX)
    console.gate.install(blueprint, VIEWS.upload_limits(blueprint.name))
    _install_errors(blueprint, console)
    VIEWS.install(blueprint, console)

    @blueprint.get("")
    def home() -> Response:
        return go_to(address("overview"))

    @blueprint.get("/assets/<name>")
    def asset(name: str) -> Response:
        asset = console.assets.find(name)
        if asset is None:
            raise NotFound
        content, content_type = asset
        response = make_response(content)
        response.headers["Content-Type"] = content_type
        response.headers["Cache-Control"] = _CACHE_FOREVER
        return response

    @blueprint.route("/<path:_rest>", methods=["GET", "POST"])
    def not_found(_rest: str) -> Response:
        raise NotFound

    return blueprint


def _install_errors(blueprint: Blueprint, console: Console) -> None:
    problem = partial(_show_problem, console)

    @blueprint.errorhandler(SignInNeeded)
    def _to_sign_in(_error: SignInNeeded) -> Response:
        back = request.full_path.rstrip("?") if request.method == "GET" else _page_of_form()
        lost = "1" if console.gate.cookie.value else ""
        return go_to(address("sign_in", to="" if back == address("overview") else back, lost=lost))

    @blueprint.errorhandler(RunNotFoundError)
    def _no_run(_error: RunNotFoundError) -> Response:
        return problem(
            404,
            "There is no such run. It may have been deleted.",
            f"Runs are kept for {console.parts.keep_runs} days after they end.",
            "Unknown run",
        )

    @blueprint.errorhandler(TooSlowError)
    def _too_slow(_error: TooSlowError) -> Response:
        return problem(503, "This page took too long to load.", "Use narrower filters, or try again later.")

    @blueprint.errorhandler(ContractError)
    def _refused(error: ContractError) -> Response:
        return problem(error.http_code, error.message)

    @blueprint.errorhandler(HTTPException)
    def _http(error: HTTPException) -> Response:
        code = error.code or 500
        if code == 404 and error.description == NotFound.description:
            return problem(404, "There is no page at this address.")
        title = "Your role does not allow this" if isinstance(error, RoleTooLow) else None
        return problem(code, _sentence(error), title=title)

    @blueprint.errorhandler(Exception)
    def _failed(error: Exception) -> Response:
        if is_outage(error):
            _log.error("unavailable", **log_fields(error))
            is_busy = isinstance(error, NoTurnError)
            text = "Too many requests are in progress." if is_busy else "The database cannot be reached."
            return problem(503, text, "Try again later." if is_busy else _about_calls(console), uses_database=False)
        _log.error("request_failed", **log_fields(error))
        return problem(
            500, "Something went wrong in the service.", "The service's log contains the details under the request id."
        )


def _show_problem(
    console: Console, status: int, text: str, advice: str = "", title: str | None = None, *, uses_database: bool = True
) -> Response:
    """The page of an error. The operator's page has the menu, the anonymous one needs no database."""
    context = {
        "title": title or _TITLES.get(status, "Something went wrong"),
        "text": text,
        "advice": advice,
        "request_id": current_request_id() or "",
        "is_outage": status == 503,
    }
    try:
        if uses_database and console.gate.slots.is_entered and console.gate.operator() is not None:
            return console.show("problem.html", current="", status=status, **context)
    except Exception as error:  # noqa: BLE001 - it is logged, and the anonymous page is shown
        _log.warning("page_without_frame", **log_fields(error))
    return console.anonymous("problem_alone.html", status=status, **context)


def _about_calls(console: Console) -> str:
    """What an outage of the database means for permission calls."""
    if console.parts.index_state is not None and console.parts.index_state().is_used:
        return "Permission calls are answered from the index meanwhile."
    return "Permission calls fail too until it is back."


def _page_of_form() -> str:
    """The URL of the page of a sent form, with its fields unless they are too long. Empty if none are kept."""
    name = request.path.removeprefix(f"{PREFIX}/")
    fields = {field: request.form.get(field, "") for field in VIEWS.kept_fields(name)}
    if not fields:
        return ""
    url = address(name, **fields)
    return url if len(url) <= MAX_BACK_BYTES else address(name, run=fields.get("run"))


def _sentence(error: HTTPException) -> str:
    text = (error.description or error.name).strip()
    # It is not capitalized: it may begin with an id.
    return text if text.endswith(".") else f"{text}."
