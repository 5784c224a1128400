"""The issuer: where people are sent, and what it says of those who come back.

Authlib makes the requests of the code flow and judges the ID token's claims, joserfc its signature. What the issuer
says of itself, and its keys, outlive an instant in which it is away; a key that is not known is asked for at once, but
not again and again.
"""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson
import requests
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.requests_client.oauth2_session import OAuth2ClientAuth
from authlib.oauth2.client import OAuth2Client
from authlib.oidc.core import CodeIDToken
from joserfc import jwk, jwt
from joserfc.errors import JoseError
from joserfc.util import urlsafe_b64decode

from app.foundation.clock import Clock
from app.foundation.outbound.route import Route
from app.foundation.outbound.session import bare_session
from app.service.console.oidc.calls import KEPT, Aside, IssuerAwayError, IssuerError, LastKnown, bounded_session
from app.service.console.oidc.sign_in import Attempt, Identity, groups_in, identity_of
from app.service.console.settings import OidcSettings

_AGAIN = 30.0
"""Seconds until keys are asked for again because one was not known."""
_LEEWAY = 60
"""Seconds by which two clocks may differ."""
_MOST_KEYS = 50
_LONGEST_TOKEN = 64 * 1024
_WANTED_SCOPES = ("profile", "email", "groups")
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]
"""Those with a key of which the public half is enough: none, and the ones with a shared key, are none of them."""
_CURVES = frozenset({"P-256", "P-384", "P-521", "Ed25519"})
_FEWEST_RSA_BITS = 2048
_MALFORMED = (JoseError, ValueError, TypeError, KeyError, AttributeError)
"""What the library raises for a key that is malformed or of an unknown kind."""
_BASIC = frozenset({"client_secret_basic"})
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_ODD = (
    AuthlibBaseError,
    JoseError,
    requests.RequestException,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    RecursionError,
)
"""What the libraries raise for answers that are not as they should be."""


