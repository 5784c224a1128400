"""Fuzzer: generates requests from the OpenAPI documents, mutates them, and checks each response.

Everything is generated from one seed, so failures are reproducible. Some requests come from schemathesis (valid and
invalid ones), the others are mutated valid bodies and noise.
"""

import gc
import json
import random
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psutil
import schemathesis
from flask import Flask
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from pydantic import SecretStr
from schemathesis.core import NotSet
from schemathesis.generation import GenerationMode
from sqlalchemy import text

from app.access.problem_list import ProblemList
from app.access.records import Document, Membership, Organization, Record, User
from app.access.refresh.reads import ReadResult
from app.access.refresh.refresh import Refresh
from app.backend.app import create_backend
from app.backend.security.outgoing import open_session
from app.backend.settings import SelfHostedBackendSettings
from app.commands.bootstrap.databases import BACKEND_MIGRATIONS, STORE_MIGRATIONS
from app.commands.bootstrap.service import service_app
from app.contract.operations import by_name
from app.foundation.database.engine import open_engine, writing
from app.foundation.database.migrations import upgrade
from app.service.admin.settings import AdminSettings
from app.service.provider.settings import ProviderSettings
from app.settings import Settings

SLOWEST = 10.0
"""Seconds after which an answer counts as a hang, on the most crowded machine."""
MB = 1024 * 1024

DRAWN = 4
"""One of so many cases is of schemathesis' making, which takes it a hundred times as long as bending one."""


@schemathesis.serializer("application/jsonl", "application/x-ndjson")
def as_lines(_context: Any, value: object) -> bytes:
    """A generated value as JSON Lines."""
    if isinstance(value, bytes):
        return value
    items = value if isinstance(value, list) else [value]
    return b"\n".join(json.dumps(item).encode() for item in items)


Headers = dict[str, str]


@dataclass
class Target:
    """An application under test."""

    name: str
    app: Flask
    document: Mapping[str, Any]
    credentials: Headers
    tidy: Callable[[], None]
    """Removes what the cases left behind: what is stored must not be mistaken for memory that leaks."""
    operations: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        found = schemathesis.openapi.from_dict(dict(self.document)).get_all_operations()
        self.operations = [one.ok() for one in found]  # type: ignore[union-attr]  # what is not well fails here


@dataclass(frozen=True)
class Sent:
    """One request."""

    method: str
    path: str
    headers: Headers
    body: bytes

    def description(self) -> str:
        return f"{self.method} {self.path!a} {self.headers} {self.body[:500]!a}"


def service(folder: Path) -> Target:
    """The service, with a directory in it."""
    engine = open_engine(f"sqlite:///{folder / 'usher.db'}")
    upgrade(engine, STORE_MIGRATIONS)
    records: list[Record] = [
        Organization(organization_id="acme", organization_name="Acme"),
        User(user_id="ada", name="Ada", email="ada@acme.example"),
        Membership(organization_id="acme", user_id="ada"),
        Document(organization_id="acme", document_id="plan", document_name="Plan"),
    ]
    clock = partial(datetime.now, UTC)
    with Refresh(engine, clock=clock, problems=ProblemList()) as reading:
        reading.begin(["company"])
        for number, record in enumerate(records):
            reading.staging.add(record, f"company:{number}")
        reading.staging.end(ReadResult(records=len(records)))
        reading.finish()
    # With one token for both APIs, a case does not depend on the API that it calls.
    token = SecretStr("let-me-in")
    app = service_app(
        Settings(provider=ProviderSettings(auth_tokens=(token,)), admin=AdminSettings(tokens=[token])),
        engine,
        clock=clock,
        new_id=lambda: "made",
    )

    def tidy() -> None:
        with writing(engine) as connection:
            connection.execute(text("DELETE FROM run_key"))
            connection.execute(text("DELETE FROM run"))

    document = app.test_client().get("/openapi.json").get_json()
    return Target("service", app, document, {"Authorization": "Bearer let-me-in"}, tidy)


def backend(folder: Path) -> Target:
    """The self-hosted backend, with a workspace in it."""
    engine = open_engine(f"sqlite:///{folder / 'backend.db'}")
    upgrade(engine, BACKEND_MIGRATIONS)
    app = create_backend(
        SelfHostedBackendSettings(
            database_url=f"sqlite:///{folder / 'backend.db'}",
            secret_key=SecretStr("a secret key for tests only"),
            workspaces_per_hour=1_000_000,
            provider_timeout=0.1,
        ),
        engine,
        lambda: datetime.now(UTC),
        random.Random(4),
        open_session(allow_private=False),
        sleep=lambda _: None,
    )
    client = app.test_client()

    def ask(operation: str, headers: Headers, **data: Any) -> Any:
        answer = client.post(by_name(operation).path, json={"data": data}, headers=headers)
        return answer.get_json()["result"]["data"]

    workspace = ask("create_workspace", {}, ownerEmail="owner@acme.example")
    of_workspace = {"x-service-workspace-id": workspace["id"], "x-service-workspace-auth-token": workspace["authToken"]}
    api_key = next(iter(workspace["apiKeyList"]))
    token = ask("get_auth_tokens", of_workspace, apiKey=api_key)["authTokens"][0]["token"]
    credentials = {**of_workspace, "x-service-api-key": api_key, "x-service-auth-token": token}
    return Target("backend", app, client.get("/openapi.json").get_json(), credentials, lambda: None)


