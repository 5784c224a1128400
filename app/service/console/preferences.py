"""Preferences of operators: theme, time zone and keyboard shortcuts. They are in a cookie, also before the sign-in."""

from collections.abc import Mapping
from datetime import timedelta
from operator import contains

from flask import Response

from app.service.console.cookies import Cookie
from app.service.console.settings import ConsoleSettings

PREFERENCES: Mapping[str, tuple[str, ...]] = {
    "theme": ("system", "light", "dark"),
    "times": ("own", "utc"),
    "keys": ("on", "off"),
}
"""Name → allowed values, the default first."""


class Preferences:
    """The preferences of the browser that sent a request."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._cookie = Cookie("usher-look", settings, max_age=timedelta(days=365), has_prefix=False)

    def read(self) -> dict[str, str]:
        """The value of each preference, or the defaults if the cookie is missing or invalid."""
        values = self._cookie.value.split(".")
        if len(values) == len(PREFERENCES) and all(map(contains, PREFERENCES.values(), values)):
            return dict(zip(PREFERENCES, values, strict=True))
        return {name: allowed[0] for name, allowed in PREFERENCES.items()}

    def save(self, response: Response, form: Mapping[str, str]) -> None:
        """Stores the preferences of a form. Invalid values are ignored."""
        valid = {name: form[name] for name, allowed in PREFERENCES.items() if form.get(name) in allowed}
        self._cookie.set(response, ".".join((self.read() | valid).values()))