@dataclass(frozen=True, slots=True)
class _Metadata:
    """What the issuer says of itself."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str
    scopes: frozenset[str]
    auth_methods: frozenset[str]
    tells_iss: bool


class Issuer:
    """One issuer, as the settings name it. Every call raises ``IssuerError``, and none waits for long."""

    def __init__(self, settings: OidcSettings, *, redirect_uri: str, clock: Clock, at_once: int = 1) -> None:
        """``at_once``: how many sign-ins may wait for it at the same time."""
        self.settings = settings
        self.redirect_uri = redirect_uri
        self._clock = clock
        self._route = Route(settings.ca_file, settings.proxy)
        self._aside = Aside(at_once)
        self._metadata = LastKnown[_Metadata]("metadata")
        self._keys = LastKnown[Sequence[Any]]("keys")

    def sign_in_address(self, attempt: Attempt) -> str:
        """Where the browser of this attempt is sent."""
        metadata = self._metadata.get(lambda: self._aside.do(self._fresh_metadata))
        scopes = self.settings.scopes or [one for one in _WANTED_SCOPES if one in metadata.scopes]
        client = self._client(bare_session(), metadata)
        address, _ = client.create_authorization_url(
            metadata.authorization_endpoint,
            state=attempt.state,
            nonce=attempt.nonce,
            code_verifier=attempt.verifier,
            scope=" ".join(dict.fromkeys(["openid", *scopes])),
        )
        return str(address)

    def look(self) -> int:
        """How many keys it signs with, asked anew."""

        def read() -> int:
            with bounded_session(self._route) as session:
                try:
                    return len(self._read_keys(session, self._read_metadata(session)))
                except _ODD as error:
                    raise IssuerError(_phrase(error)) from error

        return self._aside.do(read)

    def identity(self, attempt: Attempt, *, code: str, iss: str | None, is_throttled: bool = False) -> Identity:
        """The user who came back with this code. ``iss``: the issuer that the answer names (RFC 9207);
        ``is_throttled``: the caller has failed too often to wait for other sign-ins."""
        if iss is not None and iss != self.settings.issuer:
            raise IssuerError("the answer says that it comes from another issuer (iss)")
        return self._aside.do(
            lambda: self._identity(attempt, code, is_named=iss is not None), is_throttled=is_throttled
        )

    def _identity(self, attempt: Attempt, code: str, *, is_named: bool) -> Identity:
        with bounded_session(self._route) as session:
            try:
                # Whoever comes back was sent there by it, perhaps by another process: it need not be asked anew.
                metadata = self._metadata.get(lambda: self._read_metadata(session), fresh=KEPT)
                if metadata.tells_iss and not is_named:
                    raise IssuerError("the answer does not say from which issuer it comes (iss)")
                token = self._client(session, metadata).fetch_token(
                    metadata.token_endpoint, code=code, code_verifier=attempt.verifier, grant_type="authorization_code"
                )
                claims = self._claims(session, metadata, token, attempt.nonce)
                groups = groups_in(claims, self.settings.groups_claim)
                if groups is None:
                    groups = self._groups_by_userinfo(session, metadata, token, claims)
                return identity_of(claims, groups, self.settings)
            except requests.RequestException as error:
                # Such as its HTTP 500, for which the caller is not to blame.
                raise IssuerAwayError(_phrase(error)) from error
            except _ODD as error:
                raise IssuerError(_phrase(error)) from error

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
        try:
            with bounded_session(self._route) as session:
                return self._read_metadata(session)
        except _ODD as error:
            raise IssuerError(_phrase(error)) from error

    def _read_metadata(self, session: requests.Session) -> _Metadata:
        found = _get(session, f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != self.settings.issuer:
            raise IssuerError("it calls itself otherwise than console.oidc.issuer does (.well-known)")
        is_plain = self.settings.issuer.startswith("http:")
        for name in (*_ENDPOINTS, "userinfo_endpoint"):
            url = found.get(name, "")
            is_needed = name in _ENDPOINTS or url
            if not isinstance(url, str) or (is_needed and not _is_address(url, is_plain=is_plain)):
                raise IssuerError(f"its {name} is no address that can be used")
        return _Metadata(
            **{name: found[name] for name in _ENDPOINTS},
            userinfo_endpoint=found.get("userinfo_endpoint", ""),
            scopes=_texts(found.get("scopes_supported")),
            auth_methods=_texts(found.get("token_endpoint_auth_methods_supported")) or _BASIC,
            tells_iss=found.get("authorization_response_iss_parameter_supported") is True,
        )

    def _claims(
        self, session: requests.Session, metadata: _Metadata, token: Mapping[str, Any], nonce: str
    ) -> Mapping[str, Any]:
        """What the ID token says, when it is from this issuer, for this client, of this sign-in and of now."""
        text = token.get("id_token")
        if not isinstance(text, str) or len(text) > _LONGEST_TOKEN:
            raise IssuerError("it gives no ID token")
        header = _header(text)
        decoded = self._verified(session, metadata, text, header)
        options = {
            "iss": {"essential": True, "value": self.settings.issuer},
            "aud": {"essential": True, "value": self.settings.client_id},
            "nonce": {"essential": True, "value": nonce},
        }
        params = {
            "nonce": nonce,
            "client_id": self.settings.client_id,
            "access_token": token.get("access_token"),
        }
        claims = CodeIDToken(decoded.claims, decoded.header, options, params)
        claims.validate(now=int(self._clock().timestamp()), leeway=_LEEWAY)
        if not claims["sub"]:
            raise IssuerError("the ID token names nobody (sub)")
        return dict(claims)

    def _verified(self, session: requests.Session, metadata: _Metadata, text: str, header: Mapping[str, Any]) -> Any:
        if header.get("alg") not in _ALGORITHMS:
            raise IssuerError("the ID token is not signed in a way that its public keys can prove (alg)")
        kid = header.get("kid")
        found = _by_one_of(self._keys.get(lambda: self._read_keys(session, metadata)), text, kid)
        if found is None and self._keys.age > _AGAIN:
            # It may have new ones since.
            found = _by_one_of(self._keys.get(lambda: self._read_keys(session, metadata), fresh=_AGAIN), text, kid)
        if found is None:
            raise IssuerError("the ID token is not signed by one of its keys")
        return found

    def _read_keys(self, session: requests.Session, metadata: _Metadata) -> Sequence[Any]:
        found = _get(session, metadata.jwks_uri).get("keys")
        if not isinstance(found, list):
            raise IssuerAwayError("it gives no list of keys")
        return [key for one in found[:_MOST_KEYS] if (key := _verifying_key(one)) is not None]

    def _groups_by_userinfo(
        self, session: requests.Session, metadata: _Metadata, token: Mapping[str, Any], claims: Mapping[str, Any]
    ) -> list[str]:
        access_token = token.get("access_token")
        if not metadata.userinfo_endpoint or not isinstance(access_token, str):
            return []
        found = _get(session, metadata.userinfo_endpoint, {"Authorization": f"Bearer {access_token}"})
        if not isinstance(found.get("sub"), str) or not hmac.compare_digest(
            found["sub"].encode("utf-8", "surrogatepass"), str(claims["sub"]).encode("utf-8", "surrogatepass")
        ):
            raise IssuerError("the userinfo is about somebody else (sub)")
        return groups_in(found, self.settings.groups_claim) or []


class _Client(OAuth2Client):  # type: ignore[misc] # it has no types
    """Authlib's client, with credentials shown as ``requests`` wants them."""

    client_auth_class = OAuth2ClientAuth


