"""The whole service: each API and page, with its credentials."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from flask.testing import FlaskClient
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from pydantic import SecretStr, ValidationError
from sqlalchemy import Connection, Engine, insert
from structlog.testing import capture_logs

from app.access.index.index import AccessIndex
from app.commands.bootstrap.databases import STORE_MIGRATIONS
from app.commands.bootstrap.service import service_app, worker_metrics
from app.directory.configured import sources_from_settings
from app.directory.settings import DirectorySettings
from app.foundation.database.engine import open_engine, writing
from app.foundation.database.migrations import upgrade
from app.http.throttle import FAILURES
from app.monitoring.database_metrics import source_labels
from app.monitoring.metrics import Metrics
from app.service.admin.settings import AdminSettings, MetricsSettings
from app.service.provider.settings import ProviderSettings
from app.settings import ServerSettings, Settings
from app.sync.ledger.ledger import note_findings, open_ledger
from app.sync.ledger.tables import ItemFailureRow, LedgerItemRow
from app.sync.runs.directory_reads import read_directory
from app.sync.runs.lifecycle import Runs
from app.sync.runs.run import RunRequest, RunStatus
from app.sync.runs.tables import WorkerRow
from tests.commands.conftest import DIRECTORY
from tests.tables import make_migrated

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
ASK, RULE = {"Authorization": "Bearer ask"}, {"Authorization": "Bearer rule"}


def now() -> datetime:
    return NOW


@pytest.fixture
def empty(database_url: str) -> Iterator[Engine]:
    """A database without a schema."""
    engine = open_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def engine(empty: Engine) -> Engine:
    """A database with the newest schema."""
    make_migrated(empty, STORE_MIGRATIONS)
    return empty


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "directory.yaml").write_text(DIRECTORY)
    sources: Any = [{"type": "file", "path": str(tmp_path / "directory.yaml"), "name": "people"}]
    return Settings(
        provider=ProviderSettings(auth_tokens=(SecretStr("ask"),)),
        admin=AdminSettings(tokens=[SecretStr("rule")]),
        directory=DirectorySettings(sources=sources),
    )


def client_of(settings: Settings, engine: Engine) -> FlaskClient:
    return service_app(settings, engine, clock=now, new_id=lambda: "made").test_client()


@pytest.fixture
def client(settings: Settings, engine: Engine) -> FlaskClient:
    """The service with a directory that was read."""
    read_directory(engine, sources_from_settings(settings.directory), clock=now)
    return client_of(settings, engine)


def question(user: str = "ada", document: str = "handbook") -> dict[str, Any]:
    resource = {"type": "document", "id": document, "organizationId": "acme"}
    return {"data": {"requests": [{"userId": user, "resource": resource}]}}


def test_landing_page_links_to_all_surfaces(client: FlaskClient) -> None:
    answer = client.get("/").get_json()
    assert answer["product"] == "Usher"
    assert {"/permissions/check", "/resync", "/healthz", "/readyz", "/metrics"} <= set(answer["links"].values())


def test_the_provider_cannot_take_the_path_of_another_endpoint(settings: Settings, engine: Engine) -> None:
    rules = [{"from": "users", "user": {"userId": "it.id", "name": "it.name", "email": "it.email"}}]
    scim: Any = {"type": "scim", "name": "entra", "tokens": ["t" * 40], "map": rules}
    directory = DirectorySettings(sources=[*settings.directory.sources, scim])
    app = client_of(settings.model_copy(update={"directory": directory}), engine).application
    paths = {re.sub("<[^>]+>", "x", rule.rule) for rule in app.url_map.iter_rules()} - {settings.provider.path}
    assert "/scim/x/v2/x" in paths
    for path in paths:
        with pytest.raises(ValidationError, match="is taken by another endpoint"):
            ProviderSettings(path=path)


def test_permission_call_and_explain_decide_alike(client: FlaskClient) -> None:
    asked = client.post("/permissions/check", json=question(), headers=ASK).get_json()["data"][0]
    explained = client.post("/permissions/explain", json=question(), headers=RULE).get_json()["data"][0]
    assert (asked["hasAccess"], asked["accessRole"]) == (True, "editor")
    reason, path = explained.pop("reason"), explained.pop("path")
    assert explained == asked
    assert reason.startswith("Allowed as editor")
    assert [record["kind"] for record in path] == ["document", "organization", "membership"]


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("POST", "/permissions/check", {}),
        ("POST", "/permissions/check", RULE),
        ("POST", "/permissions/explain", {}),
        ("POST", "/permissions/explain", ASK),
        ("POST", "/resync", ASK),
        ("GET", "/resync/x", {}),
    ],
)
def test_endpoints_require_their_own_tokens(
    client: FlaskClient, method: str, path: str, headers: dict[str, str]
) -> None:
    answer = client.open(path, method=method, json=question(), headers=headers)
    assert answer.status_code == 401
    assert answer.get_json()["error"]["status"] == "UNAUTHENTICATED"


@pytest.mark.parametrize(("proxies", "another"), [(0, 429), (1, 401)])
def test_wrong_tokens_are_counted_by_the_address_from_trusted_proxies(
    settings: Settings, engine: Engine, proxies: int, another: int
) -> None:
    client = client_of(settings.model_copy(update={"server": ServerSettings(trusted_proxies=proxies)}), engine)

    def guess(address: str) -> int:
        headers = {"Authorization": "Bearer guess", "X-Forwarded-For": f"192.0.2.99, {address}"}
        return client.post("/resync", headers=headers).status_code

    codes = [guess("203.0.113.1") for _ in range(FAILURES + 1)]
    assert codes == [401] * FAILURES + [429]
    assert guess("203.0.113.2") == another


@pytest.mark.parametrize(("token", "is_required", "code"), [("", False, 200), ("", True, 401), ("rule", True, 200)])
def test_metrics_of_a_worker_require_the_same_token_as_the_service(
    settings: Settings, token: str, is_required: bool, code: int
) -> None:
    app = worker_metrics(settings.model_copy(update={"metrics": MetricsSettings(require_token=is_required)}))
    answer = app.test_client().get("/metrics", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == code
    assert ("usher_backend_calls" in answer.get_data(as_text=True)) == (code == 200)
    assert app.test_client().get("/").status_code == 404


def test_without_admin_tokens_all_requests_are_refused(settings: Settings, engine: Engine) -> None:
    client = client_of(settings.model_copy(update={"admin": AdminSettings()}), engine)
    for token in ("", "rule", "None"):
        assert client.post("/resync", headers={"Authorization": f"Bearer {token}"}).status_code == 401


def test_every_response_has_a_request_id(client: FlaskClient) -> None:
    assert client.get("/healthz").headers["x-request-id"] == "made"
    assert client.get("/nowhere", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    assert client.get("/healthz", headers={"x-request-id": "a b"}).headers["x-request-id"] == "made"


@pytest.mark.parametrize("path", ["/nowhere", "/permissions/check/", "/resync/x/y/z", "/%2e%2e/etc", "/💥", "", "//"])
def test_unknown_paths_answer_in_the_envelope(client: FlaskClient, path: str) -> None:
    answer = client.get(path, headers=RULE)
    assert (answer.status_code, answer.get_json()["error"]["status"]) == (404, "NOT_FOUND")


def test_readyz_names_the_failed_checks(settings: Settings, empty: Engine) -> None:
    fresh = client_of(settings, empty)
    answer = fresh.get("/readyz")
    assert answer.status_code == 503
    states = {name: check["state"] for name, check in answer.get_json()["checks"].items()}
    assert states == {"database": "ok", "migrations": "failed", "accessModel": "failed", "directory": "failed"}
    upgrade(empty, STORE_MIGRATIONS)
    checks = fresh.get("/readyz").get_json()["checks"]
    assert checks["migrations"]["state"] == "ok"
    assert checks["accessModel"]["detail"] == "the directory has never been read: run usher directory refresh"
    read_directory(empty, sources_from_settings(settings.directory), clock=now)
    assert fresh.get("/readyz").get_json()["status"] == "ready"


def test_metrics_contain_requests_decisions_runs_and_sources(
    client: FlaskClient, engine: Engine, settings: Settings
) -> None:
    client.post("/permissions/check", json=question(), headers=ASK)
    client.post("/permissions/check", json=question("bob", "roadmap"), headers=ASK)
    client.post("/permissions/check", json={"data": {"requests": [{"userId": 7}]}}, headers=ASK)
    client.get("/resync/no-such-run", headers=RULE)
    runs = Runs(engine, now, Random(1))
    run, _ = runs.enqueue(RunRequest(trigger="resync"))
    runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, started_at=now())
    runs.move(run.run_id, RunStatus.READING, RunStatus.PLANNING)
    counts = {"document": {"delete": {"held": 3}, "add": {"done": 2}}}
    runs.move(run.run_id, RunStatus.PLANNING, RunStatus.HELD, counts=counts, finished_at=now(), calls=1)
    numbers = _numbers(client)
    assert numbers['usher_decisions_total{outcome="allowed"}'] == 1
    assert numbers['usher_decisions_total{outcome="denied"}'] == 1
    assert numbers['usher_decisions_total{outcome="error"}'] == 1
    assert numbers["usher_decision_call_seconds_count"] == 3
    assert numbers['usher_http_requests_total{code="404",method="GET",route="/resync/<run_id>"}'] == 1
    assert numbers['usher_runs{status="held"}'] == 1
    assert numbers["usher_held_deletes"] == 3
    assert numbers['usher_last_run_items{action="add",kind="document",outcome="done"}'] == 2
    assert numbers["usher_access_revision"] == 1
    assert numbers['usher_directory_records{source="people"}'] == 10
    assert numbers["usher_database_up"] == 1
    assert numbers['usher_denials_total{reason="restricted"}'] == 1
    assert numbers['usher_runs_ended_total{status="held"}'] == 1
    assert numbers['usher_runs{status="verifying"}'] == 0
    assert numbers["usher_queue_age_seconds"] == 0
    assert numbers["usher_next_run_timestamp_seconds"] == NOW.timestamp() + 900


def test_items_of_the_last_run_are_counted_once(client: FlaskClient, engine: Engine) -> None:
    runs = Runs(engine, now, Random(1))
    run, _ = runs.enqueue(RunRequest(trigger="resync"))
    runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, started_at=now())
    runs.move(run.run_id, RunStatus.READING, RunStatus.PLANNING)
    counts = {"document": {"add": {"planned": 9, "done": 5, "failed": 3}}}
    runs.move(run.run_id, RunStatus.PLANNING, RunStatus.PARTIAL, counts=counts, finished_at=now())
    items = {name: value for name, value in _numbers(client).items() if name.startswith("usher_last_run_items")}
    assert sum(items.values()) == 9
    assert items['usher_last_run_items{action="add",kind="document",outcome="planned"}'] == 1


def test_metrics_contain_refused_items_the_ledger_and_the_last_verify(client: FlaskClient, engine: Engine) -> None:
    ledger = open_ledger(engine, "https://backend.example", "key", now)
    with writing(engine) as connection:
        for item, parked in (("a", False), ("b", False), ("c", True)):
            connection.execute(
                insert(ItemFailureRow).values(
                    ledger_id=ledger.ledger_id,
                    kind="document",
                    organization_id="acme",
                    container_id="",
                    item_id=item,
                    deleting=False,
                    fingerprint="",
                    failures=1,
                    retry_at=0,
                    parked=parked,
                    message="no",
                )
            )
        connection.execute(
            insert(LedgerItemRow).values(
                ledger_id=ledger.ledger_id,
                kind="folder",
                organization_id="acme",
                container_id="",
                item_id="f",
                digest="",
                parent_id="",
                access_type="",
                access_role="",
                disabled=False,
                certain=True,
            )
        )
        note_findings(connection, ledger.ledger_id, {"seen": 7, "missing": 2}, NOW)
    numbers = _numbers(client)
    assert numbers['usher_items_failing{kind="document"}'] == 2
    assert numbers['usher_items_parked{kind="document"}'] == 1
    assert numbers['usher_items_parked{kind="folder"}'] == 0
    assert numbers['usher_ledger_items{kind="folder"}'] == 1
    assert numbers['usher_last_verify_items{finding="missing"}'] == 2
    assert numbers["usher_last_verify_timestamp_seconds"] == NOW.timestamp()
    assert numbers['usher_attention{cause="failing"}'] == 1
    assert numbers['usher_attention{cause="parked"}'] == 1


def test_metrics_contain_workers_and_the_age_of_the_queue(client: FlaskClient, engine: Engine) -> None:
    Runs(engine, lambda: NOW - timedelta(minutes=3), Random(1)).enqueue(RunRequest(trigger="resync"))
    with writing(engine) as connection:
        for worker_id, seconds, leads in (("1", 10, True), ("2", 100, False), ("3", 1000, True)):
            seen_at = round((NOW.timestamp() - seconds) * 1000)
            values = {"worker_id": worker_id, "name": "node", "started_at": 0, "seen_at": seen_at, "leads": leads}
            connection.execute(insert(WorkerRow).values(**values))
    numbers = _numbers(client)
    assert numbers["usher_workers"] == 2
    assert numbers["usher_workers_leading"] == 1
    assert numbers["usher_worker_seen_timestamp_seconds"] == NOW.timestamp() - 10
    assert numbers["usher_queue_age_seconds"] == 180


def test_metrics_contain_the_problems_of_each_source(settings: Settings, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "more.jsonl").write_text(
        '{"kind": "user"}\n{"kind": "membership", "organizationId": "nowhere", "userId": "ada"}\n'
    )
    sources: Any = [
        {"type": "file", "path": str(tmp_path / "directory.yaml"), "name": "people"},
        {"type": "file", "path": str(tmp_path / "more.jsonl"), "name": "more"},
    ]
    settings = settings.model_copy(update={"directory": DirectorySettings(sources=sources)})
    read_directory(engine, sources_from_settings(settings.directory), clock=now)
    numbers = _numbers(client_of(settings, engine))
    for source, problems in (("people", 0), ("more", 1)):
        assert numbers[f'usher_directory_malformed_records{{source="{source}"}}'] == problems
        assert numbers[f'usher_directory_dangling_records{{source="{source}"}}'] == problems


def test_openmetrics_is_returned_on_request(client: FlaskClient) -> None:
    client.post("/permissions/check", json=question(), headers=ASK)
    answer = client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.content_type.startswith("application/openmetrics-text")
    families = {family.name: family for family in openmetrics_families(answer.get_data(as_text=True))}
    assert families["usher_decisions"].type == "counter"
    assert families["usher_build"].type == "info"
    assert "usher_runs" in families
    plain = client.get("/metrics")
    assert plain.content_type.startswith("text/plain")
    assert "usher_build_info{" in plain.get_data(as_text=True)


def test_metrics_contain_no_paths() -> None:
    assert source_labels(["/etc/acme/people.yaml", "people", "a/b/", "https://x/y"]) == [
        "people.yaml",
        "people",
        "b",
        "y",
    ]
    first, second, other = source_labels(["/a/people.yaml", "/b/people.yaml", "x"])
    assert first.startswith("people.yaml#")
    assert second.startswith("people.yaml#")
    assert (first != second, other) == (True, "x")


def test_invented_paths_and_methods_create_no_time_series(client: FlaskClient) -> None:
    for number in range(5):
        client.get(f"/invented/{number}")
        client.open("/healthz", method=f"ODD{number}")
    routes = {name for name in _numbers(client) if name.startswith("usher_http_requests_total")}
    assert len(routes) == 2


def test_metrics_require_an_admin_token_if_configured(settings: Settings, engine: Engine) -> None:
    guarded = client_of(settings.model_copy(update={"metrics": MetricsSettings(require_token=True)}), engine)
    assert guarded.get("/metrics").status_code == 401
    assert guarded.get("/metrics", headers=RULE).status_code == 200


def test_an_error_of_a_metric_is_logged_and_is_no_outage(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_connection: Connection) -> None:
        raise KeyError("kind")

    monkeypatch.setattr("app.monitoring.database_metrics.workers", fail)
    with capture_logs() as lines:
        assert "usher_database_up 1.0" in client.get("/metrics", headers=RULE).get_data(as_text=True)
    (line,) = (line for line in lines if line["event"] == "database_metrics_failed")
    assert line["problem"] == "KeyError"


def _numbers(client: FlaskClient) -> dict[str, float]:
    text = client.get("/metrics").get_data(as_text=True)
    lines = [line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_no_turn_is_not_reported_as_an_outage(
    settings: Settings, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.access.index.turns.WAIT", 0.01)
    read_directory(engine, sources_from_settings(settings.directory), clock=now)
    index = AccessIndex(engine, tmp_path / "index", clock=now, turns=1)
    index.update()
    client = service_app(settings, engine, clock=now, new_id=lambda: "made", index=index).test_client()
    with index.turns.take():
        refused = client.post("/resync", json={}, headers=RULE)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
        assert refused.get_json()["error"]["message"] == "too many requests are in progress; try again"
        assert "usher_database_up 1.0" in client.get("/metrics", headers=RULE).get_data(as_text=True)
        assert {check["state"] for check in client.get("/readyz").get_json()["checks"].values()} == {"ok"}
        index.turns.responds = lambda: False
        refused = client.post("/resync", json={}, headers=RULE)
        assert "cannot reach its database" in refused.get_json()["error"]["message"]
    assert client.post("/resync", json={}, headers=RULE).status_code == 202
    index.close()


def test_requests_that_need_no_database_are_answered_without_it(
    settings: Settings, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_directory(engine, sources_from_settings(settings.directory), clock=now)
    provider = ProviderSettings(auth_tokens=(SecretStr("ask"),), browser_origins=["http://localhost:3000"])
    index = AccessIndex(engine, tmp_path / "index", clock=now)
    index.update()
    settings = settings.model_copy(update={"provider": provider})
    client = service_app(settings, engine, clock=now, new_id=lambda: "made", index=index).test_client()
    monkeypatch.setattr(engine.pool, "_do_get", lambda: pytest.fail("it connects"))
    engine.dispose()
    origin = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST"}
    preflight = client.options("/permissions/check", headers=origin)
    assert (preflight.status_code, preflight.headers["Access-Control-Allow-Origin"]) == (204, origin["Origin"])
    assert client.post("/permissions/check", json=question(), headers={**ASK, **origin}).status_code == 200
    assert client.get("/nothing-here").status_code == 404
    index.close()


def test_metrics_of_the_index_follow_it(settings: Settings, engine: Engine, tmp_path: Path) -> None:
    uptime, delay = 1_000.0, 0.0
    metrics = Metrics()
    index = AccessIndex(
        engine,
        tmp_path / "index",
        clock=lambda: NOW + timedelta(seconds=delay),
        observe_delay=metrics.index_delay_seconds.observe,
        uptime=lambda: uptime,
    )
    client = service_app(settings, engine, clock=now, new_id=lambda: "made", index=index, metrics=metrics).test_client()

    def shown() -> dict[str, float]:
        named = {name: value for name, value in _numbers(client).items() if name.startswith("usher_index_")}
        return {name: value for name, value in named.items() if not name.endswith("_created")}

    def expected(revision: int, used: int, staleness: float | None, delays: list[float]) -> dict[str, float]:
        values: dict[str, float] = {"usher_index_revision": revision, "usher_index_used": used}
        values |= {} if staleness is None else {"usher_index_staleness_seconds": staleness}
        values |= {"usher_index_delay_seconds_count": len(delays), "usher_index_delay_seconds_sum": sum(delays)}
        bounds = {name: float(name.split('"')[1]) for name in shown() if "_bucket" in name}
        return values | {name: len([each for each in delays if each <= bound]) for name, bound in bounds.items()}

    assert shown() == expected(0, 0, None, [])
    read_directory(engine, sources_from_settings(settings.directory), clock=now)
    index.update()
    # A first build is no delay.
    assert shown() == expected(1, 1, 0, [])
    uptime += 7
    assert shown() == expected(1, 1, 7, [])
    (tmp_path / "directory.yaml").write_text(DIRECTORY.replace("Acme", "Acme Ltd"))
    read_directory(engine, sources_from_settings(settings.directory), clock=now)
    delay = 0.75
    index.update()
    assert shown() == expected(2, 1, 0, [0.75])
    uptime += 11
    assert shown() == expected(2, 0, 11, [0.75])
    index.close()


def test_metrics_do_not_wait_for_a_database_that_does_not_respond(
    settings: Settings, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = AccessIndex(engine, tmp_path / "index", clock=now)
    client = service_app(settings, engine, clock=now, new_id=lambda: "made", index=index).test_client()
    monkeypatch.setattr(index, "_is_unreachable", True)
    monkeypatch.setattr("app.monitoring.database_metrics.reading", lambda _engine: pytest.fail("it reads"))
    assert "usher_database_up 0.0" in client.get("/metrics", headers=RULE).get_data(as_text=True)
