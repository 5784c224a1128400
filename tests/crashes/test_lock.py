"""How soon the lock of a dead node is released."""

import pytest
from sqlalchemy import text

from app.foundation.database.engine import open_engine
from app.sync.runs.lock import sync_lock
from tests.conftest import POSTGRES

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(not POSTGRES, reason="USHER_TEST_POSTGRES names no server"),
]


def test_server_ends_a_silent_session_within_ten_seconds(postgres: str) -> None:
    engine = open_engine(postgres)
    lock = sync_lock(engine)
    assert lock.acquire()
    session = lock._session  # type: ignore[attr-defined]  # how it is connected shows nowhere else
    shown = [
        int(session.execute(text(f"SHOW tcp_keepalives_{name}")).scalar_one()) for name in ("idle", "interval", "count")
    ]
    idle, interval, count = shown
    assert 0 < idle + interval * count < 10
    assert session.execute(text("SHOW tcp_user_timeout")).scalar_one() in {"9s", "9000"}
    lock.release()
    engine.dispose()
