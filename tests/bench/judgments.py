"""Measures the search among 100,000 judgments.

Whole operations are measured, from the request's bytes to the answer's, within one process: what the network and the
server in front add is the same for every operation. `cold` is the first search of a process, which reads all vectors.
"""

import gc
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import psutil
from flask import Flask

from app.backend.app import create_backend
from app.backend.embedders import open_embedder
from app.backend.judgments.record import JudgmentInput, parse_judgment
from app.backend.schema import METADATA
from app.backend.security.outgoing import open_session
from app.backend.settings import SelfHostedBackendSettings
from app.contract.operations import by_name
from app.foundation.database.engine import open_engine
from tests.backend.judgment_imports import import_judgments

JUDGMENTS = 100_000
TARGET_MS = 60.0
_WORDS = re.findall(
    r"\w+",
    """price margin discount clause liability vendor contract budget deadline scope style tone grammar citation source
    image layout color brand policy privacy consent risk audit security access review draft figure table summary
    customer market region forecast growth revenue cost staff hiring schedule quality defect test release update""",
)
_SUBJECTS: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "review": lambda _: {},
    "content": lambda _: {"embeddingType": "content"},
    "organization": lambda draw: {"organizationId": f"org{draw.randrange(10)}"},
    "filters": lambda draw: {"filters": {"decision": "reject", "reviewerId": f"u{draw.randrange(50)}"}},
    "recency": lambda draw: {"recencyDays": draw.randrange(1, 365)},
    "thread": lambda draw: {"organizationId": "org1", "filters": {"annotationId": f"t{draw.randrange(1000)}"}},
}


def bench_judgments(folder: Path, scale: float, *, rounds: int = 200) -> dict[str, object]:
    """The figures; `scale` 1 is the full size. Times are in milliseconds unless the name contains another unit."""
    count = int(JUDGMENTS * scale)
    settings = SelfHostedBackendSettings.model_validate(
        {"database_url": f"sqlite:///{folder}/judgments.db", "secret_key": "a secret key for measuring only"}
    )
    engine = open_engine(settings.database_url)
    METADATA.create_all(engine)

    def node() -> Flask:
        session = open_session(allow_private=False)
        return create_backend(settings, engine, lambda: datetime.now(UTC), random.SystemRandom(), session)

    headers = _credentials(node())
    embedder = open_embedder(settings.embedder)
    now = int(time.time() * 1000)
    start = time.perf_counter()
    for _ in import_judgments(engine, embedder, headers["x-service-api-key"], _records(count, now), now):
        pass
    imported = time.perf_counter() - start
    app = node()
    gc.collect()
    memory = psutil.Process().memory_info().rss
    draw = random.Random(3)
    figures: dict[str, object] = {"judgments": count, "import_per_second": round(count / imported)}
    figures["cold_ms"] = round(_timed(app, headers, "search_judgments", {"query": "price"}), 1)
    figures["cold_content_ms"] = round(
        _timed(app, headers, "search_judgments", {"query": "price", "embeddingType": "content"}), 1
    )
    figures["memory_mb"] = round((psutil.Process().memory_info().rss - memory) / 1e6)
    for name, make in _SUBJECTS.items():
        bodies = [{"query": " ".join(draw.choices(_WORDS, k=6)), **make(draw)} for _ in range(rounds)]
        figures[name] = _summary([_timed(app, headers, "search_judgments", body) for body in bodies])
    queries: list[dict[str, Any]] = [{"filters": {"decision": draw.choice(["reject", "none"])}} for _ in range(rounds)]
    figures["query"] = _summary([_timed(app, headers, "query_judgments", body) for body in queries])
    fresh = []
    for _ in range(min(rounds, 30)):
        list(import_judgments(engine, embedder, headers["x-service-api-key"], _records(1, now, f"new{_}-"), now))
        fresh.append(_timed(app, headers, "search_judgments", {"query": "price"}))
    figures["after_a_write"] = _summary(fresh)
    worst = max(one["p50"] for one in figures.values() if isinstance(one, dict))
    figures["target_p50_ms"] = TARGET_MS
    figures["within_target"] = bool(worst <= TARGET_MS)
    engine.dispose()
    return figures


def _records(count: int, now: int, prefix: str = "r") -> Iterator[JudgmentInput]:
    draw = random.Random(5)
    for number in range(count):
        yield parse_judgment(
            {
                "recordId": f"{prefix}{number}",
                "organizationId": f"org{draw.randrange(10)}",
                "documentId": f"d{draw.randrange(1000)}",
                "annotationId": f"t{draw.randrange(10_000)}",
                "decision": draw.choice(["approve", "reject", "escalate"]),
                "reasoning": " ".join(draw.choices(_WORDS, k=30)),
                "content": " ".join(draw.choices(_WORDS, k=40)),
                "contentType": draw.choice(["page", "contract"]),
                "actionUser": {"userId": f"u{draw.randrange(50)}"},
                "createdAt": now - draw.randrange(365 * 24 * 3600 * 1000),
            }
        )


def _credentials(app: Flask) -> dict[str, str]:
    workspace = _call(app, {}, "create_workspace", {"ownerEmail": "owner@acme.example"})["data"]
    owner = {"x-service-workspace-id": workspace["id"], "x-service-workspace-auth-token": workspace["authToken"]}
    api_key = next(iter(workspace["apiKeyList"]))
    tokens = _call(app, owner, "get_auth_tokens", {"apiKey": api_key})["data"]["authTokens"]
    return {"x-service-api-key": api_key, "x-service-auth-token": tokens[0]["token"]}


def _call(app: Flask, headers: dict[str, str], operation: str, data: dict[str, Any]) -> dict[str, Any]:
    body = orjson.dumps({"data": data})
    response = app.test_client().post(
        by_name(operation).path, data=body, headers={"Content-Type": "application/json", **headers}
    )
    if response.status_code != 200:
        raise RuntimeError(f"{operation} answered {response.status_code}: {response.text[:300]}")
    result: dict[str, Any] = orjson.loads(response.data)["result"]
    return result


def _timed(app: Flask, headers: dict[str, str], operation: str, data: dict[str, Any]) -> float:
    start = time.perf_counter()
    _call(app, headers, operation, data)
    return (time.perf_counter() - start) * 1000


def _summary(times: list[float]) -> dict[str, float]:
    times = sorted(times)
    return {
        "p50": round(statistics.median(times), 2),
        "p99": round(times[min(len(times) - 1, len(times) * 99 // 100)], 2),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        found = bench_judgments(Path(name), float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
    print(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())
