"""The merge against a naive implementation of its rules in Python dictionaries."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, select, text

from app.access.kinds import NAMED_KINDS
from app.access.problem_list import ProblemList
from app.access.record_tables import KIND_TABLES, VALUES_FROM_RECORD
from app.access.records import (
    AccessRole,
    AccessType,
    ContextGrant,
    Document,
    Fill,
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
from app.access.refresh.reads import ReadResult
from app.access.refresh.refresh import Refresh
from app.access.refresh.search_names import search_names
from app.access.revisions import current_revision
from app.access.source_states import source_states
from app.commands.schema import METADATA
from app.foundation.database.engine import open_engine, reading, writing
from tests.tables import make_tables

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
aliases = st.sampled_from(["a1", "a2", "a3", "u1"])
origins = st.sampled_from(["", "users\x1f1", "users\x1f2", "groups\x1fß"])
people = st.one_of(st.fixed_dictionaries({"user_id": users}), st.fixed_dictionaries({"user_alias": aliases}))
holders = people | st.fixed_dictionaries({"organization_user_group_id": groups})
places = st.one_of(st.fixed_dictionaries({"folder_id": folders}), st.fixed_dictionaries({"document_id": documents}))
members = people | st.fixed_dictionaries({"member_group_id": groups})

records = st.one_of(
    st.builds(
        Organization,
        organization_id=organizations,
        organization_name=names,
        access_type=st.sampled_from(AccessType),
        disabled=st.booleans(),
        extra_fields=further,
    ),
    st.builds(
        User,
        user_id=users,
        name=names,
        email=st.sampled_from(["", "a@b.example"]),
        disabled=st.booleans(),
        aliases=st.lists(aliases, unique=True, max_size=2).map(sorted).map(tuple),
        extra_fields=further,
    ),
    st.builds(
        lambda user, **fields: Fill(**user, **fields),
        people,
        name=st.none() | names,
        email=st.sampled_from([None, "", "f@b.example"]),
        initial=st.sampled_from([None, "I", "J"]),
        disabled=st.booleans(),
        extra_fields=st.sampled_from([{}, {"plan": "silver"}, {"plan": None, "site": 4}]),
    ),
    st.builds(
        lambda organization_id, user, role, expires_at: Membership(
            organization_id=organization_id, access_role=role, expires_at=expires_at, **user
        ),
        organizations,
        people,
        roles,
        TIMES,
    ),
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

BASE: list[Record] = [
    *(Organization(organization_id=o, organization_name=o) for o in ("o1", "o2")),
    *(User(user_id=u, name=u, email="", aliases=(a,)) for u, a in (("u1", "a1"), ("u2", "a2"), ("u3", "a3"))),
]


@dataclass(frozen=True)
class Read:
    verdict: str
    records: list[tuple[Record, str]]
    """Each with its origin."""


# A base that others can refer to makes it likely that some records are effective.
reads = st.builds(
    lambda verdict, with_base, found: Read(verdict, [(one, "") for one in BASE if with_base] + found),
    st.sampled_from(["complete", "complete", "partial", "failed"]),
    st.booleans(),
    st.lists(st.tuples(records, origins), max_size=25),
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
    """``app/access/README.md``, "From a read to a revision", one record at a time."""

    stored: dict[str, dict[tuple[Key, str], Record]] = field(default_factory=dict)
    ever_read: set[str] = field(default_factory=set)
    bound: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """(source, alias that it disables) → the users who have had the alias since."""
    duplicates: int = 0
    """In the last refresh: records that a later record of the same object and key replaces."""
    order: list[str] = field(default_factory=list)
    owner: dict[Key, str] = field(default_factory=dict)
    """Key → the source that owns it, of the records of the model."""

    def refresh(self, configured: dict[str, Read]) -> dict[Key, Record]:
        self.duplicates = 0
        in_force = sum(len(records) for records in self.stored.values())
        for name, read in configured.items():
            known = self.stored.setdefault(name, {})
            found: dict[tuple[Key, str], Record] = {}
            if read.verdict == "failed":
                continue
            for record, origin in read.records:
                self.duplicates += (record.key, origin) in found
                found[record.key, origin] = record
            # An empty read is used if the source was empty before, or if no source has records.
            if read.verdict == "complete" and not found and (known or (in_force and name not in self.ever_read)):
                continue
            self.ever_read.add(name)
            if read.verdict == "complete":
                known.clear()
            known.update(found)
        others = sorted(name for name in self.stored if name not in configured)
        for name in others:
            if not self.stored[name]:
                self.stored.pop(name)
                self.ever_read.discard(name)
        others = [name for name in others if name in self.stored]
        return self.merged([*configured, *others])

    def merged(self, order: list[str]) -> dict[Key, Record]:
        people: dict[Key, Record] = {}
        for name in order:
            for record in self.combined(name, {}).values():
                if isinstance(record, User):
                    people.setdefault(record.key, record)
        whose: dict[str, set[str]] = {}
        for user in people.values():
            assert isinstance(user, User)
            for alias in user.aliases:
                whose.setdefault(alias, set()).add(user.user_id)
        user_of = {alias: next(iter(ids)) for alias, ids in whose.items() if len(ids) == 1}
        self.bind(order, whose)

        model: dict[Key, Record] = {}
        owner: dict[Key, str] = {}
        for name in order:
            for key, record in self.combined(name, user_of).items():
                model.setdefault(key, record)
                owner.setdefault(key, name)
        # Readers check whether records are effective. Records whose alias has no only holder are not in the model.
        model = {key: one for key, one in model.items() if getattr(one, "user_alias", None) is None}
        self.fill(model, owner, order, user_of)
        self.owner = {key: owner[key] for key in model}
        return model

    def bind(self, order: list[str], whose: Mapping[str, set[str]]) -> None:
        disabling = {
            (name, fill.user_alias)
            for name in order
            for (key, origin), fill in self.stored[name].items()
            if isinstance(fill, Fill) and fill.user_alias and fill.disabled and self.is_visible(name, key, origin)
        }
        self.bound = {
            (name, alias): self.bound.get((name, alias), set()) | whose.get(alias, set()) for name, alias in disabling
        }

    def is_visible(self, name: str, key: Key, origin: str) -> bool:
        """Whether no pushed record, which has no object, hides it."""
        return not origin or (key, "") not in self.stored[name]

    def combined(self, name: str, user_of: Mapping[str, str]) -> dict[Key, Record]:
        """The records of a source, combined by key."""
        found: dict[Key, Record] = {}
        for (key, origin), one in sorted(self.stored[name].items(), key=lambda item: item[0][1].encode()):
            if isinstance(one, Fill) or not self.is_visible(name, key, origin):
                continue
            record: Record = one
            if isinstance(one, Membership | GroupMember | Grant | ContextGrant) and (one.user_alias or "") in user_of:
                record = replace(one, user_id=user_of[one.user_alias or ""], user_alias=None)
            other = found.setdefault(record.key, record)
            if isinstance(record, Membership | Grant | ContextGrant):
                assert isinstance(other, Membership | Grant | ContextGrant)
                ends = [one.expires_at for one in (record, other)]
                best = replace(other, expires_at=None if None in ends else max(filter(None, ends)))
                is_editor = isinstance(record, Membership | Grant) and record.access_role == AccessRole.EDITOR
                if is_editor and isinstance(best, Membership | Grant):
                    best = replace(best, access_role=AccessRole.EDITOR)
                found[record.key] = best
        return found

    def fill(
        self, model: dict[Key, Record], owner: Mapping[Key, str], order: list[str], user_of: Mapping[str, str]
    ) -> None:
        for key, user in list(model.items()):
            if not isinstance(user, User):
                continue
            fields = dict(user.extra_fields) | {"name": user.name, "email": user.email, "initial": user.initial}
            disabled = user.disabled or any(user.user_id in bound for bound in self.bound.values())
            for name in sorted(order, key=lambda name: name != owner[key]):
                fills = [
                    (record, origin)
                    for (fill_key, origin), record in self.stored[name].items()
                    if isinstance(record, Fill) and self.is_visible(name, fill_key, origin)
                ]
                for fill, _ in sorted(fills, key=lambda one: (one[0].user_alias or "", one[1].encode())):
                    if user.user_id not in {fill.user_id, user_of.get(fill.user_alias or "")}:
                        continue
                    disabled = disabled or fill.disabled
                    more = dict(fill.extra_fields) | {"name": fill.name, "email": fill.email, "initial": fill.initial}
                    for field_name, value in more.items():
                        if value is not None and fields.get(field_name) in {None, ""}:
                            fields[field_name] = value
            basic = {name: fields.pop(name) for name in ("name", "email", "initial")}
            model[key] = replace(user, **basic, disabled=disabled, extra_fields=fields)  # type: ignore[arg-type]


def run_refresh(engine: Engine, configured: dict[str, Read]) -> tuple[ProblemList, bool, int]:
    problems = ProblemList()
    with Refresh(engine, clock=lambda: NOW, problems=problems) as refresh:
        refresh.begin(list(configured))
        for position, (name, read) in enumerate(configured.items()):
            for line, (record, origin) in enumerate(read.records, 1):
                refresh.staging.add(record, f"{name}:{line}", origin=origin, position=position)
            refresh.staging.end(ReadResult(records=len(read.records), verdict=read.verdict), position=position)
        replaced = refresh.finish().change
    return problems, replaced.changed, replaced.revision


def model_of(engine: Engine) -> dict[Key, Record]:
    """All records of the access model, effective or not."""
    found: dict[Key, Record] = {}
    with reading(engine) as connection:
        holders = connection.execute(text("SELECT user_id, alias FROM model_user_alias ORDER BY alias")).all()
        for kind in KIND_TABLES:
            for row in connection.execute(select(kind.table)):
                record = kind.record_from_row(row)
                if isinstance(record, User):
                    record = replace(
                        record, aliases=tuple(alias for user_id, alias in holders if user_id == row.user_id)
                    )
                found[record.key] = record
    return found


def owners_of(engine: Engine) -> dict[Key, str]:
    """Key → the source that owns it."""
    with reading(engine) as connection:
        names = {
            row.source_id: row.name for row in connection.execute(text("SELECT source_id, name FROM directory_source"))
        }
        return {
            kind.record_from_row(row).key: names[row.source_id]
            for kind in KIND_TABLES
            for row in connection.execute(select(kind.table))
        }


NamesAndCounts = tuple[set[tuple[str, ...]], dict[tuple[str, str], int]]
"""(kind, name, organization, id), and (organization, kind) → how many."""


def names_and_counts(connection: Connection) -> NamesAndCounts:
    """The stored names, and the stored numbers except zeros."""
    names = connection.execute(text("SELECT kind, name, organization_id, item_id FROM access_name"))
    counts = connection.execute(text("SELECT organization_id, kind, records FROM access_count WHERE records <> 0"))
    return {tuple(row) for row in names}, {(row[0], row[1]): row[2] for row in counts}


def expected_names_and_counts(model: Collection[Record]) -> NamesAndCounts:
    """The names and numbers, computed from all records."""
    names: set[tuple[str, ...]] = set()
    counts: Counter[tuple[str, str]] = Counter(("", one.kind) for one in model)
    for one in model:
        *within, own = one.key[1:]
        if within:
            counts[one.key[1], one.kind] += 1
        if one.kind in NAMED_KINDS:
            payload = VALUES_FROM_RECORD[one.kind](one)[-2]
            organization = within[0] if within else ""
            names |= {(one.kind, name, organization, own) for name in search_names(one.kind, own, str(payload))}
    return names, dict(counts)


def without_aliases(model: dict[Key, Record]) -> dict[Key, Record]:
    """The records without aliases, which do not change the revision."""
    return {key: replace(one, aliases=()) if isinstance(one, User) else one for key, one in model.items()}


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
            assert owners_of(engine) == naive.owner
            with reading(engine) as connection:
                assert names_and_counts(connection) == expected_names_and_counts(expected.values())
            assert changed == (without_aliases(expected) != without_aliases(before))
            assert new_revision == revision + (changed or (revision == 0 and bool(naive.ever_read)))
            assert problems.counts.get("duplicate", 0) == naive.duplicates
            assert all(problem.place and problem.reason for problem in problems.listed)
            with reading(engine) as connection:
                assert current_revision(connection) == new_revision
                kept = {state.name: state.records for state in source_states(connection)}
            assert kept == {name: len(stored) for name, stored in naive.stored.items()}
            before, revision = expected, new_revision
    finally:
        engine.dispose()
