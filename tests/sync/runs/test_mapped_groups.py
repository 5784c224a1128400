"""Nested groups, read by changes: the access model equals a second computation from the directory."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import repeat
from pathlib import Path

import pytest
from sqlalchemy import Engine

from app.access.export import export_records
from app.access.records import Membership, User
from app.commands.schema import METADATA
from app.directory.bounded import BoundedSource, Policy
from app.directory.mapping.source import MappedSource
from app.directory.mapping.spool_file import SpoolFile
from app.directory.source import ObjectId, Verdict
from app.foundation.database.engine import open_engine, reading
from app.sync.runs.directory_reads import read_directory
from tests.tables import make_tables
from tests.worlds.object_directory import ObjectDirectory, rules_of, thing

RULES = """
- {from: users, when: has(it.mail), user: {userId: it.id, name: it.name, email: it.mail}}
- {from: groups, when: it.cn.startsWith("org-"),
   organization: {organizationId: it.cn.substring(4), organizationName: it.cn}}
- {from: groups, when: it.cn.startsWith("org-"), each: members,
   membership: {organizationId: it.cn.substring(4), userId: member.userId, accessRole: '"viewer"'}}
- {from: groups, when: it.cn.startsWith("edit-"), each: members,
   membership: {organizationId: it.cn.substring(5), userId: member.userId}}
"""
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
PEOPLE = [f"p{number}" for number in range(8)]
GROUPS = ["org-a", "org-b", "edit-a", "edit-b", "c", "d"]


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield engine
    engine.dispose()


Access = tuple[dict[str, str], dict[tuple[str, str], str]]
"""User → name; organization and user → role."""


def access_of(directory: ObjectDirectory) -> Access:
    """Computes it from the directory alone: a user in both groups of an organization is an editor."""
    users = {one.id.id: str(one.value["name"]) for one in directory.held.values() if "mail" in one.value}
    groups = {one.id.id for one in directory.held.values() if one.id.set == "groups"}
    members: dict[tuple[str, str], str] = {}
    for beginning, role in (("org-", "viewer"), ("edit-", "editor")):
        for group in groups:
            organization = group.removeprefix(beginning)
            if group.startswith(beginning) and f"org-{organization}" in groups:
                people = people_in(directory, group, set()) & users.keys()
                members |= {(organization, person): role for person in people}
    return users, members


def people_in(directory: ObjectDirectory, group: str, seen: set[str]) -> set[str]:
    found: set[str] = set()
    seen.add(group)
    for name in directory.held[ObjectId("groups", group)].members:
        set_, id_ = name.split("/")
        if ObjectId(set_, id_) not in directory.held:
            continue
        if set_ == "users":
            found.add(id_)
        elif id_ not in seen:
            found |= people_in(directory, id_, seen)
    return found


def in_force(engine: Engine) -> Access:
    with reading(engine) as connection:
        records = list(export_records(connection))
    users = {one.user_id: one.name for one in records if isinstance(one, User)}
    members = [one for one in records if isinstance(one, Membership)]
    return users, {(one.organization_id, one.user_id or ""): one.access_role.value for one in members}


def change(directory: ObjectDirectory, chance: random.Random) -> None:
    if chance.random() < 0.5:
        one = chance.choice(PEOPLE)
        if chance.random() < 0.3:
            directory.remove("users", one)
            return
        mail = {"mail": ""} if chance.random() < 0.8 else {}
        directory.put(thing("users", one, {"id": one, "name": chance.choice("xyz"), **mail}))
        return
    group = chance.choice(GROUPS)
    if chance.random() < 0.15:
        directory.remove("groups", group)
        return
    names = [f"users/{one}" for one in PEOPLE] + [f"groups/{one}" for one in GROUPS]
    directory.put(thing("groups", group, {"cn": group}, tuple(chance.sample(names, chance.randint(0, 4)))))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_the_access_model_follows_the_directory(engine: Engine, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    directory = ObjectDirectory()
    directory.put(thing("users", "always", {"id": "always", "name": "A", "mail": ""}))
    source = BoundedSource(
        MappedSource("ad", directory, rules_of(RULES), SpoolFile.of(tmp_path, "ad")), timeout=60, policy=Policy()
    )
    asked_for_changes = 0
    for number in range(12):
        for _ in range(chance.randint(1, 5)):
            change(directory, chance)
        before = in_force(engine)
        if chance.random() < 0.3:
            directory.breaks_after = chance.randint(0, 3)
            broken = read_directory(engine, [source], clock=repeat(NOW).__next__)
            directory.breaks_after = None
            if broken.sources[0].verdict is Verdict.FAILED:
                assert in_force(engine) == before
        report = read_directory(engine, [source], clock=repeat(NOW + timedelta(minutes=number)).__next__)
        assert report.sources[0].verdict is Verdict.COMPLETE, report.sources[0].reason
        asked_for_changes += report.sources[0].answered == "changes"
        assert in_force(engine) == access_of(directory), f"round {number}"
    assert asked_for_changes > 5
