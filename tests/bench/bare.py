"""The baseline for permission calls: a bare Flask route that parses the same body and returns a fixed response.

Served like the service: ``python -m tests.bench.bare PORT THREADS ANSWER_FILE``.
"""

import sys
from pathlib import Path

from flask import Flask, Response, request

from app.http.gunicorn import ServerOptions, serve


def create_bare(answer_file: str) -> Flask:
    """The app."""
    answer = Path(answer_file).read_bytes()
    app = Flask("bare")

    @app.post("/permissions/check")
    def check() -> Response:
        request.get_json()
        return Response(answer, mimetype="application/json")

    @app.get("/healthz")
    def health() -> str:
        return "ok"

    return app


if __name__ == "__main__":
    port, threads, file = sys.argv[1:]
    serve(lambda: create_bare(file), ServerOptions(port=int(port), workers=1, threads=int(threads), name="bare"))