class Fire:
    """Sends generated requests and collects the problems."""

    def __init__(self, target: Target, first_seed: int) -> None:
        self.target = target
        self.client = target.app.test_client()
        self.random = random.Random(first_seed)
        self.seed = first_seed
        self.codes: Counter[int] = Counter()
        self.cases = 0
        self.slowest = 0.0
        self.problems: list[str] = []
        self._places = 0

    def round(self, size: int) -> None:
        """Sends cases to the next operation, from the next seed."""
        operation = self.target.operations[self._places % len(self.target.operations)]
        self._places += 1
        self.seed += 1
        self.random.seed(self.seed)
        drawn = max(2, size // DRAWN)
        for case in _drawn(operation, self.seed, drawn):
            self.send(self._from_case(case))
        method, path = operation.method.upper(), operation.path
        sound = _sound_body(operation, self.seed)
        for _ in range(size - drawn):
            self.send(self._bent(method, path, sound))

    def sound_bodies(self) -> list[bytes]:
        """A valid body for each operation."""
        return [_sound_body(operation, self.seed) for operation in self.target.operations]

    def steady(self, bodies: Sequence[bytes], each: int = 10) -> None:
        """Sends mutations of each body."""
        for operation, body in zip(self.target.operations, bodies, strict=True):
            for _ in range(each):
                self.send(self._bent(operation.method.upper(), operation.path, body))

    def send(self, sent: Sent) -> None:
        """Sends a request and checks the response."""
        began = time.perf_counter()
        answer = self.client.open(sent.path, method=sent.method, headers=sent.headers, data=sent.body)
        seconds = time.perf_counter() - began
        self.cases += 1
        self.codes[answer.status_code] += 1
        self.slowest = max(self.slowest, seconds)
        problem = _problem(sent, answer.status_code, answer.get_data(), seconds)
        if problem and len(self.problems) < 20:
            self.problems.append(f"{self.target.name}, seed {self.seed}: {problem}\n  {sent.description()}")

    def _from_case(self, case: Any) -> Sent:
        path = case.path
        for name, value in (case.path_parameters or {}).items():
            path = path.replace("{" + name + "}", quote(str(value), safe="", errors="replace") or "x")
        if isinstance(case.query, Mapping) and case.query:
            path += "?" + urlencode({str(k): str(v) for k, v in case.query.items()}, errors="replace")
        body = b"" if isinstance(case.body, NotSet) else _as_bytes(case.body)
        headers = {str(k): str(v) for k, v in (case.headers or {}).items() if _is_header(str(k), str(v))}
        headers |= self._credentials()
        if body:
            headers["Content-Type"] = "application/json"
        return Sent(case.method.upper(), path, headers, body)

    def _credentials(self) -> Headers:
        return self.target.credentials if self.random.random() < 0.97 else {}

    def _bent(self, method: str, path: str, sound: bytes) -> Sent:
        lot = self.random
        body = sound
        for _ in range(lot.randrange(4)):
            body = lot.choice(_BENDS)(lot, body)
        headers = dict(self._credentials())
        if lot.random() < 0.95:
            headers["Content-Type"] = "application/json"
        else:
            headers["Content-Type"] = lot.choice(_CONTENT_TYPES)
        if lot.random() < 0.05:
            headers[lot.choice(_HEADERS)] = lot.choice(_VALUES)
        if lot.random() < 0.03:
            method = lot.choice(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "X"])
        path = path.replace("{runId}", lot.choice(["x", "%00", "..", "a" * 300, "%F0%9F%92%BE", "run_1"]))
        if lot.random() < 0.05:
            path += lot.choice(
                ["/", "//", "?x=1", "?pageSize=-1", "?pageToken=%00", "?status=done&status=x", "/%2e%2e"]
            )
        return Sent(method, path, headers, body)


