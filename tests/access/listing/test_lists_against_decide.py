"""The pages of lists of access against ``decide``, asked for every pair, on random directories."""

from collections import Counter
from datetime import datetime, timedelta
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from app.access.decision.decide import DecisionPolicy, PlainQuestion, Rule, decide_uncapped
from app.access.decision.view import AccessView
from app.access.listing.page import AccessEntry
from app.access.listing.resources import ResourceList
from app.access.listing.users import UserList
from app.access.records import AccessRole, ResourceKind
from app.foundation.database.engine import reading
from tests.choice import examples, sampled
from tests.worlds.access_model import MemoryView, StoredDirectory
from tests.worlds.random_directories import DOCUMENTS, FOLDERS, NOW, ORGANIZATIONS, USERS, Company

ALL_USERS = [*USERS, "nobody"]
ALL_ORGANIZATIONS = [*ORGANIZATIONS, "nowhere"]

Row = tuple[str, str, AccessRole | None, Rule, datetime | None]
"""Kind and id, and the decision."""


def resources_in(organization_id: str) -> list[tuple[ResourceKind, str]]:
    """The resources that may exist, and one that does not, in the order of a list."""
    listed: list[tuple[ResourceKind, str]] = [("organization", organization_id)]
    listed += [("folder", item_id) for item_id in sorted([*FOLDERS, "nothing"])]
    return listed + [("document", item_id) for item_id in sorted([*DOCUMENTS, "nothing"])]


class Pairs:
    """Every pair of a user and a resource, decided."""

    def __init__(self, view: AccessView, at: datetime, policy: DecisionPolicy) -> None:
        self.rows: dict[tuple[str, str, ResourceKind, str], tuple[AccessRole | None, Rule, datetime | None]] = {}
        for organization_id in ALL_ORGANIZATIONS:
            for kind, item_id in resources_in(organization_id):
                for user_id in ALL_USERS:
                    question = PlainQuestion(
                        user_id=user_id, type=kind, resource_id=item_id, organization_id=organization_id
                    )
                    decision = decide_uncapped(view, question, at, policy)
                    if decision.has_access:
                        key = (user_id, organization_id, kind, item_id)
                        self.rows[key] = (decision.access_role, decision.rule, decision.expires_at)

    def of_user(self, user_id: str, organization_id: str, role: AccessRole | None) -> list[Row]:
        keys = [(user_id, organization_id, kind, item_id) for kind, item_id in resources_in(organization_id)]
        rows = [(key[2], key[3], *self.rows[key]) for key in keys if key in self.rows]
        return [row for row in rows if role in {None, row[2]}]

    def of_resource(self, organization_id: str, kind: ResourceKind, item_id: str, role: AccessRole | None) -> list[Row]:
        keys = [(user_id, organization_id, kind, item_id) for user_id in sorted(ALL_USERS)]
        rows = [("user", key[0], *self.rows[key]) for key in keys if key in self.rows]
        return [row for row in rows if role in {None, row[2]}]


def _row(entry: AccessEntry) -> Row:
    return (entry.kind, entry.item_id, entry.access_role, entry.rule, entry.expires_at)


def read_pages(
    connection: Connection, listing: ResourceList | UserList, policy: DecisionPolicy, size: int
) -> list[Row]:
    rows: list[Row] = []
    after: tuple[str, ...] = ()
    while True:
        page = listing.page(connection, policy, after=after, limit=size)
        rows += map(_row, page.entries)
        assert len(page.entries) == size or not page.has_more
        if not page.has_more:
            return rows
        after = (page.entries[-1].kind, page.entries[-1].item_id)


drawn = {
    "number": st.integers(0, 2**32),
    "size": st.sampled_from([1, 2, 7]),
    "minutes": st.sampled_from([0, 0, 1, 3, 6]),
    "role": st.sampled_from([None, None, *AccessRole]),
    "batch": st.sampled_from([1, 100]),
}


@pytest.fixture(params=sampled(range(4), sample=1))
def portion(request: pytest.FixtureRequest) -> int:
    """Runs a property test several times, each with other examples."""
    number: int = request.param
    return number


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(**drawn)
@example(number=1, size=1, minutes=0, role=None, batch=1)
@pytest.mark.usefixtures("portion")
def test_all_pages_equal_decide_for_every_pair(  # noqa: PLR0917 - hypothesis passes them by name
    number: int, size: int, minutes: int, role: AccessRole | None, batch: int, stored_directory: StoredDirectory
) -> None:
    """``batch``: the size of the first batch of candidates. In small directories, one of usual size has all of them."""
    company = Company(number)
    records, policy = company.records(), company.policy()
    stored_directory.write(records)
    at = NOW + timedelta(minutes=minutes)
    pairs = Pairs(MemoryView(records), at, policy)
    with reading(stored_directory.engine) as connection, patch("app.access.listing.page._batch_size", lambda _: batch):
        for organization_id in ALL_ORGANIZATIONS:
            for user_id in ALL_USERS:
                listing = ResourceList(organization_id=organization_id, user_id=user_id, role=role, at=at)
                assert read_pages(connection, listing, policy, size) == pairs.of_user(user_id, organization_id, role)
            for kind, item_id in resources_in(organization_id):
                of = UserList(organization_id=organization_id, type=kind, resource_id=item_id, role=role, at=at)
                expected = pairs.of_resource(organization_id, kind, item_id, role)
                assert read_pages(connection, of, policy, size) == expected


def test_random_directories_allow_by_every_rule() -> None:
    met: Counter[Rule] = Counter()
    for number in range(100):
        company = Company(number)
        pairs = Pairs(MemoryView(company.records()), NOW, company.policy())
        met.update(rule for _, rule, _ in pairs.rows.values())
    rules = [Rule.MEMBER, Rule.OWN_GRANT, Rule.GROUP_GRANT, Rule.MEMBER_ACCESS, Rule.PUBLIC_ACCESS]
    assert all(met[rule] >= 50 for rule in rules), met
