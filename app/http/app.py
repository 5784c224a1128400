"""Creates a Flask app with the hooks that both HTTP servers need."""

from collections.abc import Callable, Collection

from flask import Flask, Response, abort, request

from app.http.errors import install_error_handlers
from app.http.request_id import install_request_ids

SECURITY_HEADERS = (("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store"))
"""The headers of every response, unless it sets its own."""


def new_app(name: str, new_id: Callable[[], str], *, frequent: Collection[str] = ()) -> Flask:
    """An app with request ids (see ``install_request_ids`` for the parameters), error envelopes and security headers.

    It rejects alternative spellings of a path, which could bypass the rules of a proxy.
    """
    app = Flask(name, static_folder=None)
    # Flask would treat two slashes in a path as one, and redirect a POST.
    app.url_map.merge_slashes = False
    install_request_ids(app, new_id, frequent=frequent)
    install_error_handlers(app)

    @app.before_request
    def _reject_other_spellings() -> None:
        # Flask would redirect an empty path, and treat two leading slashes as one.
        path = request.environ.get("PATH_INFO", "")
        if not path or path.startswith("//"):
            abort(404)

    @app.after_request
    def _add_security_headers(response: Response) -> Response:
        for header, value in SECURITY_HEADERS:
            # Static files set their own cache control.
            response.headers.setdefault(header, value)
        return response

    return app