_WORDS = ["", "\0", "ada", "acme", "plan", "\ud800", "😀", "x" * 600, "' OR 1=1 --", "%s%n", "../..", "[bold]", "1e999"]
_CONTENT_TYPES = [
    "text/plain",
    "application/json; charset=utf-16",
    "",
    "application/x-www-form-urlencoded",
    "a/b;;;",
    "é",
]
_HEADERS = [
    "Content-Encoding",
    "x-request-id",
    "Idempotency-Key",
    "X-Forwarded-For",
    "Accept",
    "Origin",
    "Expect",
    "Host",
]
_VALUES = ["gzip", "x" * 500, "*", "null", "a b", "127.0.0.1", "é", "%00"]
_ATOMS = [
    b"null",
    b"true",
    b"-1",
    b"1e400",
    b"9223372036854775808",
    b"NaN",
    b'"\\ud800"',
    b'"\\u0000"',
    b"[]",
    b"{}",
    b'""',
]
_ATOMS += [b'"' + b"x" * 3000 + b'"', b"[" * 40 + b"]" * 40, b"0.1", b'"\xf0\x9f\x92\xbe"', b'"\xff"', b"-0", b"1" * 30]


def _replace_part(lot: random.Random, body: bytes) -> bytes:
    """Replaces a random value."""
    try:
        value = json.loads(body)
    except ValueError:
        return body
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key, inner in node.items() if isinstance(node, dict) else enumerate(node):
            places.append((node, key))
            if isinstance(inner, dict | list):
                walk(inner)

    if isinstance(value, dict | list):
        walk(value)
    if not places:
        return body
    node, key = lot.choice(places)
    action = lot.random()
    if action < 0.6:
        node[key] = lot.choice([None, True, -1, 2**70, 1.5, [], {}, [[]], {"": {}}, *_WORDS])
    elif action < 0.8 and isinstance(node, dict):
        node[lot.choice(_WORDS)] = node.pop(key)
    elif isinstance(node, list):
        node.extend([node[key]] * lot.choice([1, 50, 1200]))
    return json.dumps(value).encode()


def _cut(lot: random.Random, body: bytes) -> bytes:
    return body[: lot.randrange(len(body) + 1)]


def _splice(lot: random.Random, body: bytes) -> bytes:
    place = lot.randrange(len(body) + 1)
    return body[:place] + lot.choice(_ATOMS) + body[place + lot.choice([0, 1, 5]) :]


def _flip(lot: random.Random, body: bytes) -> bytes:
    changed = bytearray(body or b"x")
    changed[lot.randrange(len(changed))] = lot.randrange(256)
    return bytes(changed)


def _noise(lot: random.Random, _body: bytes) -> bytes:
    return lot.randbytes(lot.randrange(60))


def _twice(_lot: random.Random, body: bytes) -> bytes:
    return body + body


_BENDS: Sequence[Callable[[random.Random, bytes], bytes]] = (
    _replace_part, _replace_part, _replace_part, _cut, _splice, _flip, _noise, _twice,
)  # fmt: skip


def _drawn(operation: Any, number: int, count: int) -> Iterator[Any]:
    """Deterministic cases of schemathesis."""
    drawn: list[Any] = []
    modes = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
    for mode in modes:
        quiet = settings(
            max_examples=max(1, count // 2),
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )

        @seed(number)
        @quiet
        @given(case=operation.as_strategy(generation_mode=mode))
        def collect(case: Any) -> None:
            drawn.append(case)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                collect()
            except Unsatisfiable:
                # Not everything can be made wrong: a path without parameters or body, for one.
                continue
            except Exception as error:
                if "Unsatisfiable" not in repr(error) and "negat" not in str(error).lower():
                    raise
    yield from drawn


def _sound_body(operation: Any, number: int) -> bytes:
    for case in _drawn(operation, number + 1, 2):
        if not isinstance(case.body, NotSet):
            return _as_bytes(case.body)
    return b"{}"


def _as_bytes(body: Any) -> bytes:
    if isinstance(body, bytes):
        return body
    try:
        return json.dumps(body).encode()
    except (TypeError, ValueError):
        return repr(body).encode("utf-8", "replace")


def _is_header(name: str, value: str) -> bool:
    return name.isascii() and name.isprintable() and value.isascii() and value.isprintable() and ":" not in name


def _problem(sent: Sent, code: int, body: bytes, seconds: float) -> str:
    if code >= 500:
        return f"answered {code}: {body[:300]!a}"
    if seconds > SLOWEST:
        return f"took {seconds:.1f} s"
    if code >= 400 and sent.method != "HEAD":
        try:
            error = json.loads(body)["error"]
            if not (isinstance(error["status"], str) and isinstance(error["message"], str)):
                return f"an error of another shape: {body[:300]!a}"
        except (ValueError, KeyError, TypeError):
            return f"{code} without an error: {body[:300]!a}"
    if b"Traceback" in body:
        return "shows a traceback"
    return ""


def memory() -> float:
    """MB of this process after a garbage collection."""
    gc.collect()
    return float(psutil.Process().memory_info().rss) / MB
