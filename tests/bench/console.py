"""Measures the console on a large installation: the time of each page, and of permission calls while people use it.

The installation is built by statements (``console_world``). Pages are rendered in this process:
first, deep and widest ones. Then a real service answers permission calls at a constant rate, first idle, then while
twenty browsers follow a run, each with one request a second.
"""

import gzip
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
from flask.testing import FlaskClient
from pydantic import SecretStr
from sqlalchemy import text

import app.service.console
from app.commands.bootstrap.databases import STORE_MIGRATIONS, open_store_for_service
from app.commands.bootstrap.service import service_app
from app.foundation.clock import from_epoch_ms
from app.foundation.database.engine import open_engine, writing
from app.foundation.database.migrations import upgrade
from app.foundation.processes import freeze_garbage_collector
from app.service.console.paging import Lists
from app.service.console.settings import ConsoleSettings, ConsoleToken, Role
from app.service.console.urls import address
from app.service.provider.settings import ProviderSettings
from app.settings import Settings
from tests.bench.console_world import BIG_RUN, FAILURES, NOW_MS, Size, build
from tests.bench.databases import databases
from tests.bench.load import post
from tests.bench.processes import USHER, running, write_settings
from tests.bench.provider import PATH, QUESTIONS, THREADS, wait_for_index
from tests.bench.provider_under_sync import steadily
from tests.ports import free_port

TOKEN = "the console token of the bench"
PERMISSION_TOKEN = "the token of permission calls"
PEOPLE = 20
AIM_MS, AIM_POSTGRES_MS = 50.0, 80.0
"""The aims of a page's p99, on SQLite and on PostgreSQL."""
AIM_TIMES = 1.5
AIM_BYTES = 12_000
STEADY_SECONDS = 15.0


def bench_console(folder: Path, *, scale: float, rounds: int, postgres: str | None) -> dict[str, object]:
    """The figures; ``scale`` 1: 1,000,000 users, as many documents, 10,000,000 grants, a plan of 1,500,000 items."""
    with databases(folder, postgres) as new_database:
        url = new_database("console")
        began = time.perf_counter()
        make(url, Size(scale), print)
        built = time.perf_counter() - began
        aim_ms = AIM_MS if postgres is None else AIM_POSTGRES_MS
        figures = measure_console(folder, url, Size(scale), aim_ms=aim_ms, repeats=rounds * 8)
    return {"built in s": round(built), **figures}


def make(url: str, size: Size, report: Callable[[str], None]) -> None:
    """Creates and fills a database."""
    engine = open_engine(url)
    upgrade(engine, STORE_MIGRATIONS)
    build(engine, size, report)
    engine.dispose()


def measure_console(folder: Path, url: str, size: Size, *, aim_ms: float, repeats: int) -> dict[str, object]:
    """The figures of an existing database."""
    pages = measure_pages(url, size, repeats=repeats)
    slowest = max(pages, key=lambda name: pages[name][1])
    idle, busy = measure_provider(folder, url, size)
    transferred = asset_bytes()
    return {
        **{f"{name} p50/p99 ms": f"{p50:.1f} / {p99:.1f}" for name, (p50, p99) in pages.items()},
        "slowest page": f"{slowest}: p99 {pages[slowest][1] / aim_ms:.2f} of the aim of {aim_ms:.0f} ms",
        "pages over the aim": ", ".join(name for name, (_, p99) in pages.items() if p99 > aim_ms) or "none",
        "permission calls idle p99 ms": round(idle, 2),
        f"permission calls beside {PEOPLE} people p99 ms": round(busy, 2),
        "times idle p99": f"{busy / idle:.2f} (the aim: {AIM_TIMES})",
        "script and stylesheet, compressed": f"{transferred} bytes, {transferred / AIM_BYTES:.2f} of the aim",
    }


