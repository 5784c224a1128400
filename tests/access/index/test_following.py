"""An index that follows refreshes contains the same entries as one that is built from the access model."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from app.access.index import entries
from app.access.index.entries import all_entries
from app.access.index.index import AccessIndex
from app.access.problem_list import ProblemList
from app.access.records import Record
from app.access.refresh import change_log
from app.access.refresh.reads import ReadResult
from app.access.refresh.refresh import Refresh
from app.commands.schema import METADATA
from app.foundation.database.engine import open_engine, reading, writing
from tests.choice import examples, sampled
from tests.tables import make_tables
from tests.worlds.random_directories import NOW, Company


class Node:
    """A database, and a node's index of it."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.index = AccessIndex(engine, folder, clock=lambda: NOW)
        self._files: set[str] = set()

    @property
    def builds(self) -> int:
        """The number of files that were built."""
        return len(self._files)

    def follow(self) -> None:
        """Brings the index up to date, and compares its entries with those of a new one."""
        self.index.update()
        assert self.index.state.is_used
        assert self.index._file is not None
        self._files.add(self.index._file.path.name)
        assert self.stored() == self.expected()

    def read(self, records: list[Record]) -> None:
        with Refresh(self.engine, clock=lambda: NOW, problems=ProblemList()) as refresh:
            refresh.begin(["company"])
            for place, record in enumerate(records):
                refresh.staging.add(record, f"company:{place}")
            refresh.staging.end(ReadResult(records=len(records)))
            refresh.finish(accept_empty=["company"])

    def stored(self) -> dict[bytes, bytes]:
        """The entries of the index, without its stamp."""
        file = self.index._file
        assert file is not None
        with file._environment.begin() as transaction, transaction.cursor() as cursor:
            return {bytes(key): sorted_value(bytes(key), bytes(value)) for key, value in cursor if bytes(key) != b"\0"}

    def expected(self) -> dict[bytes, bytes]:
        with reading(self.engine) as connection:
            return {key: sorted_value(key, value) for key, value in all_entries(connection)}


def sorted_value(key: bytes, value: bytes) -> bytes:
    """The value with its list in a fixed order: the database returns it in any."""
    parts = value.split(b"\1")
    if key[:1] in b"eg":
        return b"\1".join(sorted(parts))
    first = {b"x": 0, b"f": 2, b"d": 2}.get(key[:1])
    if first is None or len(parts) - first < 2:
        return value
    pairs = sorted(zip(parts[first::2], parts[first + 1 :: 2], strict=True))
    return b"\1".join([*parts[:first], *(part for pair in pairs for part in pair)])


@pytest.fixture
def node(database_url: str, tmp_path: Path) -> Iterator[Node]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield Node(engine, tmp_path / "index")
    engine.dispose()


@pytest.fixture(params=sampled([1, 32, 2], sample=2))
def listed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of grants in one entry: few, so that entries change between one list and single grants."""
    monkeypatch.setattr(entries, "MAX_LISTED", request.param)
    limit: int = request.param
    return limit


def changed(records: list[Record], lot: Random) -> list[Record]:
    """The records without some, and with some of another directory."""
    share = lot.choice([0.02, 0.3])
    kept = [record for record in records if lot.random() > share]
    return kept + [record for record in Company(lot.randrange(1 << 30)).records() if lot.random() < share]


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**32))
@pytest.mark.usefixtures("listed")
def test_changes_lead_to_the_same_entries_as_a_build(seed: int, node: Node) -> None:
    lot = Random(seed)
    records = Company(seed).records()
    for _ in range(4):
        node.read(records)
        if lot.random() < 0.3:
            records = changed(records, lot)
            node.read(records)
        node.follow()
        records = changed(records, lot)
    assert node.builds == 1


def test_a_node_behind_the_log_builds_a_new_index(node: Node) -> None:
    records = Company(1).records()
    node.read(records)
    node.follow()
    for number in range(2, 4):
        node.read(Company(number).records())
    with writing(node.engine) as connection:
        connection.execute(text("UPDATE access_revision SET logged = FALSE WHERE revision = 2"))
    node.follow()
    assert node.builds == 2


def test_a_revision_with_too_many_changes_is_not_logged(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "MAX_LOGGED", 3)
    node.read(Company(1).records())
    node.follow()
    node.read(Company(2).records())
    with reading(node.engine) as connection:
        assert connection.execute(text("SELECT COUNT(*) FROM access_change")).scalar_one() == 0
    node.follow()
    assert node.builds == 2


def test_a_restored_database_leads_to_a_new_index(node: Node) -> None:
    node.read(Company(1).records())
    node.read(Company(2).records())
    node.follow()
    with writing(node.engine) as connection:
        connection.execute(text("UPDATE access_revision SET created_at = created_at - 1 WHERE revision = 2"))
        connection.execute(text("DELETE FROM model_grant"))
    node.follow()
    assert node.builds == 2


def test_old_changes_are_deleted(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.read(Company(1).records())
    monkeypatch.setattr(change_log, "KEPT_MS", -1)
    node.read(Company(2).records())
    with reading(node.engine) as connection:
        assert set(connection.execute(text("SELECT revision FROM access_change")).scalars()) == {2}
        logged = connection.execute(text("SELECT revision FROM access_revision WHERE logged")).scalars().all()
    assert logged == [2]
