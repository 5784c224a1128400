"""The access impact against the decisions about all pairs, before and after."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from app.access.candidate import open_candidate
from app.access.decision.ancestry import Ancestry, ancestry_of
from app.access.decision.decide import Decision, DecisionPolicy, PlainQuestion, decide
from app.access.impact import changed, comparison, impact, side
from app.access.impact.comparison import AccessChange, TooManyStepsError
from app.access.impact.impact import access_changes
from app.access.impact.resource_classes import Chains, Resource
from app.access.records import (
    AccessRole,
    Document,
    Folder,
    Grant,
    GroupMember,
    Key,
    Membership,
    Organization,
    Record,
    User,
)
from app.commands.schema import METADATA
from app.foundation.database.engine import open_engine
from app.foundation.database.statements import run
from app.sync.runs.directory_reads import ReadOptions, read_directory
from tests.choice import examples
from tests.tables import make_tables
from tests.worlds.access_model import MemoryView
from tests.worlds.directory import Directory
from tests.worlds.random_directories import NOW, Company

pytestmark = pytest.mark.slow

Pair = tuple[str, str, str, str]
"""User, organization, kind, resource."""
Impact = dict[Pair, tuple[AccessRole | None, AccessRole | None]]


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield engine
    engine.dispose()


def compute_changes(
    engine: Engine, before: Iterable[Record] | None, after: Iterable[Record], policy: DecisionPolicy
) -> list[AccessChange]:
    """The impact of reading ``after``, when the database has ``before``. None: what it has."""
    directory = Directory()
    options = ReadOptions(accept_empty=["test"], accept_shrink=["test"])
    if before is not None:
        directory.add(*before)
        read_directory(engine, [directory], options, clock=lambda: NOW)
    directory.records = {record.key: record for record in after}
    changes: list[AccessChange] = []
    with open_candidate(engine) as candidate:
        read_directory(
            candidate,
            [directory],
            options,
            clock=lambda: NOW,
            on_candidate=True,
            change_hook=lambda connection, *_: changes.extend(access_changes(connection, NOW, policy)),
        )
    return changes


def naive_impact(before: Iterable[Record], after: Iterable[Record], policy: DecisionPolicy) -> Impact:
    """Decides about every pair on both sides."""
    sides = MemoryView(before), MemoryView(after)
    records = {record.key: record for record in chain(before, after)}
    users = [record.user_id for record in records.values() if isinstance(record, User)]
    resources = [
        (record.organization_id, record.kind, record.key[-1])
        for record in records.values()
        if isinstance(record, Organization | Folder | Document)
    ]
    impact: Impact = {}
    for user_id in users:
        for organization_id, kind, resource_id in resources:
            question = PlainQuestion(
                user_id=user_id,
                type=kind,  # type: ignore[arg-type] # one of the three
                resource_id=resource_id,
                organization_id=organization_id,
            )
            roles = tuple(decide(side, question, NOW, policy).access_role for side in sides)
            if roles[0] is not roles[1]:
                impact[user_id, organization_id, kind, resource_id] = (roles[0], roles[1])
    return impact


def others_of(change: AccessChange, before: Iterable[Record], after: Iterable[Record]) -> list[str]:
    """The enabled users who have no entry in the organization, before and after."""
    records = [*before, *after]
    entries = {
        record.user_id
        for record in records
        if isinstance(record, Membership | GroupMember | Grant) and record.organization_id == change.organization_id
    }
    enabled = [
        {user.user_id for user in side if isinstance(user, User) and not user.disabled} for side in (before, after)
    ]
    return sorted((enabled[0] & enabled[1]) - entries)


def expanded(changes: Iterable[AccessChange], before: Iterable[Record], after: Iterable[Record]) -> Impact:
    """The pairs of the changes, of which none is in two."""
    impact: Impact = {}
    for change in changes:
        user_ids = change.user_ids or others_of(change, before, after)
        assert len(user_ids) == change.users > 0
        assert change.pairs == len(user_ids) * len(change.resource_ids) > 0
        for user_id in user_ids:
            for resource_id in change.resource_ids:
                pair = (user_id, change.organization_id, change.kind, resource_id)
                assert pair not in impact
                impact[pair] = (change.before, change.after)
    return impact


class Crowd(Company):
    """A company with more users, so that there are classes of users who differ in groups and own grants."""

    def crowd(self) -> list[Record]:
        records: list[Record] = []
        for number in range(self.random.randint(0, 9)):
            user_id = f"u{number}"
            records.append(User(user_id=user_id, name="", email="", disabled=self.chance(0.05)))
            if self.chance(0.7):
                records.append(Membership(organization_id="acme", user_id=user_id, access_role=self.role()))
            if self.chance(0.7):
                records.append(
                    GroupMember(
                        organization_id="acme",
                        organization_user_group_id=self.random.choice(["g1", "g2"]),
                        user_id=user_id,
                    )
                )
            if self.chance(0.4):
                records.append(
                    Grant(
                        organization_id="acme",
                        folder_id=self.random.choice(["f1", "f2", "f3"]),
                        user_id=user_id,
                        access_role=self.role(),
                    )
                )
        return records

    def directory(self) -> dict[Key, Record]:
        return {record.key: record for record in [*self.records(), *self.crowd()]}

    def changed(self, before: dict[Key, Record], other: dict[Key, Record]) -> dict[Key, Record]:
        """The directory with some records removed, and some added or replaced by those of another one."""
        edits = self.random.choice([1, 1, 2, 3, 6, 100])
        after = dict(before)
        for key in self.random.sample(sorted(before), min(len(before), self.random.randint(0, edits))):
            del after[key]
        for key in self.random.sample(sorted(other), min(len(other), self.random.randint(0, edits))):
            after[key] = other[key]
        return after


@given(number=st.integers(0, 2**32), named=st.sampled_from([0, 1_000]))
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_impact_equals_the_decisions_about_all_pairs(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, number: int, named: int
) -> None:
    monkeypatch.setattr(impact, "MAX_OTHERS_NAMED", named)
    company = Crowd(number)
    before = company.directory()
    after = company.changed(before, company.directory())
    policy = company.policy()
    changes = compute_changes(engine, before.values(), after.values(), policy)
    assert expanded(changes, before.values(), after.values()) == naive_impact(before.values(), after.values(), policy)


def test_decisions_are_made_for_classes_not_for_pairs(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of 300 members loses its grants on 200 documents. Ten of the members have own grants on some of them."""
    directory = Directory()
    directory.organization("acme")
    directory.folder("closed", access="restricted")
    users = [f"u{number:03}" for number in range(300)]
    for user_id in users:
        directory.user(user_id)
        directory.member(user_id)
    directory.group("all", users=tuple(users))
    for number in range(200):
        directory.document(f"d{number:03}", folder="closed")
        directory.grant(document=f"d{number:03}", group="all")
    for number in range(10):
        directory.grant(document=f"d{number:03}", user=users[number], role="viewer")
    before = list(directory.records.values())
    after = [record for record in before if not isinstance(record, Grant) or record.user_id]
    decided = Counter[str]()

    def counting_decide(view: Any, question: Any, now: datetime, policy: DecisionPolicy) -> Decision:
        decided[question.user_id] += 1
        return decide(view, question, now, policy)

    monkeypatch.setattr(comparison, "decide", counting_decide)
    changes = compute_changes(engine, before, after, DecisionPolicy())
    assert sum(change.pairs for change in changes) == 300 * 200 - 10
    assert decided.total() < 200
    # Each of the ten has the change on the documents of the other nine, in sets that share their ids.
    assert sum(len(change.user_ids) + len(change.resource_ids) for change in changes) < 3 * (300 + 200)