def pages_of(size: Size) -> dict[str, str]:
    """Every page; of lists the first, a deep and the widest page."""

    def deep(name: str, about: tuple[str, ...], *key: str) -> str:
        """The cursor of the page after this key."""
        turned = Lists("", {name: len(key)}, *about).page(name, lambda limit, **_: [key] * limit, lambda row: row)
        assert turned is not None
        return turned.next_after

    def one(prefix: str, number: int) -> str:
        return f"{prefix}-{number:07}"

    user, document, group = one("user", 1), one("document", 0), one("group", 0)
    middle, items = size.large // 2, size.items
    member, deep_document = one("user", middle), one("document", middle)
    of_document = deep("grants", ("org-0", document), "", document, one("user", size.of(50_000)), "")
    of_group = deep("users", ("org-0", group), "id", "", member)
    of_user = deep("grants", (user, "org-0"), "", "", one("document", size.of(25_000)))
    failing = orjson.dumps(["document", "org-0", "", one("document", size.of(250_000)), False]).decode()
    in_folder = deep("contents", ("org-0", one("folder", 7)), "document", one("document", size.large // 4))
    return {
        "overview": address("overview"),
        "runs": address("runs"),
        "runs deep": address("runs", before="20261001T000000000-0001500"),
        "runs held": address("runs", status="held"),
        "runs by kind": address("runs", kind="preview", by="nobody", period="week", busy=1),
        "run of 1.5 M items": address("run", id=BIG_RUN),
        "run deep": address("run", id=BIG_RUN, after=items - 60),
        "run by kind": address("run", id=BIG_RUN, kind="document"),
        "run by kind deep": address("run", id=BIG_RUN, kind="document", after=items - 60),
        "run by status": address("run", id=BIG_RUN, status="failed"),
        "run by kind and status": address("run", id=BIG_RUN, kind="document", status="failed"),
        "run by organization": address("run", id=BIG_RUN, organization="org-9"),
        "run by item": address("run", id=BIG_RUN, item=member),
        "item": address("item", run=BIG_RUN, ordinal=items // 2),
        "item of a grant": address("item", run=BIG_RUN, ordinal=items),
        "told": address("told", kind="document", organization="org-0", item=one("document", 50)),
        "held": address("held"),
        "approve": address("approve", run=BIG_RUN),
        "discard": address("discard", run=BIG_RUN),
        "sync": address("sync"),
        "preview of a file": address("preview_file"),
        "access impact": address("access_impact", run=BIG_RUN),
        "access change": address("access_change", run=BIG_RUN, ordinal=1),
        "keys": address("keys"),
        "parked": address("parked"),
        "parked by kind": address("parked", kind="document", state="waiting"),
        "parked by a message": address("parked", message=FAILURES[0]),
        "parked by a rare one": address("parked", message=FAILURES[-1], organization="org-0"),
        "parked, deep": address("parked", organization="org-0", after=failing),
        "explain": address("explain", user=member, resource=deep_document, organization="org-0"),
        "explain user of 50,000 grants": address("explain", user=user, resource=document, organization="org-0"),
        "explain unknown": address("explain", user="user-nobody", resource="nothing", organization="org-0"),
        "browse": address("browse"),
        "organization of 600,000": address("organization", id="org-0"),
        "organization, members": address("organization", id="org-0", list="members"),
        "organization, members by name": address("organization", id="org-9", list="members"),
        "organization, members found": address("organization", id="org-9", list="members", q="numb 1"),
        "organization, one of many members": address("organization", id="org-0", list="members", q="numb 12"),
        "organization, contents found": address("organization", id="org-9", q="number"),
        "organization, groups": address("organization", id="org-0", list="groups"),
        "organization, members deep": address(
            "organization", id="org-0", after=deep("members", ("org-0",), "id", "", member)
        ),
        "organization, contents deep": address(
            "organization", id="org-0", after=deep("contents", ("org-0",), "document", deep_document)
        ),
        "folder of 285,000": address("folder", organization="org-0", id=one("folder", 7)),
        "folder deep": address("folder", organization="org-0", id=one("folder", 7), after=in_folder),
        "document of 100,000 grants": address("document", organization="org-0", id=document),
        "document deep": address("document", organization="org-0", id=document, after=of_document),
        "user of 50,000 grants": address("user", id=user),
        "user deep": address("user", id=user, organization="org-0", after=of_user),
        "access of a user": address("access", user=member, organization="org-0"),
        "access of a user deep": address(
            "access",
            user=member,
            organization="org-0",
            after=deep("access", (member, "org-0", "", ""), "id", "document", deep_document),
        ),
        "access of a user, found": address("access", user=member, organization="org-0", q="numb 12"),
        "access to a document, found": address(
            "access", organization="org-0", type="document", resource=deep_document, q="numb 12", role="viewer"
        ),
        "access to a document": address("access", organization="org-0", type="document", resource=deep_document),
        "group of 600,000": address("group", organization="org-0", id=group),
        "group, users found": address("group", organization="org-0", id=group, q="numb 12"),
        "group deep": address("group", organization="org-0", id=group, after=of_group),
        "unknown document": address("document", organization="org-0", id="document-nothing"),
        "search of many": address("search", q="number"),
        "search of many of one kind": address("search", q="number", kind="user"),
        "search of one": address("search", q=f"number{size.large}"),
        "search of none": address("search", q="zz zz"),
        "search of words of many": address("search", q="numb 1 name"),
        "suggestions of all kinds": address("suggest", q="numb"),
        "suggestions of users": address("suggest", q="numb 12 na", kind="user"),
        "suggestions within": address("suggest", q="number", kind="document", organization="org-9"),
        "sources": address("sources"),
        "problems": address("problems", source="people", sort="malformed"),
        "doctor": address("doctor"),
        "settings": address("settings", all=1),
        "sessions": address("sessions"),
        "audit": address("audit"),
        "audit deep": address("audit", before=str(size.of(100_000) // 2)),
        "audit by time": address("audit", since="2026-10-01", until="2026-11-01 12:00"),
        "audit of one": address("audit", actor="operator 7", action="approved"),
    }


def measure_pages(url: str, size: Size, *, repeats: int) -> dict[str, tuple[float, float]]:
    """Page → p50 and p99 in milliseconds."""
    found: dict[str, tuple[float, float]] = {}
    client = signed_in(url)
    # As in the processes of the service: a collection of all objects takes 100 ms here.
    freeze_garbage_collector()
    for name, path in pages_of(size).items():
        taken = []
        for _ in range(repeats + 2):
            began = time.perf_counter()
            answer = client.get(path)
            taken.append((time.perf_counter() - began) * 1000)
            if answer.status_code not in {200, 404}:
                raise RuntimeError(f"{name}: {answer.status_code} {answer.get_data(as_text=True)[-400:]}")
        # The first two compile the page and its statements.
        measured = sorted(taken[2:])
        found[name] = (statistics.median(measured), measured[min(len(measured) - 1, len(measured) * 99 // 100)])
    return found


def signed_in(url: str) -> FlaskClient:
    """A signed-in client of a console on this database."""
    settings = Settings(
        database_url=url,
        provider=ProviderSettings(auth_tokens=(SecretStr(PERMISSION_TOKEN),)),
        console=ConsoleSettings(tokens=(ConsoleToken(name="bench", role=Role.ADMIN, token=SecretStr(TOKEN)),)),
    )
    # The time of the world: its held deletes can still be approved.
    now = from_epoch_ms(NOW_MS)
    app = service_app(settings, open_store_for_service(settings), clock=lambda: now, new_id=lambda: "bench")
    client = app.test_client()
    client.post("/console/sign-in", data={"token": TOKEN}, headers={"Sec-Fetch-Site": "same-origin"})
    return client


def measure_provider(folder: Path, url: str, size: Size) -> tuple[float, float]:
    """The p99 of permission calls in milliseconds, idle and while browsers follow a run."""
    port = free_port()
    place = folder / "service"
    place.mkdir(exist_ok=True)
    settings = write_settings(
        place,
        {
            "database_url": url,
            "server": {"port": port, "workers": 1, "threads": THREADS},
            "provider": {"auth_tokens": [PERMISSION_TOKEN]},
            # The service reads none.
            "directory": {"sources": [{"type": "file", "path": "nothing.jsonl", "name": "people"}]},
            "console": {"tokens": [{"name": "bench", "role": "viewer", "token": TOKEN}]},
            "index": {"path": str(place / "index")},
        },
    )
    requests = list(_permission_calls(port, size))
    with (
        _as_if_it_ran(url),
        running([*USHER, "serve", "--config", str(settings)], place, f"http://127.0.0.1:{port}/healthz", "service"),
    ):
        wait_for_index(place)
        steadily(port, requests, _for_seconds(3))
        idle = steadily(port, requests, _for_seconds(STEADY_SECONDS))
        with _people(port, place):
            steadily(port, requests, _for_seconds(6))
            busy = steadily(port, requests, _for_seconds(STEADY_SECONDS))
        again = steadily(port, requests, _for_seconds(STEADY_SECONDS))
    return (idle.p99 + again.p99) / 2, busy.p99


def _permission_calls(port: int, size: Size) -> Iterator[bytes]:
    for number in range(2_000):
        user = f"user-{number * 7919 % size.large:07}"
        asked = [
            {
                "userId": user,
                "resource": {
                    "type": "document",
                    "id": f"document-{(number * 10 + one) * 37 % size.large:07}",
                    "organizationId": "org-0",
                },
            }
            for one in range(QUESTIONS)
        ]
        yield post("127.0.0.1", port, PATH, orjson.dumps({"data": {"requests": asked}}), PERMISSION_TOKEN)


class _as_if_it_ran:  # noqa: N801 - reads as what it does
    """Marks the large run as running, so that its page keeps polling."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        self._set("applying")

    def __exit__(self, *_: object) -> None:
        self._set("held")

    def _set(self, status: str) -> None:
        engine = open_engine(self._url)
        with writing(engine) as connection:
            connection.execute(
                text("UPDATE run SET status = :status WHERE run_id = :run_id"), {"status": status, "run_id": BIG_RUN}
            )
        engine.dispose()


@contextmanager
def _people(port: int, folder: Path) -> Iterator[None]:
    with (folder / "people.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.people", str(port), str(PEOPLE), TOKEN, BIG_RUN],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
        if reported := (folder / "people.log").read_text():
            raise RuntimeError(f"somebody could not follow the run: {reported[-1000:]}")
    finally:
        process.kill()
        process.wait()


def asset_bytes() -> int:
    """The compressed size of the script and the stylesheet."""
    static = Path(app.service.console.__file__).parent / "static"
    return sum(len(gzip.compress((static / name).read_bytes(), 9)) for name in ("console.css", "console.js"))


def _for_seconds(seconds: float) -> Callable[[], bool]:
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() < end
