"""The notifications of PostgreSQL about new revisions."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from sqlalchemy import text

from app.access.index import waiting
from app.access.index.index import AccessIndex
from app.access.revisions import REVISION_CHANNEL
from app.commands.schema import METADATA
from app.foundation.clock import utc_now
from app.foundation.database.engine import open_engine, reading
from tests.conftest import POSTGRES
from tests.crashes.sessions import end_sessions
from tests.tables import make_tables
from tests.worlds.numbered_revisions import QUESTIONS, Revisions, answers, ask

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(not POSTGRES, reason="USHER_TEST_POSTGRES names no server"),
]

LISTENS = f"a.query = 'LISTEN {REVISION_CHANNEL}'"


class Following:
    """An index that follows a database in a thread."""

    def __init__(self, url: str, folder: Path) -> None:
        self.engine = open_engine(url)
        make_tables(self.engine, METADATA)
        self.revisions = Revisions(self.engine)
        self.index = AccessIndex(self.engine, folder, clock=utc_now)
        self.stop = Event()
        self.thread = Thread(target=self.index.run, args=(self.stop,))

    def sessions(self) -> set[int]:
        """The sessions that wait for notifications."""
        query = f"SELECT a.pid FROM pg_stat_activity a WHERE a.datname = current_database() AND {LISTENS}"
        with reading(self.engine) as connection:
            return set(connection.execute(text(query)).scalars())

    def next_revision(self) -> float:
        """Reads a revision. Returns the seconds until the index answers by it."""
        revision = self.revisions.read().revision
        began = time.monotonic()
        wait_for(lambda: self.index.state.revision == revision)
        seconds = time.monotonic() - began
        with self.index.view(QUESTIONS, revision) as view:
            assert ask(view) == (revision, answers(revision))
        return seconds


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture
def following(postgres: str, tmp_path: Path) -> Iterator[Following]:
    following = Following(postgres, tmp_path / "index")
    following.revisions.read()
    following.thread.start()
    yield following
    following.stop.set()
    following.revisions.read()
    following.thread.join(20)
    assert not following.thread.is_alive()
    following.index.close()
    following.engine.dispose()


def test_listening_resumes_after_its_connection_was_terminated(
    postgres: str, following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "CHECK", 0.05)
    for _ in range(2):
        wait_for(following.sessions)
        before = following.sessions()
        assert len(before) == 1
        assert end_sessions(postgres, LISTENS) == 1
        # The checks continue.
        following.next_revision()
        wait_for(following.sessions)
        assert not before & following.sessions()
    monkeypatch.setattr(waiting, "CHECK", 3600)
    following.next_revision()
    # Now, only a notification ends the wait.
    assert following.next_revision() < 10