def test_users_whose_grants_change_on_the_same_folder_are_compared_at_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 viewers of a folder with 200 documents become editors: each resource is numbered once on each side."""
    directory = Directory()
    directory.organization("acme")
    directory.folder("root", access="restricted")
    for number in range(200):
        directory.document(f"d{number:03}", folder="root")
    for number in range(40):
        directory.user(f"u{number:02}")
        directory.grant(folder="root", user=f"u{number:02}", role="viewer")
    before = list(directory.records.values())
    for number in range(40):
        directory.grant(folder="root", user=f"u{number:02}", role="editor")
    numbered = Counter[str]()
    of = Chains.of

    def counting_of(chains: Chains, resource: Resource) -> int:
        numbered[resource[1]] += 1
        return of(chains, resource)

    monkeypatch.setattr(Chains, "of", counting_of)
    changes = compute_changes(engine, before, directory.records.values(), DecisionPolicy())
    assert sorted((change.kind, change.pairs) for change in changes) == [("document", 40 * 200), ("folder", 40)]
    assert numbered.total() == 2 * (200 + 1)


def test_places_of_a_group_are_listed_once_for_all_users_who_leave_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Directory()
    directory.organization("acme")
    directory.group("all", users=tuple(f"u{number:02}" for number in range(40)))
    for number in range(40):
        directory.user(f"u{number:02}")
        directory.document(f"d{number:02}")
        directory.grant(document=f"d{number:02}", group="all")
    after = [record for record in directory.records.values() if not isinstance(record, GroupMember)]
    lookups = 0

    class CountedPlaces(dict[str, set[Any]]):
        def get(self, key: str, default: Any = None) -> Any:
            nonlocal lookups
            lookups += 1
            return super().get(key, default)

    places = vars(side.Side)["granted_places"].func
    counted = cached_property(lambda one: CountedPlaces(places(one)))
    counted.__set_name__(side.Side, "granted_places")
    monkeypatch.setattr(side.Side, "granted_places", counted)
    changes = compute_changes(engine, list(directory.records.values()), after, DecisionPolicy())
    assert sum(change.pairs for change in changes) == 40 * 40
    assert lookups == 2


def test_folders_of_a_deep_chain_are_walked_a_few_times_and_not_kept(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain of 300 folders, each with a document and a grant, becomes restricted at its top."""
    directory = Directory()
    directory.organization("acme")
    directory.user("ada")
    directory.member("ada")
    directory.group("staff")
    for number in range(300):
        directory.folder(f"f{number:03}", parent=f"f{number - 1:03}" if number else None)
        directory.document(f"d{number:03}", folder=f"f{number:03}")
    directory.grant(folder="f200", group="staff")
    before = list(directory.records.values())
    directory.folder("f000", access="restricted")
    numbered = walked = 0
    number_of, walk, sides = Chains._extended, ancestry_of, list[side.Side]()

    def counting_extended(*arguments: Any) -> int:
        nonlocal numbered
        numbered += 1
        return number_of(*arguments)

    def counting_walk(*arguments: Any) -> Ancestry:
        nonlocal walked
        ancestry = walk(*arguments)
        walked += len(ancestry.folders)
        return ancestry

    def kept_side(*arguments: Any) -> side.Side:
        sides.append(side.Side(*arguments))
        return sides[-1]

    monkeypatch.setattr(Chains, "_extended", counting_extended)
    monkeypatch.setattr(side, "ancestry_of", counting_walk)
    monkeypatch.setattr(impact, "Side", kept_side)
    changes = compute_changes(engine, before, directory.records.values(), DecisionPolicy())
    assert sum(change.pairs for change in changes) == 2 * 300
    assert numbered == 2 * (300 + 300)
    assert walked < 20 * 300
    assert len(sides) == 2
    kept = [len(ancestry.folders) for one in sides for ancestry in one._ancestries.values()]
    assert max(kept, default=0) <= 64


