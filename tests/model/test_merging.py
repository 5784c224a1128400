"""The merging rules against a second, deliberately naive statement of them in Python dictionaries."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from app.access.records import (
    AccessRole,
    AccessType,
    ContextGrant,
    Document,
    Folder,
    Grant,
    Group,
    GroupMember,
    Key,
    Membership,
    Organization,
    Record,
    User,
)
from app.database.engine import open_engine, reading, writing
from app.model.contents import current_revision, export_records, source_states
from app.model.refresh.problems import ProblemList
from app.model.refresh.refresh import Refresh
from app.store.schema import METADATA
from tests.tables import make_tables
from tests.worlds.references import references

pytestmark = pytest.mark.slow

NOW = datetime(2026, 11, 1, tzinfo=UTC)
TIMES = st.sampled_from([None, datetime(2030, 1, 1, tzinfo=UTC)])
SOURCES = ("first", "second", "third")

organizations = st.sampled_from(["o1", "o2"])
users = st.sampled_from(["u1", "u2", "u3"])
groups = st.sampled_from(["g1", "g2", "g3"])
folders = st.sampled_from(["f1", "f2", "f3", "f4"])
documents = st.sampled_from(["d1", "d2"])
roles = st.sampled_from(AccessRole)
types = st.sampled_from([None, *AccessType])
names = st.sampled_from(["Name", "Another name"])
further = st.sampled_from([{}, {"plan": "gold"}])
holders = st.one_of(
    st.fixed_dictionaries({"user_id": users}), st.fixed_dictionaries({"organization_user_group_id": groups})
)
places = st.one_of(st.fixed_dictionaries({"folder_id": folders}), st.fixed_dictionaries({"document_id": documents}))
members = st.one_of(st.fixed_dictionaries({"user_id": users}), st.fixed_dictionaries({"member_group_id": groups}))

records = st.one_of(
    st.builds(
        Organization,
        organization_id=organizations,
        organization_name=names,
        access_type=st.sampled_from(AccessType),
        disabled=st.booleans(),
        further=further,
    ),
    st.builds(User, user_id=users, name=names, email=st.just("a@b.example"), disabled=st.booleans(), further=further),
    st.builds(Membership, organization_id=organizations, user_id=users, access_role=roles, expires_at=TIMES),
    st.builds(Group, organization_id=organizations, organization_user_group_id=groups, group_name=names),
    st.builds(
        lambda organization_id, group, member: GroupMember(
            organization_id=organization_id, organization_user_group_id=group, **member
        ),
        organizations,
        groups,
        members,
    ),
    st.builds(
        Folder,
        organization_id=organizations,
        folder_id=folders,
        folder_name=names,
        parent_folder_id=st.none() | folders,
        access_type=types,
    ),
    st.builds(
        Document,
        organization_id=organizations,
        document_id=documents,
        document_name=names,
        folder_id=st.none() | folders,
        access_type=types,
    ),
    st.builds(
        lambda organization_id, place, holder, role, expires_at: Grant(
            organization_id=organization_id, access_role=role, expires_at=expires_at, **place, **holder
        ),
        organizations,
        places,
        holders,
        roles,
        TIMES,
    ),
    st.builds(
        lambda organization_id, holder, document_id, expires_at: ContextGrant(
            organization_id=organization_id,
            field="widgetId",
            value="2",
            document_id=document_id,
            expires_at=expires_at,
            **holder,
        ),
        organizations,
        holders,
        st.none() | documents,
        TIMES,
    ),
)

BASE = [
    *(Organization(organization_id=o, organization_name=o) for o in ("o1", "o2")),
    *(User(user_id=u, name=u, email="") for u in ("u1", "u2", "u3")),
]


@dataclass(frozen=True)
class Read:
    verdict: str
    records: list[Record]


# A base that others can refer to makes it likely that something counts at all.
reads = st.builds(
    lambda verdict, with_base, found: Read(verdict, (BASE if with_base else []) + found),
    st.sampled_from(["complete", "complete", "partial", "failed"]),
    st.booleans(),
    st.lists(records, max_size=25),
)
refreshes = st.lists(
    st.permutations(SOURCES).flatmap(
        lambda order: st.integers(1, 3).flatmap(
            lambda count: st.fixed_dictionaries(dict.fromkeys(order[:count], reads))
        )
    ),
    min_size=1,
    max_size=4,
)


@dataclass
class NaiveModel:
    """What ``app/model/README.md``, "From a read to a revision", says, one record at a time."""

    kept: dict[str, dict[Key, Record]] = field(default_factory=dict)
    ever_read: set[str] = field(default_factory=set)
    problems: Counter[str] = field(default_factory=Counter)
    order: list[str] = field(default_factory=list)

    def refresh(self, configured: dict[str, Read]) -> dict[Key, Record]:
        self.problems = Counter()
        in_force = sum(len(records) for records in self.kept.values())
        for name, read in configured.items():
            known = self.kept.setdefault(name, {})
            said: dict[Key, Record] = {}
            if read.verdict == "failed":
                continue
            for record in read.records:
                self.problems["duplicate"] += record.key in said
                said[record.key] = record
            # It is believed to be empty where it was before, or where nobody gives anything.
            if read.verdict == "complete" and not said and (known or (in_force and name not in self.ever_read)):
                continue
            self.ever_read.add(name)
            if read.verdict == "complete":
                known.clear()
            known.update(said)
        others = sorted(name for name in self.kept if name not in configured)
        for name in others:
            if not self.kept[name]:
                self.kept.pop(name)
                self.ever_read.discard(name)
        others = [name for name in others if name in self.kept]
        return self.merged([*configured, *others], configured)

    def merged(self, order: list[str], told: Collection[str]) -> dict[Key, Record]:
        """``told``: the sources whose problems are reported, which are those that somebody can mend."""
        model: dict[Key, Record] = {}
        owner: dict[Key, str] = {}
        for name in order:
            for key, record in self.kept[name].items():
                self.problems["ownedElsewhere"] += key in model and name in told
                model.setdefault(key, record)
                owner.setdefault(key, name)
        while gone := [key for key, record in model.items() if not self.counts(record, model)]:
            for key in gone:
                del model[key]
            self.problems["left out"] += sum(owner[key] in told for key in gone)
        return model

    @staticmethod
    def counts(record: Record, model: dict[Key, Record]) -> bool:
        if any(key not in model for key in references(record)):
            return False
        seen = set()
        while isinstance(record, Folder) and record.parent_folder_id is not None:
            if record.key in seen:
                return False
            seen.add(record.key)
            above = model.get((Folder.kind, record.organization_id, record.parent_folder_id))
            if above is None:
                return False
            assert isinstance(above, Folder)
            record = above
        return True


def run_refresh(engine: Engine, configured: dict[str, Read]) -> tuple[ProblemList, bool, int]:
    problems = ProblemList()
    with Refresh(engine, clock=lambda: NOW, problems=problems) as refresh:
        refresh.begin(list(configured))
        for name, read in configured.items():
            for line, record in enumerate(read.records, 1):
                refresh.add(record, f"{name}:{line}")
            refresh.end(records=len(read.records), verdict=read.verdict, reason="")
        replaced = refresh.finish().replaced
    return problems, replaced.changed, replaced.revision


def model_of(engine: Engine) -> dict[Key, Record]:
    with reading(engine) as connection:
        return {record.key: record for record in export_records(connection)}


def emptied(engine: Engine) -> None:
    with writing(engine) as connection:
        for table in METADATA.sorted_tables:
            connection.execute(table.delete())


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(refreshes)
def test_refresh_follows_the_merging_rules(database_url: str, steps: list[dict[str, Read]]) -> None:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    emptied(engine)
    naive = NaiveModel()
    before: dict[Key, Record] = {}
    revision = 0
    try:
        for configured in steps:
            expected = naive.refresh(configured)
            problems, changed, new_revision = run_refresh(engine, configured)
            assert model_of(engine) == expected
            assert changed == (expected != before)
            assert new_revision == revision + (changed or (revision == 0 and bool(naive.ever_read)))
            assert problems.counts.get("duplicate", 0) == naive.problems["duplicate"]
            assert problems.counts.get("ownedElsewhere", 0) == naive.problems["ownedElsewhere"]
            left_out = problems.counts.get("dangling", 0) + problems.counts.get("folderCycle", 0)
            assert left_out == naive.problems["left out"]
            assert all(problem.place and problem.reason for problem in problems.kept)
            with reading(engine) as connection:
                assert current_revision(connection) == new_revision
                kept = {state.name: state.records for state in source_states(connection)}
            assert kept == {name: len(kept) for name, kept in naive.kept.items()}
            before, revision = expected, new_revision
    finally:
        engine.dispose()
