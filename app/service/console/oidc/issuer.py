"""The client of the issuer: creates sign-in URLs, and verifies the answers of users who return.

Authlib makes the requests of the code flow. Metadata and keys of the issuer are cached.
"""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson
import requests
from authlib.integrations.requests_client.oauth2_session import OAuth2ClientAuth
from authlib.oauth2.client import OAuth2Client
from joserfc import jwt

from app.foundation.clock import Clock
from app.foundation.outbound.route import Route
from app.foundation.outbound.session import bare_session
from app.foundation.outbound.urls import is_http_url, is_loopback
from app.service.console.oidc.cache import MAX_AGE, Cached
from app.service.console.oidc.calls import CallThreads, IssuerAwayError, IssuerError, bounded_session
from app.service.console.oidc.id_token import IdToken, library_call, valid_claims, verifying_keys
from app.service.console.oidc.sign_in import Attempt, Identity, groups_in, identity_from_claims
from app.service.console.settings import OidcSettings

_KEYS_MIN_AGE = 30.0
"""Seconds after which keys are read again because a key id is unknown."""
_OPTIONAL_SCOPES = ("profile", "email", "groups")
_DEFAULT_AUTH_METHODS = frozenset({"client_secret_basic"})
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


@dataclass(frozen=True, slots=True)
class _Metadata:
    """The issuer's metadata (its discovery document)."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str
    scopes: frozenset[str]
    auth_methods: frozenset[str]
    sends_iss: bool


class Issuer:
    """The configured issuer. Its methods raise ``IssuerError``, and return within a few seconds."""

    def __init__(self, settings: OidcSettings, *, redirect_uri: str, clock: Clock, max_calls: int = 1) -> None:
        """``max_calls``: the number of sign-ins that may wait for the issuer at a time."""
        self.settings = settings
        self.redirect_uri = redirect_uri
        self._clock = clock
        self._route = Route(settings.ca_file, settings.proxy)
        self._threads = CallThreads(max_calls)
        self._metadata = Cached[_Metadata]("metadata")
        self._keys = Cached[Sequence[Any]]("keys")

    def sign_in_url(self, attempt: Attempt) -> str:
        """The URL that the browser of this attempt is redirected to."""
        metadata = self._metadata.get(lambda: self._threads.run(self._fresh_metadata))
        scopes = self.settings.scopes or [scope for scope in _OPTIONAL_SCOPES if scope in metadata.scopes]
        url, _ = self._client(bare_session(), metadata).create_authorization_url(
            metadata.authorization_endpoint,
            state=attempt.state,
            nonce=attempt.nonce,
            code_verifier=attempt.verifier,
            scope=" ".join(dict.fromkeys(["openid", *scopes])),
        )
        return str(url)

    def count_keys(self) -> int:
        """The number of keys that can verify ID tokens, without the cache. The doctor calls it."""

        def read() -> int:
            with bounded_session(self._route) as session:
                return len(self._read_keys(session, self._read_metadata(session)))

        return self._threads.run(read)

    def identity(self, attempt: Attempt, *, code: str, iss: str | None, is_throttled: bool = False) -> Identity:
        """The user who returned with this code. ``iss``: the issuer in the callback (RFC 9207). ``is_throttled``: the
        caller failed too often, and must not delay other sign-ins."""
        if iss is not None and iss != self.settings.issuer:
            raise IssuerError("the answer is from another issuer (iss)")
        return self._threads.run(
            lambda: self._identity(attempt, code, has_iss=iss is not None), is_throttled=is_throttled
        )

    def _identity(self, attempt: Attempt, code: str, *, has_iss: bool) -> Identity:
        with bounded_session(self._route) as session:
            # The sign-in page used the metadata minutes ago, so that older metadata is good enough here.
            metadata = self._metadata.get(lambda: self._read_metadata(session), max_age=MAX_AGE)
            if metadata.sends_iss and not has_iss:
                raise IssuerError("the answer does not contain its issuer (iss)")
            client = self._client(session, metadata)
            with library_call():
                token = client.fetch_token(
                    metadata.token_endpoint, code=code, code_verifier=attempt.verifier, grant_type="authorization_code"
                )
            if not isinstance(token, dict):
                raise IssuerError("its answer contains no ID token")
            claims = valid_claims(
                self._verify(session, metadata, IdToken(token.get("id_token"))),
                issuer=self.settings.issuer,
                client_id=self.settings.client_id,
                nonce=attempt.nonce,
                access_token=token.get("access_token"),
                now=self._clock(),
            )
            groups = groups_in(claims, self.settings.groups_claim)
            if groups is None:
                groups = self._groups_by_userinfo(session, metadata, token, claims)
            return identity_from_claims(claims, groups, self.settings)

    def _client(self, session: requests.Session, metadata: _Metadata) -> Any:
        secret = self.settings.client_secret.get_secret_value()
        method = "client_secret_basic" if secret else "none"
        if secret and "client_secret_basic" not in metadata.auth_methods:
            method = "client_secret_post"
        return _Client(
            session,
            client_id=self.settings.client_id,
            client_secret=secret or None,
            token_endpoint_auth_method=method,
            redirect_uri=self.redirect_uri,
            code_challenge_method="S256",
        )

    def _fresh_metadata(self) -> _Metadata:
        with bounded_session(self._route) as session:
            return self._read_metadata(session)

    def _read_metadata(self, session: requests.Session) -> _Metadata:
        document = _get(session, f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration")
        if document.get("issuer") != self.settings.issuer:
            raise IssuerError("its metadata contains another issuer than console.oidc.issuer (.well-known)")
        is_plain = self.settings.issuer.startswith("http:")
        for name in (*_ENDPOINTS, "userinfo_endpoint"):
            url = document.get(name, "")
            is_needed = name in _ENDPOINTS or url
            if not isinstance(url, str) or (is_needed and not _is_usable(url, is_plain=is_plain)):
                raise IssuerError(f"its {name} is not a usable URL")
        return _Metadata(
            **{name: document[name] for name in _ENDPOINTS},
            userinfo_endpoint=document.get("userinfo_endpoint", ""),
            scopes=_texts(document.get("scopes_supported")),
            auth_methods=_texts(document.get("token_endpoint_auth_methods_supported")) or _DEFAULT_AUTH_METHODS,
            sends_iss=document.get("authorization_response_iss_parameter_supported") is True,
        )

    def _verify(self, session: requests.Session, metadata: _Metadata, token: IdToken) -> jwt.Token:
        verified = token.verified(self._keys.get(lambda: self._read_keys(session, metadata)))
        if verified is None and self._keys.age > _KEYS_MIN_AGE:
            # The issuer may have new keys.
            keys = self._keys.get(lambda: self._read_keys(session, metadata), max_age=_KEYS_MIN_AGE)
            verified = token.verified(keys)
        if verified is None:
            raise IssuerError("the ID token is not signed by one of its keys")
        return verified

    def _read_keys(self, session: requests.Session, metadata: _Metadata) -> Sequence[Any]:
        descriptions = _get(session, metadata.jwks_uri).get("keys")
        if not isinstance(descriptions, list):
            raise IssuerAwayError("its key set contains no list of keys")
        return verifying_keys(descriptions)

    def _groups_by_userinfo(
        self, session: requests.Session, metadata: _Metadata, token: Mapping[str, Any], claims: Mapping[str, Any]
    ) -> list[str]:
        access_token = token.get("access_token")
        if not metadata.userinfo_endpoint or not isinstance(access_token, str):
            return []
        userinfo = _get(session, metadata.userinfo_endpoint, {"Authorization": f"Bearer {access_token}"})
        if not isinstance(userinfo.get("sub"), str) or not hmac.compare_digest(
            userinfo["sub"].encode("utf-8", "surrogatepass"), str(claims["sub"]).encode("utf-8", "surrogatepass")
        ):
            raise IssuerError("the userinfo is about another subject (sub)")
        return groups_in(userinfo, self.settings.groups_claim) or []


class _Client(OAuth2Client):  # type: ignore[misc] # it has no types
    """Authlib's client, with its authentication for ``requests``."""

    client_auth_class = OAuth2ClientAuth


def _get(session: requests.Session, url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    with library_call():
        response = session.get(url, headers={"Accept": "application/json", **(headers or {})}, allow_redirects=False)
    if response.status_code != requests.codes.ok:
        raise IssuerAwayError(f"it answers with HTTP {response.status_code}")
    try:
        body = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        raise IssuerAwayError("its answer is not a JSON object")
    return body


def _is_usable(url: str, *, is_plain: bool) -> bool:
    """``is_plain``: the issuer is on this machine, without TLS."""
    if not is_http_url(url) or "@" in (parts := urlsplit(url)).netloc:
        return False
    return parts.scheme == "https" or (is_plain and is_loopback(url))


def _texts(value: object) -> frozenset[str]:
    return frozenset(text for text in value if isinstance(text, str)) if isinstance(value, list) else frozenset()