def test_rows_of_the_same_resources_are_joined_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 users, each with an own grant on another folder above a document, lose the role editor on the document.

    Each is a class. Their ids are copied once, not again for each user.
    """
    directory = Directory()
    directory.organization("acme")
    for number in range(60):
        directory.user(f"u{number:02}")
        directory.folder(f"f{number:02}", parent=f"f{number - 1:02}" if number else None)
        directory.grant(folder=f"f{number:02}", user=f"u{number:02}", role="viewer")
    directory.group("all", users=tuple(f"u{number:02}" for number in range(60)))
    directory.document("shared", folder="f59")
    directory.grant(document="shared", group="all", role="editor")
    before = list(directory.records.values())
    after = [record for record in before if not isinstance(record, Grant) or record.document_id != "shared"]
    copied = 0

    def counting_replace(change: AccessChange, **changed: Any) -> AccessChange:
        nonlocal copied
        copied += len(changed.get("user_ids", ()))
        return replace(change, **changed)

    monkeypatch.setattr(impact, "replace", counting_replace)
    changes = compute_changes(engine, before, after, DecisionPolicy())
    assert [(change.users, change.resource_ids) for change in changes] == [(60, ["shared"])]
    assert copied <= 2 * 60


def test_comparison_of_many_users_who_all_differ_ends(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """30 users become editors of a folder with 200 documents, each of another document as well."""
    directory = Directory()
    directory.organization("acme")
    directory.folder("root", access="restricted")
    for number in range(200):
        directory.document(f"d{number:03}", folder="root")
    for role in ("viewer", "editor"):
        before = list(directory.records.values())
        for number in range(30):
            directory.user(f"u{number:02}")
            directory.grant(folder="root", user=f"u{number:02}", role=role)
            directory.grant(document=f"d{number:03}", user=f"u{number:02}", role=role)
    decided = 0

    def counting_decide(*arguments: Any) -> Decision:
        nonlocal decided
        decided += 1
        return decide(*arguments)

    monkeypatch.setattr(comparison, "decide", counting_decide)
    monkeypatch.setattr(impact, "MAX_STEPS", 2_000)
    with pytest.raises(TooManyStepsError):
        compute_changes(engine, before, directory.records.values(), DecisionPolicy())
    assert 0 < decided <= 200


@pytest.mark.one_database
def test_public_resources_are_found_by_index(engine: Engine) -> None:
    def plan(query: str, **tables: str) -> str:
        with engine.connect() as connection:
            explained = run(connection, f"EXPLAIN QUERY PLAN {query}", {"organization_id": "acme"}, **tables)
            return " ".join(row.detail for row in explained)

    names = {kind: f"model_{kind}" for kind in ("organization", "folder", "document")}
    all_organizations = plan(changed._PUBLIC, **names)
    assert "SCAN model_folder USING COVERING INDEX ix_model_folder_open" in all_organizations
    assert "SCAN model_document USING COVERING INDEX ix_model_document_open" in all_organizations
    of_one = plan(side._query("t.document_id", changed.IS_PUBLIC), table="model_document")
    assert "SEARCH t USING COVERING INDEX ix_model_document_open" in of_one
