"""The cookies of the console. Browsers send them over TLS only, except on this machine."""

from datetime import timedelta

from flask import Response, request

from app.foundation.outbound.urls import is_loopback
from app.service.console.settings import ConsoleSettings


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
        """Sets the cookie."""
        response.set_cookie(
            self._name, value, max_age=self._max_age, secure=self._is_secure, httponly=True, samesite="Lax", path="/"
        )

    def delete(self, response: Response) -> None:
        """Deletes the cookie."""
        response.delete_cookie(self._name, secure=self._is_secure, httponly=True, samesite="Lax", path="/")

    @property
    def _name(self) -> str:
        # Browsers accept this prefix only over TLS.
        return f"__Host-{self._plain_name}" if self._has_prefix and self._is_secure else self._plain_name

    @property
    def _is_secure(self) -> bool:
        url = self._public_url or f"//{request.host}"
        return url.startswith("https:") or not is_loopback(url)
