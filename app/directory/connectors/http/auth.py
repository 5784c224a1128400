"""Authenticates requests: with a token, a password, or access tokens of OAuth 2.0."""

from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Any

import requests
from requests.auth import AuthBase

from app.directory.connector import LoginRefusedError, ReadError
from app.directory.connectors.http.settings import ApiPreset, AuthSettings, service_account
from app.foundation.outbound.failure import CALL_ERRORS, failure_of
from app.foundation.outbound.route import Route
from app.foundation.outbound.session import UnusableResponseError
from app.foundation.text import printable

READ_ERRORS = (*CALL_ERRORS, UnusableResponseError)
"""The errors of a call without a usable response."""

_TEMPORARY = frozenset({"slow_down", "temporarily_unavailable", "server_error"})
"""Errors of a token endpoint that does not refuse the client."""

_LEEWAY = 60.0
"""Seconds before its end at which an access token is replaced."""

_DEFAULT_LIFETIME = 300.0
"""Lifetime of an access token without one, in seconds."""


def call_error(error: Exception, url: str, route: Route, address: str) -> ReadError:
    """The failed read of a call without a usable response. ``address``: the setting with the URL."""
    if isinstance(error, UnusableResponseError):
        return ReadError(f"{address}: {error}; check that it is the address of the API")
    failure = failure_of(error, url, route)
    return ReadError(f"{failure.message}: {failure.advice(address=address, section='the source')}")


def authenticate(
    session: requests.Session, settings: AuthSettings, preset: ApiPreset, token_session: requests.Session, route: Route
) -> None:
    """Authenticates all requests of ``session``. Access tokens are requested with ``token_session``, over ``route``."""
    if token := settings.token.get_secret_value():
        scheme = preset.token_scheme if settings.token_scheme is None else settings.token_scheme
        session.headers[settings.token_header] = f"{scheme} {token}".strip()
    elif settings.username:
        session.auth = (settings.username.encode(), settings.password.get_secret_value().encode())  # type: ignore[assignment] # bytes are sent unchanged
    elif url := settings.token_endpoint():
        scope = preset.scope if settings.scope is None else settings.scope

        def request() -> tuple[str, float]:
            try:
                return _request_token(settings, url, scope, token_session)
            except READ_ERRORS as error:
                raise call_error(error, url, route, "auth.token_url") from None

        session.auth = AccessTokens(request)


class AccessTokens(AuthBase):
    """Sends an access token, which is replaced before it expires. Threads may share it."""

    def __init__(self, request: Callable[[], tuple[str, float]]) -> None:
        """``request``: returns an access token and its lifetime in seconds. Raises ``ReadError``."""
        self._request = request
        self._lock = Lock()
        self._token = ""
        self._ends = 0.0

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        with self._lock:
            if not self._token or monotonic() >= self._ends:
                self._token, lifetime = self._request()
                self._ends = monotonic() + max(lifetime - _LEEWAY, lifetime / 2)
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request

    def forget(self, request: requests.PreparedRequest) -> None:
        """Replaces the token of a request that was refused."""
        with self._lock:
            if request.headers.get("Authorization") == f"Bearer {self._token}":
                self._token = ""


def _request_token(settings: AuthSettings, url: str, scope: str, session: requests.Session) -> tuple[str, float]:
    """A new access token and its lifetime in seconds. Raises ``ReadError`` and ``READ_ERRORS``."""
    token = _fetch_token(settings, url, scope, session)
    access_token, lifetime = token.get("access_token"), token.get("expires_in")
    if not isinstance(access_token, str) or not access_token or not access_token.isascii():
        raise ReadError("auth: the token endpoint answers without an access_token; check token_url")
    if not access_token.isprintable():
        raise ReadError("auth: the access_token contains control characters")
    is_number = isinstance(lifetime, int | float) and 0 < lifetime < 10**9
    return access_token, float(lifetime) if is_number else _DEFAULT_LIFETIME


def _fetch_token(settings: AuthSettings, url: str, scope: str, session: requests.Session) -> Any:
    """The response of the token endpoint. Raises ``ReadError`` and ``READ_ERRORS``."""
    try:
        from authlib.integrations.requests_client.oauth2_session import OAuth2ClientAuth  # noqa: PLC0415 - an extra
        from authlib.oauth2 import OAuth2Error  # noqa: PLC0415 - as above
        from authlib.oauth2.client import OAuth2Client  # noqa: PLC0415 - as above
    except ImportError:
        raise ReadError(
            "auth: the library for OAuth 2.0 is not installed: pip install 'usher[oauth]' adds it"
        ) from None

    client = OAuth2Client(
        session=session,
        client_id=settings.client_id or None,
        client_secret=settings.client_secret.get_secret_value() or None,
        scope=scope or None,
    )
    client.client_auth_class = OAuth2ClientAuth
    client.register_compliance_hook("access_token_response", _not_limited)
    try:
        if settings.client_id:
            return client.fetch_token(url, grant_type="client_credentials")
        grant, assertion = _assertion(settings, scope, url)
        return client.fetch_token(url, grant_type=grant, assertion=assertion)
    except OAuth2Error as error:
        if str(error.error) in _TEMPORARY:
            raise ReadError(f"auth: the token endpoint answers with a temporary error ({error.error})") from None
        raise LoginRefusedError(
            f"auth: the token endpoint refuses the client ({printable(str(error.error), limit=80)}); check"
            f" {'client_id, client_secret' if settings.client_id else 'service_account_key, subject'} and scope"
        ) from None
    except requests.HTTPError as error:
        status = "" if error.response is None else f" ({error.response.status_code})"
        raise ReadError(f"auth: the token endpoint answers with an error{status}") from None
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise ReadError(
            "auth: the token endpoint sends an unusable response (not JSON, or an invalid expires_in); check token_url"
        ) from None


def _not_limited(response: requests.Response) -> requests.Response:
    """Raises ``HTTPError`` if the server limits the rate. Its body may have an error as if it refused the client."""
    if response.status_code == requests.codes.too_many_requests:
        response.raise_for_status()
    return response


def _assertion(settings: AuthSettings, scope: str, url: str) -> tuple[str, str]:
    """The grant type and the signed assertion of a service account. Raises ``ReadError``."""
    from authlib.oauth2.rfc7523 import JWTBearerGrant  # noqa: PLC0415 - an extra
    from joserfc import jwk  # noqa: PLC0415 - as above
    from joserfc.errors import JoseError  # noqa: PLC0415 - as above

    account = service_account(settings.service_account_key)
    header = {"alg": "RS256"} | ({"kid": account["private_key_id"]} if "private_key_id" in account else {})
    try:
        key = jwk.import_key(account["private_key"], "RSA")
        assertion = JWTBearerGrant.sign(
            key, account["client_email"], url, settings.subject or None, claims={"scope": scope}, header=header
        )
    except (JoseError, ValueError, TypeError):
        raise ReadError("auth: the private_key in service_account_key is not an RSA key") from None
    return JWTBearerGrant.GRANT_TYPE, assertion
