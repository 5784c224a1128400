"""Measures the connector for HTTP APIs.

The API is that of Microsoft Graph, replayed by another process from memory. The baseline makes the same requests with
requests alone, as many at a time, parses the JSON and counts the objects.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import requests

from app.directory.configured import source_from_settings
from app.directory.connectors.http.settings import HttpSettings
from app.directory.settings import HttpSourceSettings
from app.directory.source import End, Found, Verdict
from tests.bench.stopwatch import Stopwatch, ratio
from tests.directory.identity_provider import Call, Group, identity_provider

_PARALLEL = HttpSettings.model_fields["max_in_flight"].default
_RULES = [
    {
        "from": "users",
        "user": {
            "userId": "it.id",
            "name": "it.displayName",
            "email": "lower(it.mail)",
            "disabled": "!it.accountEnabled",
        },
    },
    {"from": "groups", "organization": {"organizationId": "it.id", "organizationName": "it.displayName"}},
    {"from": "groups", "each": "members", "membership": {"organizationId": "it.id", "userId": "member.userId"}},
]


_LATENCIES = (0.0, 0.05)
"""Seconds before each response: a server that only sends what it has, and one that works for each response."""


def bench_http(*, scale: float, rounds: int) -> dict[str, object]:
    """20,000 users and 500 groups, one of them with everybody: read to records, beside the requests alone."""
    users, groups = max(int(20_000 * scale), 200), max(int(500 * scale), 10)
    figures: dict[str, object] = {}
    for latency in _LATENCIES:
        with _served(users, groups, latency) as url:
            figures |= _reads(url, rounds, f"HTTP, {latency * 1000:.0f} ms before each response")
    return figures


def _reads(url: str, rounds: int, name: str) -> dict[str, object]:
    bare, objects, whole = [], [], []
    count = records = 0
    source = source_from_settings(HttpSourceSettings.model_validate(_settings(url)))
    connector, wanted = source.connector, source.rules.wanted  # type: ignore[attr-defined]
    bare_requests(url)
    for _ in range(rounds):
        began = Stopwatch()
        count = bare_requests(url)
        bare.append(began.read())
        began = Stopwatch()
        for _ in connector.read(wanted):
            pass
        objects.append(began.read())
        began = Stopwatch()
        records = 0
        for step in source.read():
            records += isinstance(step, Found)
            assert not isinstance(step, End) or step.verdict is Verdict.COMPLETE, step
        whole.append(began.read())
    wall, cpu = ratio(bare, whole)
    wall_objects, cpu_objects = ratio(bare, objects)
    took, bare_took = (statistics.median(seconds for seconds, _ in some) for some in (whole, bare))
    return {
        f"{name}: users, groups and members; records": f"{count:,}; {records:,}",
        f"{name}: requests alone, s; read to records, s": f"{bare_took:.2f}; {took:.2f}",
        f"{name}: of the requests alone, {_PARALLEL} at a time, by the clock; by CPU": f"{wall:.2f}; {cpu:.2f}",
        f"{name}: the connector alone (objects), the same two": f"{wall_objects:.2f}; {cpu_objects:.2f}",
    }


def _settings(url: str) -> dict[str, object]:
    return {"type": "http", "name": "idp", "preset": "microsoft_graph", "base_url": url, "map": _RULES}


def bare_requests(url: str) -> int:
    """The number of users, groups and members."""
    with requests.Session() as session, ThreadPoolExecutor(_PARALLEL) as pool:
        session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=_PARALLEL))

        def items(link: str | None) -> list[dict[str, str]]:
            found: list[dict[str, str]] = []
            while link is not None:
                body = session.get(link).json()
                found += body["value"]
                link = body.get("@odata.nextLink")
            return found

        users = items(f"{url}/users?$top=999&$select=accountEnabled,displayName,id,mail")
        groups = items(f"{url}/groups?$top=999&$select=displayName,id")
        members = pool.map(items, (f"{url}/groups/{one['id']}/members?$select=id&$top=999" for one in groups))
        return len(users) + len(groups) + sum(map(len, members))


@contextmanager
def _served(users: int, groups: int, latency: float) -> Iterator[str]:
    """The base URL of an API in another process."""
    code = f"from tests.bench.http_api import serve; serve({users}, {groups}, {latency})"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    ) as one:
        assert one.stdout is not None
        try:
            yield one.stdout.readline().strip()
        finally:
            one.kill()


def serve(users: int, groups: int, latency: float) -> None:
    """Serves the API until standard input ends. Responses are made once. ``latency``: seconds before each."""
    with identity_provider("microsoft_graph") as provider:
        provider.page = 999
        for number in range(users):
            provider.add_user(f"{number:08}-0000-4000-8000-000000000000", f"Person {number}", f"P{number}@corp.example")
        ids = list(provider.users)
        provider.groups = {"all": Group("everybody", ids)}
        for number in range(groups - 1):
            provider.groups[f"g{number:07}-0000-4000-8000-000000000000"] = Group(
                f"team {number}", [ids[(number * 31 + step) % users] for step in range(min(140, users))]
            )
        responses: dict[str, bytes] = {}

        def kept(call: Call) -> bool:
            time.sleep(latency)
            known = responses.get(call.handler.path)
            if known is not None:
                return call.answer(known)
            answer = call.answer

            def noted(body: object, **more: object) -> bool:
                assert isinstance(body, bytes)
                responses[call.handler.path] = body
                return answer(body)

            call.answer = noted  # type: ignore[method-assign]
            provider.serve(call)
            return True

        provider.fault = kept
        print(provider.base_url, flush=True)
        sys.stdin.read()
