"""The contract suite of sources, passed by databases."""

from collections.abc import Iterator

import pytest

from app.directory.contract_suite import SourceContract
from tests.directory.databases import SORTS, Database, PeopleAndTeams, opened
from tests.worlds.faulty_reads import FaultyReads

pytestmark = [pytest.mark.process]


@pytest.fixture(scope="module", params=SORTS)
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with opened(request.param, tmp_path_factory.mktemp("app")) as database:
        yield database


class TestDatabases(FaultyReads, SourceContract):
    people = 100
    many = 3_000
    rounds = 4

    @pytest.fixture
    def world(self, database: Database) -> PeopleAndTeams:
        return PeopleAndTeams(database)
