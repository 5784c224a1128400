"""A fake OpenID Connect issuer over HTTP, whose responses tests can change."""

import hmac
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from authlib.oauth2.rfc7636 import create_s256_code_challenge
from flask import Flask, Response, redirect, request
from joserfc import jwk, jwt
from joserfc.util import urlsafe_b64encode
from werkzeug.serving import make_server

CLIENT_ID = "usher"
CLIENT_SECRET = "the-secret-of-the-client"
KEY = jwk.generate_key("EC", "P-256", {"kid": "one", "use": "sig"})
OTHER_KEY = jwk.generate_key("EC", "P-256", {"kid": "one", "use": "sig"})
"""Another key with the same id."""
NEW_KEY = jwk.generate_key("EC", "P-256", {"kid": "two", "use": "sig"})


@cache
def rsa_key() -> Any:
    """An RSA key that is strong enough."""
    return jwk.generate_key("RSA", 2048, {"kid": "rsa"})


@cache
def weak_key() -> Any:
    """An RSA key that is too short."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jwk.generate_key("RSA", 1024, {"kid": "weak"})


@cache
def unusable_keys() -> tuple[Any, ...]:
    """Entries of a JWK set that verify no ID token."""
    rsa, ec = rsa_key().as_dict(private=False), KEY.as_dict(private=False)
    return (
        7,
        None,
        {},
        {"kty": ["RSA"]},
        {"kty": {"RSA": 1}},
        {"kty": "oct", "k": "AAAA", "crv": "P-256"},
        {"kty": "AKP", "alg": "ML-DSA-44", "pub": "AAAA"},
        {"kty": "RSA", "n": 7, "e": "AQAB"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {**rsa, "alg": ["RS256"]},
        {**rsa, "use": ["sig"]},
        {**rsa, "key_ops": {"verify": 1}},
        {**rsa, "use": "enc"},
        {**rsa, "kid": {"a": 1}},
        weak_key().as_dict(private=False),
        {"kty": "EC", "crv": "P-999", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": ["P-256"], "x": "AA", "y": "AA"},
        {**ec, "x": "AAAA"},
        {**ec, "y": "ü"},
        jwk.generate_key("EC", "secp256k1").as_dict(private=False),
        {"kty": "OKP", "crv": "Ed25519", "x": "AA"},
        jwk.generate_key("OKP", "X25519").as_dict(private=False),
        jwk.generate_key("OKP", "X448").as_dict(private=False),
    )


Claims = dict[str, Any]


def signed(claims: Claims, key: Any = KEY) -> str:
    """A valid ID token."""
    return jwt.encode({"alg": "ES256", "kid": key.kid}, claims, key)


def unsigned(claims: Claims) -> str:
    """An ID token with the algorithm none."""
    header, body = (urlsafe_b64encode(json.dumps(part).encode()).decode() for part in ({"alg": "none"}, claims))
    return f"{header}.{body}."


def signed_with_public_key(claims: Claims) -> str:
    """An ID token with an HMAC, whose shared secret is the public key."""
    header = {"alg": "HS256", "kid": "one"}
    text = ".".join(urlsafe_b64encode(json.dumps(part).encode()).decode() for part in (header, claims))
    return f"{text}.{urlsafe_b64encode(hmac.digest(KEY.as_pem(private=False), text.encode(), 'sha256')).decode()}"


def signed_by_another_key(claims: Claims) -> str:
    """An ID token by another key with the same id."""
    return signed(claims, OTHER_KEY)


class _Server:
    """An HTTP server that can be stopped, and started again at the same port."""

    def __init__(self, app: Flask) -> None:
        self.port = 0
        self._app = app
        self.start()

    def start(self) -> None:
        self._server = make_server("127.0.0.1", self.port, self._app, threaded=True)
        self.port = self._server.port
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@dataclass
class FakeIssuer:
    """The issuer. Its fields are the responses, and what it received."""

    server: _Server
    now: Callable[[], float] = time.time
    user: Claims = field(default_factory=lambda: {"sub": "u1", "preferred_username": "mira", "groups": ["ops"]})
    metadata: Claims = field(default_factory=dict)
    """Fields that replace those of the metadata."""
    claims: Claims = field(default_factory=dict)
    """Claims that replace those of the ID token. None: the claim is left out."""
    sign: Callable[[Claims], str] = signed
    keys: list[Any] = field(default_factory=lambda: [KEY])
    raw_keys: list[Any] | None = None
    """The list of keys as it is sent, instead of ``keys``."""
    userinfo: Claims | None = None
    token_answer: Callable[[], Any] | None = None
    """Returns the response of the token endpoint. None: a valid one."""
    broken: frozenset[str] = frozenset()
    """The endpoints that respond with 503."""
    calls: list[str] = field(default_factory=list)
    """The endpoints that were called."""
    codes: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Code → the parameters of its authorization request."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    def reset(self) -> None:
        """Restores the valid responses."""
        vars(self).update(vars(FakeIssuer(self.server, self.now)))

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Refuses connections meanwhile."""
        self.server.stop()
        try:
            yield
        finally:
            self.server.start()

    def authorize(self, url: str) -> dict[str, str]:
        """The parameters of the callback after the user signed in at this URL."""
        parameters = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert parameters["response_type"] == "code"
        assert parameters["code_challenge_method"] == "S256"
        code = f"code{len(self.codes)}"
        self.codes[code] = parameters
        return {"code": code, "state": parameters["state"], "iss": self.url}

    def redeem(self, code: str, verifier: str) -> Any:
        """The response of the token endpoint."""
        parameters = self.codes.pop(code, None)
        if parameters is None:
            return {"error": "invalid_grant"}, 400
        assert create_s256_code_challenge(verifier) == parameters["code_challenge"]
        return {"access_token": "a", "token_type": "Bearer", "id_token": self.id_token(parameters["nonce"])}

    def id_token(self, nonce: str) -> str:
        """The ID token of the user."""
        claims: Claims = {
            "iss": self.url,
            "aud": CLIENT_ID,
            "nonce": nonce,
            "iat": int(self.now()),
            "exp": int(self.now()) + 300,
            **self.user,
            **self.claims,
        }
        return self.sign({name: value for name, value in claims.items() if value is not None})


