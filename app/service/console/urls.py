"""The URLs of the console's pages, and the query parameters of requests."""

import re
from collections.abc import Sequence
from urllib.parse import quote, urlencode

from flask import Response, make_response, redirect, request
from werkzeug.exceptions import BadRequest, NotFound

from app.foundation.text import named

PREFIX = "/console"

_ORDINAL = re.compile(r"[0-9]{1,18}")
_ROUTES = {
    "overview": "/",
    "access_csv": "/access.csv",
    "audit_lines": "/audit.jsonl",
    "oidc_back": "/oidc/back",
    "ledger_item": "/told",
}
"""The routes of pages whose route does not follow from their name."""


def route_of(name: str) -> str:
    """The route of a page below ``PREFIX``."""
    return _ROUTES.get(name, f"/{name.replace('_', '-')}")


def address(name: str, **parameters: object) -> str:
    """The URL of a page. Empty parameters are left out. Ids are parameters because a path cannot contain every id."""
    path = PREFIX + route_of(name)
    present = {key: value for key, value in parameters.items() if value not in {None, ""}}
    return f"{path}?{urlencode(present, quote_via=quote, errors='surrogatepass')}" if present else path


def query(*names: str) -> dict[str, str]:
    """The query parameters, with empty strings for missing ones. Raises ``BadRequest`` for unknown or repeated ones."""
    for name in request.args:
        if name not in names:
            allowed = ", ".join(names) or "none"
            raise BadRequest(f"{named(name, limit=80)} is not a parameter of this page; allowed: {allowed}")
        if len(request.args.getlist(name)) > 1:
            raise BadRequest(f"{name} occurs more than once")
    return {name: request.args.get(name, "") for name in names}


def one_of(value: str, values: Sequence[str], label: str) -> str:
    """The value, which may be empty. Raises ``BadRequest`` for an unknown one."""
    if value and value not in values:
        advice = f"one of {', '.join(values)}" if len(values) > 1 else f"{values[0]}, or leave it out"
        raise BadRequest(f"{label} {named(value, limit=80)} is unknown; use {advice}")
    return value


def parse_ordinal(value: str) -> int | None:
    """The number of an item. None: the value is empty. Raises ``NotFound`` for an invalid number."""
    if not value:
        return None
    if not _ORDINAL.fullmatch(value):
        raise NotFound("This is not the number of an item")
    return int(value)


def go_to(url: str) -> Response:
    """Redirects to another page, which the browser opens by GET."""
    response = make_response(redirect(url, 303))
    response.headers["Cache-Control"] = "no-store"
    return response


def safe_back(url: str) -> str:
    """The URL if it is a page of this console other than the sign-in. Otherwise that of the overview."""
    is_ours = url.startswith((f"{PREFIX}/", f"{PREFIX}?")) and "\\" not in url and url.isprintable()
    return url if is_ours and not url.startswith(address("sign_in")) else address("overview")
