"""The contract suite for databases."""

from collections.abc import Callable

import pytest

from app.directory.testing.contract import SourceContract
from tests.directory.databases import SORTS, Database, PeopleAndTeams
from tests.worlds.faulty_reads import FaultyReads

pytestmark = [pytest.mark.process]


@pytest.fixture(scope="module", params=SORTS)
def database(request: pytest.FixtureRequest, standing_database: Callable[[str], Database]) -> Database:
    return standing_database(request.param)


class TestDatabases(FaultyReads, SourceContract):
    people = 100
    many = 2_000
    rounds = 3

    @pytest.fixture
    def world(self, database: Database) -> PeopleAndTeams:
        return PeopleAndTeams(database)
