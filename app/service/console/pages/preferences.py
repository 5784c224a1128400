"""The preferences of the operator's browser, and the page of keyboard shortcuts."""

from flask import Response, request

from app.service.console.console import Console
from app.service.console.settings import Role
from app.service.console.urls import go_to, query, safe_back
from app.service.console.views import VIEWS


@VIEWS.post("look", Role.VIEWER)
def set_preferences(console: Console) -> Response:
    response = go_to(safe_back(request.form.get("back", "")))
    console.preferences.save(response, request.form)
    return response


@VIEWS.get("keys")
def keys(console: Console) -> Response:
    query()
    return console.show("keys.html")
