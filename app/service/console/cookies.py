"""The cookies of the console, and the preferences that one of them contains.

Browsers send them over TLS only, except on this machine.
"""

from collections.abc import Mapping
from datetime import timedelta
from operator import contains

from flask import Response, request

from app.foundation.outbound.urls import is_loopback
from app.service.console.settings import ConsoleSettings

PREFERENCES: Mapping[str, tuple[str, ...]] = {
    "theme": ("system", "light", "dark"),
    "times": ("own", "utc"),
    "keys": ("on", "off"),
}
"""Name → allowed values, the default first."""


class Cookie:
    """One cookie for all pages, which scripts cannot read. It is also sent if a link of another site opens a page."""

    def __init__(
        self, name: str, settings: ConsoleSettings, *, max_age: timedelta | None = None, has_prefix: bool = True
    ) -> None:
        """``max_age``: None until the browser is closed. ``has_prefix``: only this host can set the cookie."""
        self._plain_name = name
        self._public_url = settings.public_url
        self._max_age = max_age
        self._has_prefix = has_prefix

    @property
    def value(self) -> str:
        """Its value in the request. Empty: the request has none."""
        return request.cookies.get(self._name, "")

    def set(self, response: Response, value: str) -> None:
        response.set_cookie(
            self._name, value, max_age=self._max_age, secure=self._is_secure, httponly=True, samesite="Lax", path="/"
        )

    def delete(self, response: Response) -> None:
        response.delete_cookie(self._name, secure=self._is_secure, httponly=True, samesite="Lax", path="/")

    @property
    def _name(self) -> str:
        # Browsers accept this prefix only over TLS.
        return f"__Host-{self._plain_name}" if self._has_prefix and self._is_secure else self._plain_name

    @property
    def _is_secure(self) -> bool:
        url = self._public_url or f"//{request.host}"
        return url.startswith("https:") or not is_loopback(url)


class Preferences:
    """The theme, the time zone and the keyboard shortcuts of a browser, also before the sign-in."""

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
