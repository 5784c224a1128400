"""An issuer of OpenID Connect that does what it is told, and a browser's way through it."""

import hmac
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
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
NEW_KEY = jwk.generate_key("EC", "P-256", {"kid": "two", "use": "sig"})
RSA_KEY = jwk.generate_key("RSA", 2048, {"kid": "rsa"})
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that it is weak is the point
    WEAK_KEY = jwk.generate_key("RSA", 1024, {"kid": "weak"})

ODD_KEYS: tuple[Any, ...] = (
    7,
    None,
    {},
    {"kty": ["RSA"]},
    {"kty": {"RSA": 1}},
    {"kty": "oct", "k": "AAAA", "crv": "P-256"},
    {"kty": "AKP", "alg": "ML-DSA-44", "pub": "AAAA"},
    {"kty": "RSA", "n": 7, "e": "AQAB"},
    {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
    {**RSA_KEY.as_dict(private=False), "alg": ["RS256"]},
    {**RSA_KEY.as_dict(private=False), "use": ["sig"]},
    {**RSA_KEY.as_dict(private=False), "key_ops": {"verify": 1}},
    {**RSA_KEY.as_dict(private=False), "use": "enc"},
    {**RSA_KEY.as_dict(private=False), "kid": {"a": 1}},
    WEAK_KEY.as_dict(private=False),
    {"kty": "EC", "crv": "P-999", "x": "AA", "y": "AA"},
    {"kty": "EC", "crv": ["P-256"], "x": "AA", "y": "AA"},
    {**KEY.as_dict(private=False), "x": "AAAA"},
    {**KEY.as_dict(private=False), "y": "ü"},
    jwk.generate_key("EC", "secp256k1").as_dict(private=False),
    {"kty": "OKP", "crv": "Ed25519", "x": "AA"},
    jwk.generate_key("OKP", "X25519").as_dict(private=False),
    jwk.generate_key("OKP", "X448").as_dict(private=False),
)
"""Keys with which no ID token is verified."""

Claims = dict[str, Any]


@dataclass
class Issuer:
    """One issuer, whose answers can be bent."""

    url: str = ""
    now: Callable[[], float] = time.time
    user: Claims = field(default_factory=lambda: {"sub": "u1", "preferred_username": "mira", "groups": ["ops"]})
    metadata: Claims = field(default_factory=dict)
    """What it says of itself otherwise."""
    claims: Claims = field(default_factory=dict)
    """Of the ID token, where they are other ones; None: left out."""
    sign: Callable[[Claims], str] = field(
        default=lambda claims: jwt.encode({"alg": "ES256", "kid": "one"}, claims, KEY)
    )
    keys: list[Any] = field(default_factory=lambda: [KEY])
    raw_keys: list[Any] | None = None
    """The list of keys as it is sent, in place of ``keys``."""
    userinfo: Claims | None = None
    token_answer: Callable[[], Any] | None = None
    broken: frozenset[str] = frozenset()
    """What it has nothing to say to but 503."""
    calls: list[str] = field(default_factory=list)
    codes: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def straighten(self) -> None:
        """As it was made, at the same address."""
        self.__init__(url=self.url, now=self.now)  # type: ignore[misc] # every field anew

    def authorize(self, address: str) -> dict[str, str]:
        """What somebody brings back who signs in at this address."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        code = f"code{len(self.codes)}"
        self.codes[code] = asked
        return {"code": code, "state": asked["state"], "iss": self.url}

    def answer_of(self, code: str, verifier: str) -> Any:
        """The answer of the token endpoint."""
        asked = self.codes.pop(code, None)
        if asked is None:
            return {"error": "invalid_grant"}, 400
        assert create_s256_code_challenge(verifier) == asked["code_challenge"]
        return {"access_token": "a", "token_type": "Bearer", "id_token": self.id_token(asked["nonce"])}

    def id_token(self, nonce: str) -> str:
        """The ID token of the user."""
        said: Claims = {
            "iss": self.url,
            "aud": CLIENT_ID,
            "nonce": nonce,
            "iat": int(self.now()),
            "exp": int(self.now()) + 300,
            **self.user,
            **self.claims,
        }
        return self.sign({name: value for name, value in said.items() if value is not None})


def signed(claims: Claims, key: Any = KEY) -> str:
    """A token as it should be."""
    return jwt.encode({"alg": "ES256", "kid": key.kid}, claims, key)


def unsigned(claims: Claims) -> str:
    """A token with the algorithm none."""
    header, body = (urlsafe_b64encode(json.dumps(part).encode()).decode() for part in ({"alg": "none"}, claims))
    return f"{header}.{body}."


def signed_with_public_key(claims: Claims) -> str:
    """A token that takes the public key for a shared secret."""
    header = {"alg": "HS256", "kid": "one"}
    text = ".".join(urlsafe_b64encode(json.dumps(part).encode()).decode() for part in (header, claims))
    return f"{text}.{urlsafe_b64encode(hmac.digest(KEY.as_pem(private=False), text.encode(), 'sha256')).decode()}"


def signed_by_another_key(claims: Claims) -> str:
    """A token whose key only has the same name."""
    return signed(claims, OTHER_KEY)


@contextmanager
def running() -> Iterator[Issuer]:
    """An issuer that listens."""
    issuer = Issuer()
    app = Flask("issuer")

    @app.before_request
    def break_down() -> Any:
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
        back = issuer.authorize(request.url)
        return redirect(f"{request.args['redirect_uri']}?{urlencode(back)}")

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
        asked = issuer.codes.get(request.form["code"])
        assert asked is None or request.form["redirect_uri"] == asked["redirect_uri"]
        return issuer.answer_of(request.form["code"], request.form["code_verifier"])

    @app.get("/userinfo")
    def userinfo() -> Any:
        issuer.calls.append("userinfo")
        assert request.headers["Authorization"] == "Bearer a"
        return issuer.userinfo or {"sub": issuer.user["sub"]}

    server = _Server(app)
    issuer.url = f"http://127.0.0.1:{server.port}"
    _SERVERS[issuer.url] = server
    try:
        yield issuer
    finally:
        server.stop()


@contextmanager
def away(issuer: Issuer) -> Iterator[None]:
    """Nothing listens at its address meanwhile."""
    server = _SERVERS[issuer.url]
    server.stop()
    try:
        yield
    finally:
        server.start()


class _Server:
    """One that may go away and come back at its port."""

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


_SERVERS: dict[str, _Server] = {}
"""By the address of their issuer."""


def huge() -> Response:
    """Ten megabytes."""
    return Response((b"x" * 65_536 for _ in range(160)), content_type="application/json")


def endless() -> Response:
    """An answer that drips for seconds."""

    def drip() -> Iterator[bytes]:
        for _ in range(40):
            yield b" "
            time.sleep(0.05)

    return Response(drip(), content_type="application/json")


def elsewhere() -> Any:
    """On to another address."""
    return redirect("http://127.0.0.1:9/token", 307)


def at_hash(token: str) -> str:
    """What an ID token says of the access token beside it."""
    return urlsafe_b64encode(sha256(token.encode()).digest()[:16]).decode()
