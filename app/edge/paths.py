"""One path, one spelling: what a rule in front of this server forbids has no second name here."""

from flask import Flask, abort, request


def install_path_rules(app: Flask) -> None:
    """Answers 404 to a path that begins with two slashes; the framework alone would take it for the one with one."""

    @app.before_request
    def _refuse() -> None:
        if request.environ.get("PATH_INFO", "").startswith("//"):
            abort(404)