def _get(session: requests.Session, url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    answer = session.get(url, headers={"Accept": "application/json", **(headers or {})}, allow_redirects=False)
    if answer.status_code != requests.codes.ok:
        raise IssuerAwayError(f"it answers with HTTP {answer.status_code}")
    try:
        found = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise IssuerAwayError("its answer is no JSON object")
    return found


def _is_address(url: str, *, is_plain: bool) -> bool:
    parts = urlsplit(url)
    return bool(parts.netloc) and (parts.scheme == "https" or (is_plain and parts.scheme == "http"))


def _header(text: str) -> Mapping[str, Any]:
    found = orjson.loads(urlsafe_b64decode(text.partition(".")[0].encode("ascii")))
    if not isinstance(found, dict):
        raise IssuerError("it gives no ID token")
    return found


def _verifying_key(described: Any) -> Any:
    """The key that a JWK describes; None if it cannot verify ID tokens."""
    try:
        key: Any = jwk.import_key(described) if _is_for_signatures(described) else None
    except _MALFORMED:
        return None
    is_weak = key is not None and described["kty"] == "RSA" and key.public_key.key_size < _FEWEST_RSA_BITS
    return None if is_weak else key


def _is_for_signatures(described: Any) -> bool:
    kind = described["kty"]
    return (
        (kind == "RSA" or (kind in ("EC", "OKP") and described["crv"] in _CURVES))
        and described.get("use", "sig") == "sig"
        and "verify" in described.get("key_ops", ["verify"])
        and described.get("alg", _ALGORITHMS[0]) in _ALGORITHMS
    )


def _by_one_of(keys: Sequence[Any], text: str, kid: object) -> Any:
    """The token, where one of these keys signed it; else None."""
    for key in keys:
        if kid is not None and key.kid != kid:
            continue
        try:
            return jwt.decode(text, key, algorithms=_ALGORITHMS)
        except _MALFORMED:
            continue
    return None


def _texts(value: object) -> frozenset[str]:
    return frozenset(one for one in value if isinstance(one, str)) if isinstance(value, list) else frozenset()


def _phrase(error: Exception) -> str:
    """An error of the libraries for the log: which one, and the claim or code that it is about, never a token."""
    what = getattr(error, "claim", "") or getattr(error, "error", "")
    told = what if isinstance(what, str) and what.isascii() and what.isprintable() and len(what) <= 60 else ""
    return f"its answer is not in order ({told or type(error).__name__})"
