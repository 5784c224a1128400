"""Views: the functions of page modules that answer requests, each with its page and the role that it needs."""

from collections.abc import Callable
from functools import partial

from flask import Blueprint, Response
from sqlalchemy import Connection

from app.service.console.console import Console, route_of
from app.service.console.settings import Role

View = Callable[[Console], Response]


class Views:
    """The views of one module. A view is called with the console, once its role is checked."""

    def __init__(self) -> None:
        self._views: list[tuple[str, str, Role | None, View]] = []

    def get(self, name: str, role: Role | None = Role.VIEWER) -> Callable[[View], View]:
        """Answers GET of this page. ``role`` None: no session is needed."""
        return partial(self._add, "GET", name, role)

    def post(self, name: str, role: Role | None) -> Callable[[View], View]:
        """Answers POST of this page."""
        return partial(self._add, "POST", name, role)

    def read(self, name: str) -> Callable[[Callable[[Console, Connection], Response]], View]:
        """Answers GET of this page for viewers; the view is called in a transaction."""

        def add(view: Callable[[Console, Connection], Response]) -> View:
            def in_transaction(console: Console) -> Response:
                with console.reading() as connection:
                    return view(console, connection)

            return self._add("GET", name, Role.VIEWER, in_transaction)

        return add

    def _add(self, method: str, name: str, role: Role | None, view: View) -> View:
        self._views.append((method, name, role, view))
        return view

    def install(self, blueprint: Blueprint, console: Console) -> None:
        """Adds the routes of these views."""
        for method, name, role, view in self._views:
            answer = partial(_answer, console, role, view)
            blueprint.add_url_rule(route_of(name), f"{method} {name}", answer, methods=[method])


def _answer(console: Console, role: Role | None, view: View) -> Response:
    if role is not None:
        console.gate.required(role)
    return view(console)
