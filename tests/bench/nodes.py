"""Measures the time from the commit of a revision until the last of ten nodes answers a permission call by it."""

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import orjson

from app.access.problem_list import ProblemList
from app.access.records import Membership, Organization, Record, User
from app.access.refresh.reads import ReadResult
from app.access.refresh.refresh import Refresh
from app.foundation.database.engine import open_engine
from app.service.provider.settings import REVISION_HEADER
from tests.bench.databases import databases
from tests.bench.load import _Connection, post
from tests.bench.processes import USHER, command, running, write_settings
from tests.bench.provider import PATH, TOKEN, wait_for_index
from tests.ports import free_port

NODES = 10
USERS = 1_000
CALL = orjson.dumps(
    {
        "data": {
            "requests": [
                {
                    "userId": "user-0",
                    "resource": {"type": "organization", "id": "acme", "organizationId": "acme"},
                }
            ]
        }
    }
)


def bench_nodes(folder: Path, *, rounds: int, postgres: str | None) -> dict[str, object]:
    """The figures of ``rounds`` × 20 revisions, each of which changes one membership."""
    with databases(folder, postgres) as new_database, ExitStack() as stack:
        url = new_database("nodes")
        command(["db", "upgrade", "--config", str(_settings(folder, url, free_port()))], folder)
        engine = open_engine(url)

        def read(members: int) -> int:
            records: list[Record] = [Organization(organization_id="acme", organization_name="Acme")]
            users = [f"user-{number}" for number in range(USERS)]
            records += [User(user_id=user, name=user, email=f"{user}@acme.example") for user in users]
            records += [Membership(organization_id="acme", user_id=user) for user in users[:members]]
            with Refresh(engine, clock=lambda: datetime.now(UTC), problems=ProblemList()) as refresh:
                refresh.begin(["company"])
                for record in records:
                    refresh.staging.add(record, "company:1")
                refresh.staging.end(ReadResult(records=len(records)))
                return refresh.finish(accept_empty=["company"]).change.revision

        read(USERS)
        ports = [stack.enter_context(_node(folder / f"node-{number}", url)) for number in range(NODES)]
        delays = []
        for number in range(rounds * 20):
            revision = read(USERS - 1 - number % 2)
            committed = time.perf_counter()
            for port in ports:
                while _answered_by(port) < revision:
                    time.sleep(0.001)
            delays.append((time.perf_counter() - committed) * 1000)
            # Not at the same moment of the nodes' own checks.
            time.sleep(0.01 * (number % 7))
        engine.dispose()
    delays.sort()
    return {
        "nodes": NODES,
        "revisions": len(delays),
        "until the last node answers p50 ms": round(statistics.median(delays), 1),
        "until the last node answers p99 ms": round(delays[len(delays) * 99 // 100], 1),
        "target p99 ms": 1000,
    }


def _answered_by(port: int) -> int:
    """The revision by which the node answers a call."""
    # The server closes connections that are idle during a read of the directory.
    with closing(_Connection("127.0.0.1", port)) as connection:
        connection.exchange(post("127.0.0.1", port, PATH, CALL, TOKEN))
        return int(connection.head.split(REVISION_HEADER.encode() + b": ", 1)[1].split(b"\r\n", 1)[0])


@contextmanager
def _node(folder: Path, url: str) -> Iterator[int]:
    """A service with its own index. Yields its port."""
    folder.mkdir()
    port = free_port()
    serve = [*USHER, "serve", "--config", str(_settings(folder, url, port))]
    with running(serve, folder, f"http://127.0.0.1:{port}/readyz", "service"):
        wait_for_index(folder)
        yield port


def _settings(folder: Path, url: str, port: int) -> Path:
    return write_settings(
        folder,
        {
            "database_url": url,
            "server": {"port": port, "workers": 1},
            "provider": {"auth_tokens": [TOKEN]},
            "index": {"path": str(folder / "index")},
            # The service reads none.
            "directory": {"sources": [{"type": "file", "path": "nothing.jsonl", "name": "company"}]},
        },
    )
