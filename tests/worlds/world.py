"""Usher in the process of a test: its database, its client, and runs that are executed one after the other."""

from collections.abc import Sequence
from random import Random
from threading import Event
from typing import Any, Literal

from flask import Flask
from pydantic import SecretStr
from requests.adapters import BaseAdapter
from sqlalchemy import Engine

from app.access.decision.decide import DecisionPolicy
from app.client.client import BackendClient
from app.client.settings import BackendSettings
from app.contract.operations import by_name
from app.directory.settings import DirectorySettings
from app.directory.source import Source
from app.sync.plan.settings import LimitSettings
from app.sync.runs.engine import SyncEngine
from app.sync.runs.lifecycle import Runs
from app.sync.runs.lock import sync_lock
from app.sync.runs.run import Run, RunRequest
from app.sync.runs.settings import SyncSettings
from tests.progress import QuietProgress
from tests.worlds.clock import SimulatedTime

NO_LIMITS = LimitSettings(delete_count=1_000_000, delete_percent=100)


class UsherWorld:
    """The base of the worlds of several packages. A subclass sets the backend and the directory."""

    sources: Sequence[Source]
    """The sources of the directory."""
    transport: BaseAdapter | None = None
    """Replaces the network."""
    base_url = "http://backend.test"
    api_key = "key"
    auth_token = "token"
    batch_size = 200
    max_in_flight = 4
    operations: Literal["auto", "core", "extended"] = "auto"
    limits = NO_LIMITS
    grace = 0
    allow_deletes = False
    """Whether deletes, including those of organizations, need no approval."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.time = SimulatedTime()
        self.random = Random(2)
        self.stop = Event()

    @property
    def settings(self) -> BackendSettings:
        return BackendSettings(
            base_url=self.base_url,
            api_key=SecretStr(self.api_key),
            auth_token=SecretStr(self.auth_token),
            max_in_flight=self.max_in_flight,
            batch_size=self.batch_size,
            operations=self.operations,
        )

    @property
    def directory_settings(self) -> DirectorySettings:
        return DirectorySettings(grace=self.grace)

    @property
    def runs(self) -> Runs:
        return Runs(self.engine, self.time, self.random)

    def client(self) -> BackendClient:
        """A client with simulated time."""
        return BackendClient(
            self.settings,
            transport=self.transport,
            clock=self.time,
            sleep=self.time.sleep,
            monotonic=self.time.monotonic,
            random=Random(1),
            stop=self.stop,
        )

    def sync_engine(self) -> SyncEngine:
        return SyncEngine(
            engine=self.engine,
            client=self.client(),
            sources=self.sources,
            sync_settings=SyncSettings(limits=self.limits),
            backend_settings=self.settings,
            directory_settings=self.directory_settings,
            policy=DecisionPolicy(),
            clock=self.time,
            sleep=self.time.sleep,
            random=self.random,
        )

    def sync(self, **request: Any) -> Run:
        """One complete run."""
        run, _ = self.runs.enqueue(RunRequest(**{"trigger": "command", "allow_deletes": self.allow_deletes, **request}))
        return self.execute(run.run_id)

    def execute(self, run_id: str, engine: SyncEngine | None = None) -> Run:
        """Executes a queued run, with an engine of its own or with this one, as a worker does."""
        lock = sync_lock(self.engine)
        assert lock.acquire()
        engine = engine or self.sync_engine()
        try:
            return engine.execute(run_id, lock=lock, progress=QuietProgress(), stop=self.stop)
        finally:
            lock.release()
            engine.client.close()

    def close(self) -> None:
        self.engine.dispose()


def new_workspace(app: Flask) -> tuple[str, str]:
    """API key and auth token of a new workspace of the self-hosted backend."""
    client = app.test_client()

    def ask(operation: str, headers: dict[str, str], **data: Any) -> Any:
        response = client.post(by_name(operation).path, json={"data": data}, headers=headers)
        assert response.status_code == 200, response.json
        return response.get_json()["result"]["data"]

    workspace = ask("create_workspace", {}, ownerEmail="owner@acme.example")
    names = ("x-service-workspace-id", "x-service-workspace-auth-token")
    headers = dict(zip(names, (workspace["id"], workspace["authToken"]), strict=True))
    api_key = next(iter(workspace["apiKeyList"]))
    return api_key, ask("get_auth_tokens", headers, apiKey=api_key)["authTokens"][0]["token"]
