"""The statistics with which SQLite chooses indexes."""

import pytest
from sqlalchemy import text

from app.backend.schema import METADATA
from app.backend.storage.sqlite_statistics import ensure_statistics
from app.foundation.database.engine import reading, writing

from .conftest import BackendWorld

pytestmark = pytest.mark.one_database

PAGE = (
    "SELECT * FROM notification WHERE api_key_id = 'k' AND organization_id = 'o' ORDER BY created_at, notification_id"
)


def test_index_of_an_upgrade_gets_statistics(world: BackendWorld) -> None:
    with writing(world.engine) as connection:
        connection.execute(text("DELETE FROM sqlite_stat1 WHERE idx = 'ix_notification_action_user'"))
    assert "ix_notification_action_user" in plan(world)
    ensure_statistics(world.engine, METADATA)
    assert "ix_notification_time" in plan(world)


def plan(world: BackendWorld) -> str:
    # A new connection reads the statistics.
    world.engine.dispose()
    with reading(world.engine) as connection:
        return str(connection.execute(text(f"EXPLAIN QUERY PLAN {PAGE}")).all())
