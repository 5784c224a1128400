"""The headers that every answer carries, whatever it says."""

from flask import Flask, Response


def install_security_headers(app: Flask) -> None:
    """No guessing of content types anywhere; nothing of an API's answers is kept by a browser or a proxy.

    A view that sets `Cache-Control` itself (static files) keeps what it said.
    """

    @app.after_request
    def _protect(response: Response) -> Response:
        headers = response.headers
        headers["X-Content-Type-Options"] = "nosniff"
        if "Cache-Control" not in headers:
            headers["Cache-Control"] = "no-store"
        return response
