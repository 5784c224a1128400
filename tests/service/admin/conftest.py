"""The endpoints for operators, on a real database, with a fixed clock."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from flask import Flask
from flask.testing import FlaskClient
from pydantic import SecretStr
from sqlalchemy import Engine

from app.commands.schema import METADATA
from app.foundation.audit import Audit
from app.foundation.database.engine import open_engine
from app.http.errors import install_error_handlers
from app.http.request_id import install_request_ids
from app.http.throttle import FailedCredentials
from app.http.tokens import TokenSet
from app.service.admin.auth import AdminAuth
from app.service.admin.health import NotReadyError, health_blueprint, metrics_blueprint
from app.service.admin.resync import resync_blueprint
from app.service.refusals import Refusals
from app.sync.runs.lifecycle import Runs
from tests.tables import make_tables
from tests.worlds.openapi_check import undocumented_responses

TOKEN = "let-me-in"


@dataclass
class Admin:
    """The app and its parts."""

    app: Flask
    engine: Engine
    runs: Runs
    broken: list[str]

    @property
    def client(self) -> FlaskClient:
        client = self.app.test_client()
        client.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {TOKEN}"
        return client

    @property
    def stranger(self) -> FlaskClient:
        return self.app.test_client()


@pytest.fixture
def admin(database_url: str, tmp_path: Path) -> Iterator[Admin]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    runs = Runs(engine, lambda: datetime(2026, 11, 20, 12, 0, tzinfo=UTC), Random(7))
    broken: list[str] = []
    app = Flask("admin")
    undescribed = undocumented_responses(app)
    install_request_ids(app, lambda: "id")
    install_error_handlers(app)
    tokens = TokenSet([SecretStr(TOKEN), SecretStr("another")], FailedCredentials())
    auth = AdminAuth(tokens, Audit(runs.clock), Refusals(Audit(runs.clock), engine))
    app.register_blueprint(resync_blueprint(runs, auth))
    app.register_blueprint(health_blueprint({"first": _check("first", broken), "second": _check("second", broken)}))
    app.register_blueprint(metrics_blueprint(lambda _accept: (b"up 1\n", "text/plain"), auth.require))
    yield Admin(app, engine, runs, broken)
    engine.dispose()
    assert undescribed == []


def _check(name: str, broken: list[str]) -> Callable[[], str]:
    def check() -> str:
        if f"{name} crashes" in broken:
            raise RuntimeError("postgresql://user:secret@host")
        if name in broken:
            raise NotReadyError("not now")
        return "well"

    return check
