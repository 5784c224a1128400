"""Pages of candidates, however many of them are denied, and lists of large organizations."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection

from app.access.decision.decide import Decision, DecisionPolicy, Rule
from app.access.listing.page import find_allowed, find_next
from app.access.listing.resources import ResourceList
from app.access.records import (
    AccessRole,
    AccessType,
    Document,
    Folder,
    Grant,
    Membership,
    Organization,
    Record,
    ResourceKind,
    User,
)
from app.foundation.database.engine import reading
from tests.worlds.access_model import StoredDirectory
from tests.worlds.random_directories import NOW

ALLOW = Decision(True, Rule.OWN_GRANT, access_role=AccessRole.EDITOR)
DENY = Decision(False, Rule.RESTRICTED)
IDS = [f"{number:04}" for number in range(1000)]


@given(allowed=st.sets(st.sampled_from(IDS), max_size=40), limit=st.integers(1, 9), first=st.sampled_from(["", *IDS]))
def test_pages_have_all_allowed_candidates(allowed: set[str], limit: int, first: str) -> None:
    def candidates(after: str, size: int) -> Sequence[str]:
        return [item_id for item_id in IDS if item_id > after][:size]

    def decide_all(ids: Sequence[str]) -> list[Decision]:
        return [ALLOW if item_id in allowed else DENY for item_id in ids]

    expected = [item_id for item_id in IDS if item_id in allowed and item_id > first]
    found = find_allowed(candidates, decide_all, after=first, limit=limit, role=None)
    ids = [item_id for item_id, _ in found]
    assert ids == expected[: len(ids)]
    assert len(ids) >= limit or ids == expected
    some, last = find_next(candidates, decide_all, after=first, limit=limit, role=None)
    rest = [] if last is None else find_allowed(candidates, decide_all, after=last, limit=1000, role=None)
    assert [item_id for item_id, _ in (*some, *rest)] == expected


def _documents(organization_type: AccessType) -> Iterator[Record]:
    """Three hundred documents in a restricted folder, every fiftieth of which is granted, and some outside of it."""
    yield Organization(organization_id="acme", organization_name="", access_type=organization_type)
    yield User(user_id="ada", name="", email="")
    yield Membership(organization_id="acme", user_id="ada")
    yield Folder(organization_id="acme", folder_id="vault", folder_name="", access_type=AccessType.RESTRICTED)
    for number in range(300):
        yield Document(organization_id="acme", document_id=f"d{number:03}", document_name="", folder_id="vault")
        if number % 50 == 49:
            yield Grant(organization_id="acme", document_id=f"d{number:03}", user_id="ada")
    for number in range(3):
        yield Document(organization_id="acme", document_id=f"e{number}", document_name="")


GRANTED = [f"d{number:03}" for number in range(49, 300, 50)]


@pytest.mark.parametrize(
    ("organization_type", "expected"),
    [
        (AccessType.RESTRICTED, GRANTED),
        (AccessType.ORGANIZATION_PRIVATE, [*GRANTED, "e0", "e1", "e2"]),
        (AccessType.PUBLIC, [*GRANTED, "e0", "e1", "e2"]),
    ],
)
@pytest.mark.parametrize("size", [1, 4, 100])
def test_pages_have_all_documents_that_a_user_may_open(
    stored_directory: StoredDirectory, organization_type: AccessType, expected: list[str], size: int
) -> None:
    stored_directory.write(_documents(organization_type))
    with reading(stored_directory.engine) as connection:
        assert _all(connection, size) == expected


def _all(connection: Connection, size: int) -> list[str]:
    types: list[ResourceKind] = ["document"]
    resources = ResourceList(organization_id="acme", user_id="ada", types=types, at=NOW)
    ids: list[str] = []
    while True:
        after = ("document", ids[-1]) if ids else ()
        page = resources.page(connection, DecisionPolicy(), after=after, limit=size)
        ids += [entry.item_id for entry in page.entries]
        if not page.has_more:
            return ids
