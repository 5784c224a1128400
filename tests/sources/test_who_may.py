"""Whatever order reads and pushes come in, nobody has access whom the application's own tables deny."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import permutations
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

from app.access.decide import Check, DecisionPolicy, decide
from app.database.engine import open_engine
from app.directory.casting import record_from_object
from app.directory.configured import sources_from_settings
from app.directory.pushes import record_of_key
from app.directory.settings import DirectorySettings
from app.directory.source import Verdict
from app.model.refresh.pushes import Pushed, apply_push
from app.model.view.loader import AccessViewLoader
from app.runs.reading import RefreshReport, refresh
from app.store.schema import METADATA
from tests.tables import make_tables
from tests.worlds.application import DOCUMENTS, USERS, Application, source_settings

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
LEVELS = {None: 0, "viewer": 1, "editor": 2}


class Installation:
    """The application, and an Usher that reads its database and is pushed to."""

    def __init__(self, engine: Engine, application: Application, url: str, *, by_rules: bool) -> None:
        self.engine = engine
        self.application = application
        given = source_settings(url, by_rules=by_rules, token="p" * 30)
        settings = DirectorySettings.model_validate({"sources": [given], "guard": {"percent": 100}})
        self.sources = sources_from_settings(settings)
        self.now = NOW
        self._sequence = 0
        self._view = AccessViewLoader(engine, DecisionPolicy())

    def read(self, *, full: bool = False) -> RefreshReport:
        self.now += timedelta(seconds=1)
        return refresh(self.engine, self.sources, clock=lambda: self.now, anew=["app"] if full else [])

    def push(self, *said: tuple[dict[str, object], bool]) -> None:
        """Applies what the application said of itself."""
        self._sequence += 1
        pushed = Pushed(
            source="app",
            sequence=self._sequence,
            previous_sequence=None,
            upserts=[record_from_object(one)[0] for one, is_there in said if is_there],
            removals=[record_of_key(one) for one, is_there in said if not is_there],
            by="test",
        )
        apply_push(self.engine, pushed, configured=["app"], only_pushed=False, clock=lambda: self.now)

    def allowed(self) -> dict[tuple[str, str], str]:
        """(user, document) → the role, as Usher decides."""
        asked = [
            Check(user_id=user, type="document", resource_id=document, organization_id="acme")
            for user in USERS
            for document in DOCUMENTS
        ]
        view = self._view(asked)
        decisions = [(one, decide(view, one, self.now, DecisionPolicy())) for one in asked]
        return {
            (one.user_id, one.resource_id): decision.access_role.value
            for one, decision in decisions
            if decision.access_role is not None
        }

    def too_much(self) -> list[tuple[str, str, str]]:
        """Who is let in, or with a higher role, than the application's tables allow."""
        real = self.application.allowed()
        return [
            (user, document, role)
            for (user, document), role in self.allowed().items()
            if LEVELS[role] > LEVELS[real.get((user, document))]
        ]


@pytest.fixture(params=[False, True], ids=["records", "rules"])
def installation(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Iterator[Installation]:
    url = f"sqlite:///{tmp_path}/app.db"
    theirs = create_engine(url)
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    application = Application(theirs)
    application.begin()
    yield Installation(engine, application, url, by_rules=request.param)
    engine.dispose()
    theirs.dispose()


STEPS = ("insert", "push", "read", "delete", "push again")


def orders() -> Iterator[Sequence[str]]:
    for order in permutations(STEPS):
        if order.index("insert") < order.index("delete") and order.index("insert") < order.index("push"):
            yield order


def test_a_deleted_share_is_no_access_in_any_order(installation: Installation) -> None:
    """The last read is one of changes, so what it leaves must be what the database holds."""
    application = installation.application
    installation.read()
    wrong = []
    for number, order in enumerate(orders()):
        share = f"share-{number}"
        for step in order:
            if step == "insert":
                application.put("share", share, doc="d1", person="ann", role="viewer")
                said = application.record("grant", "d1", "ann")
            elif step == "delete":
                application.drop("share", share)
            elif step == "read":
                installation.read()
            else:
                installation.push(said)
        [source] = installation.read().sources
        assert (source.verdict, source.answered) == (Verdict.COMPLETE, "changes")
        if installation.too_much():
            wrong.append(order)
            installation.read(full=True)
    assert wrong == []
