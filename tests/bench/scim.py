"""Measures a directory that pushes with SCIM to one process: new users, and members of a large and a small group."""

import statistics
import time
from collections.abc import Iterable
from pathlib import Path

import orjson
import psutil
import requests
from sqlalchemy import insert

from app.access.source_tables import ScimKeyRow, ScimMemberRow, ScimResourceRow
from app.commands.bootstrap.databases import upgrade_store
from app.commands.bootstrap.outgoing import configured_sources
from app.foundation.clock import utc_now
from app.foundation.database.engine import open_engine, writing
from app.settings import Settings
from app.sync.runs.directory_reads import ReadOptions, read_directory
from tests.bench.databases import databases
from tests.bench.processes import USHER, running, write_settings
from tests.ports import free_port

_TOKEN = "scim-" + "s" * 24
_SMALL = 20
_CREATED = 300
_RULES = [
    {
        "from": "users",
        "aliases": ["it.userName"],
        "user": {"userId": "it.id", "name": "it.displayName", "email": "it.email", "title": 'it.?title.orValue("")'},
    },
    {"from": "groups", "organization": {"organizationId": "it.id", "organizationName": "it.displayName"}},
    {
        "from": "groups",
        "each": "members",
        "membership": {"organizationId": "it.id", "userId": "member.userId", "accessRole": '"viewer"'},
    },
]
_USER = "urn:ietf:params:scim:schemas:core:2.0:User"
_PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"


def bench_scim(folder: Path, *, scale: float, rounds: int, postgres: str | None) -> dict[str, object]:
    """A directory of 20,000 users, all of them in one group."""
    users = max(int(20_000 * scale), 200)
    folder.mkdir(parents=True)
    port = free_port()
    with databases(folder, postgres) as new_database:
        settings = {
            "database_url": new_database("scim"),
            "provider": {"auth_tokens": ["ask-" + "a" * 24]},
            "directory": {"sources": [{"type": "scim", "name": "entra", "tokens": [_TOKEN], "map": _RULES}]},
            "server": {"port": port, "workers": 1},
            "log": {"level": "warning"},
        }
        path = write_settings(folder, settings)
        _store_directory(Settings.model_validate(settings), users)
        command = [*USHER, "--config", str(path), "serve"]
        with running(command, folder, f"http://127.0.0.1:{port}/readyz", "serve") as process:
            return _measured(f"http://127.0.0.1:{port}/scim/entra/v2", process, users, rounds, bool(postgres))


def _store_directory(settings: Settings, users: int) -> None:
    upgrade_store(settings)
    engine = open_engine(settings.database_url)
    sources = configured_sources(settings)
    read_directory(engine, sources, clock=utc_now)
    ids = [f"{number:016x}" for number in range(users)]
    people: dict[str, dict[str, object]] = {
        one: {"userName": f"{one}@acme.example", "displayName": one, "emails": [{"value": f"{one}@acme.example"}]}
        for one in ids
    }
    groups = {"large": ids, "small": ids[:_SMALL]}
    with writing(engine) as connection:
        contents = [("User", one, value) for one, value in people.items()]
        contents += [("Group", name, {"displayName": name}) for name in groups]
        rows: Iterable[dict[str, object]] = (
            {"resource_id": one, "type": type_, "content": orjson.dumps(value).decode()}
            for type_, one, value in contents
        )
        more: dict[str, object] = {"source_id": 1, "created": 0, "modified": 0, "version": 1}
        connection.execute(insert(ScimResourceRow.__table__), [row | more for row in rows])
        of_keys: dict[str, object] = {"source_id": 1, "attribute": "userName"}
        keys = [of_keys | {"resource_id": one, "value": value["userName"]} for one, value in people.items()]
        connection.execute(insert(ScimKeyRow.__table__), keys)
        members = [{"group_id": name, "value": one} for name, of_group in groups.items() for one in of_group]
        more = {"source_id": 1, "type": "User", "display": ""}
        connection.execute(insert(ScimMemberRow.__table__), [member | more for member in members])
    report = read_directory(engine, sources, ReadOptions(full=["entra"]), clock=utc_now)
    assert report.sources[0].records == users + 2 + users + _SMALL, report.sources[0]
    engine.dispose()


def _measured(url: str, process: psutil.Process, users: int, rounds: int, on_postgres: bool) -> dict[str, object]:
    client = requests.Session()
    client.headers["Authorization"] = f"Bearer {_TOKEN}"

    def create(number: int) -> str:
        # Entra ID looks for each user before it creates them.
        name = f"new-{number}@acme.example"
        found = client.get(f"{url}/Users", params={"filter": f'userName eq "{name}"'}, timeout=60)
        assert found.json()["totalResults"] == 0, found.text
        body = {"schemas": [_USER], "userName": name, "displayName": name, "emails": [{"value": name, "type": "work"}]}
        answer = client.post(f"{url}/Users", json=body, timeout=60)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def change(group: str, operation: dict[str, object]) -> float:
        began = time.perf_counter()
        answer = client.patch(
            f"{url}/Groups/{group}", json={"schemas": [_PATCH], "Operations": [operation]}, timeout=60
        )
        assert answer.status_code == 204, answer.text
        return time.perf_counter() - began

    one, *_ = [create(-number) for number in range(1, 20)]
    began, cpu = time.perf_counter(), _cpu_seconds(process)
    for number in range(_CREATED):
        create(number)
    took, cpu = time.perf_counter() - began, _cpu_seconds(process) - cpu
    seconds: dict[str, list[float]] = {"large": [], "small": []}
    for _ in range(rounds * 6):
        for group, measured in seconds.items():
            measured.append(change(group, {"op": "add", "path": "members", "value": [{"value": one}]}))
            measured.append(change(group, {"op": "remove", "path": f'members[value eq "{one}"]'}))
    large, small = (statistics.median(measured) * 1000 for measured in seconds.values())
    what = f"SCIM, {users:,} users, {'postgresql' if on_postgres else 'sqlite'}"
    return {
        f"{what}: requests a second (at least 50), each second one creates a user; new users; CPU for both, ms": (
            f"{2 * _CREATED / took:.0f}; {_CREATED / took:.0f}; {cpu / _CREATED * 1000:.1f}"
        ),
        f"{what}: a member in or out of the group of all, ms; of a group of {_SMALL}; ratio (at most 3)": (
            f"{large:.0f}; {small:.0f}; {large / small:.2f}"
        ),
    }


def _cpu_seconds(process: psutil.Process) -> float:
    """The CPU time of a service and its workers so far."""
    return float(sum(sum(one.cpu_times()[:2]) for one in [process, *process.children(recursive=True)]))
