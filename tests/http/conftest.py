"""A small app with all HTTP hooks."""

from collections.abc import Callable
from itertools import count

import pytest
from flask import Flask, Response, request

from app.http.app import new_app
from app.http.body import read_json
from app.http.json import json_response


@pytest.fixture
def app() -> Flask:
    """An app that echoes JSON at /echo. ``fails_with`` adds views that fail."""
    numbers = count(1)
    created = new_app("http", lambda: f"id-{next(numbers)}")
    created.config["MAX_BYTES"] = 200

    @created.post("/echo")
    def _echo() -> Response:
        return json_response(read_json(request, max_bytes=created.config["MAX_BYTES"]))

    @created.get("/healthz")
    def _health() -> Response:
        return json_response({"status": "ok"})

    return created


@pytest.fixture
def fails_with(app: Flask) -> Callable[[Exception], None]:
    """Makes GET /fail raise that error."""

    def install(error: Exception) -> None:
        @app.get("/fail")
        def _fail() -> Response:
            raise error

    return install
