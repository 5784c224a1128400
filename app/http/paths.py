"""One path, one spelling: what a rule in front of this server forbids has no second name here."""

from flask import Flask, abort, request


def install_path_rules(app: Flask) -> None:
    """Answers 404 to a path that begins with two slashes, which the framework would take for the one with one, and
    to none at all, which it would redirect."""

    @app.before_request
    def _refuse() -> None:
        path = request.environ.get("PATH_INFO", "")
        if not path or path.startswith("//"):
            abort(404)
