"""Registers the views of the page modules: page, HTTP method and required role.

A page module registers its views when it is imported. A view is called after the operator's role has been checked.
"""

from collections.abc import Callable, Sequence
from functools import partial

from flask import Blueprint, Response
from sqlalchemy import Connection

from app.service.console.console import Console
from app.service.console.settings import Role
from app.service.console.urls import route_of

View = Callable[[Console], Response]


class Views:
    def __init__(self) -> None:
        self._views: list[tuple[str, str, Role | None, View]] = []
        self._upload_limits: dict[str, int] = {}
        self._kept_fields: dict[str, Sequence[str]] = {}

    def get(self, name: str, role: Role | None = Role.VIEWER) -> Callable[[View], View]:
        """Registers the view for GET of a page. ``role`` None: no session is required."""
        return partial(self._add, "GET", name, role)

    def post(
        self, name: str, role: Role | None, *, max_bytes: int = 0, kept: Sequence[str] = ()
    ) -> Callable[[View], View]:
        """Registers the view for POST of a page. ``max_bytes``: the form may contain files, up to this limit. ``kept``:
        the form fields that are kept if the session ended before the form was sent."""
        self._kept_fields[name] = kept
        if max_bytes:
            self._upload_limits[f"POST {name}"] = max_bytes
        return partial(self._add, "POST", name, role)

    def read(self, name: str) -> Callable[[Callable[[Console, Connection], Response]], View]:
        """Registers the view for GET of a page. The view is called in a read transaction."""

        def add(view: Callable[[Console, Connection], Response]) -> View:
            def in_transaction(console: Console) -> Response:
                with console.reading() as connection:
                    return view(console, connection)

            return self._add("GET", name, Role.VIEWER, in_transaction)

        return add

    def _add(self, method: str, name: str, role: Role | None, view: View) -> View:
        self._views.append((method, name, role, view))
        return view

    def kept_fields(self, name: str) -> Sequence[str]:
        return self._kept_fields.get(name, ())

    def upload_limits(self, blueprint: str) -> dict[str, int]:
        """The endpoints of forms that may contain files → the limit of their bodies in bytes."""
        return {f"{blueprint}.{name}": limit for name, limit in self._upload_limits.items()}

    def install(self, blueprint: Blueprint, console: Console) -> None:
        """Adds the routes to the blueprint."""
        for method, name, role, view in self._views:
            endpoint = partial(_call, console, role, view)
            blueprint.add_url_rule(route_of(name), f"{method} {name}", endpoint, methods=[method])


def _call(console: Console, role: Role | None, view: View) -> Response:
    if role is not None:
        console.gate.authorize(role)
    return view(console)


VIEWS = Views()
"""The views of all page modules."""