@contextmanager
def running_issuer() -> Iterator[FakeIssuer]:
    """An issuer whose server runs."""
    app = Flask("issuer")
    issuer = FakeIssuer(_Server(app))

    @app.before_request
    def fail_if_broken() -> Any:
        if request.endpoint in issuer.broken:
            issuer.calls.append(str(request.endpoint))
            return "<h1>Back soon</h1>", 503
        return None

    @app.get("/.well-known/openid-configuration")
    def metadata() -> Any:
        issuer.calls.append("metadata")
        return {
            "issuer": issuer.url,
            "authorization_endpoint": f"{issuer.url}/authorize",
            "token_endpoint": f"{issuer.url}/token",
            "jwks_uri": f"{issuer.url}/keys",
            "userinfo_endpoint": f"{issuer.url}/userinfo",
            "scopes_supported": ["openid", "profile", "groups"],
            "authorization_response_iss_parameter_supported": True,
            **issuer.metadata,
        }

    @app.get("/authorize")
    def authorize() -> Any:
        callback = urlencode(issuer.authorize(request.url))
        return redirect(f"{request.args['redirect_uri']}?{callback}")

    @app.get("/keys")
    def keys() -> Any:
        issuer.calls.append("keys")
        sent = [key.as_dict(private=False) for key in issuer.keys]
        return {"keys": sent if issuer.raw_keys is None else issuer.raw_keys}

    @app.post("/token")
    def token() -> Any:
        issuer.calls.append("token")
        if issuer.token_answer is not None:
            return issuer.token_answer()
        assert request.authorization is not None
        assert (request.authorization.username, request.authorization.password) == (CLIENT_ID, CLIENT_SECRET)
        parameters = issuer.codes.get(request.form["code"])
        assert parameters is None or request.form["redirect_uri"] == parameters["redirect_uri"]
        return issuer.redeem(request.form["code"], request.form["code_verifier"])

    @app.get("/userinfo")
    def userinfo() -> Any:
        issuer.calls.append("userinfo")
        assert request.headers["Authorization"] == "Bearer a"
        return issuer.userinfo or {"sub": issuer.user["sub"]}

    try:
        yield issuer
    finally:
        issuer.server.stop()


def large_response() -> Response:
    """A response of ten megabytes."""
    return Response((b"x" * 65_536 for _ in range(160)), content_type="application/json")


def slow_response() -> Response:
    """A response that takes two seconds, a byte at a time."""

    def lines() -> Iterator[bytes]:
        for _ in range(40):
            yield b" "
            time.sleep(0.05)

    return Response(lines(), content_type="application/json")


def redirect_response() -> Any:
    """A redirect to another address."""
    return redirect("http://127.0.0.1:9/token", 307)


def at_hash(access_token: str) -> str:
    """The claim of an ID token that binds it to an access token."""
    return urlsafe_b64encode(sha256(access_token.encode()).digest()[:16]).decode()
