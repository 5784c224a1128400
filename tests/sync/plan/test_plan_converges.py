"""After any sequence of directories and any outcome of calls, the backend converges to the directory.

A second implementation computes the expected state, record by record, from ``app/sync/plan/README.md``, "Desired".
"""

import json
from copy import deepcopy
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from app.foundation.database.engine import writing
from app.foundation.database.tables import METADATA
from app.sync.ledger.ledger import open_ledger
from tests.worlds.backend import TROUBLES, Backend, Contents
from tests.worlds.clock import NOON
from tests.worlds.planning import NOON_MS, Directory, PlanningWorld, Rows

pytestmark = pytest.mark.slow

ORGANIZATIONS = ["acme", "o\"2'é"]
USERS = ["ada", "bob", "cleo"]
GROUPS = ["eng", "ops", "all"]
FOLDERS = ["f1", "f2", "f3", "f4"]
DOCUMENTS = ["d1", "d2", "d3"]
TYPES = st.sampled_from(["", "", "public", "restricted", "organizationPrivate"])
NAMES = st.sampled_from(["n", "n", "m"])
ROLES = st.sampled_from(["viewer", "editor"])
EXPIRIES = st.sampled_from([None, None, None, NOON_MS - 1, NOON_MS, NOON_MS + 1])
MANY = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def some(ids: list[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(ids), unique=True)


@st.composite
def directories(draw: st.DrawFn) -> Directory:
    directory = Directory()
    users = draw(some(USERS))
    for user in users:
        directory.user(user, disabled=draw(st.integers(0, 5)) == 0, name=draw(NAMES))
    for organization in draw(some(ORGANIZATIONS)):
        directory.organization(
            organization,
            access_type=draw(st.sampled_from(["organizationPrivate", "public"])),
            disabled=draw(st.integers(0, 7)) == 0,
            name=draw(NAMES),
        )
        for user in draw(some(users)) if users else []:
            directory.member(organization, user, draw(ROLES), draw(EXPIRIES))
        groups = draw(some(GROUPS))
        for group in groups:
            directory.group(
                organization,
                group,
                users=draw(some(users)) if users else [],
                groups=[inner for inner in draw(some(groups)) if inner != group],
                name=draw(NAMES),
            )
        placed: list[str] = []
        for folder in draw(st.permutations(FOLDERS))[: draw(st.integers(0, 4))]:
            directory.folder(organization, folder, draw(st.sampled_from(["", *placed])), draw(TYPES), name=draw(NAMES))
            placed.append(folder)
        documents = draw(some(DOCUMENTS))
        for document in documents:
            directory.document(
                organization, document, draw(st.sampled_from(["", *placed])), draw(TYPES), name=draw(NAMES)
            )
        places = [("folder", folder) for folder in placed] + [("document", document) for document in documents]
        holders = [("user", user) for user in users] + [("group", group) for group in groups]
        if places and holders:
            chosen = st.tuples(st.sampled_from(places), st.sampled_from(holders))
            for place, holder in draw(st.lists(chosen, unique=True, max_size=8)):
                directory.grant(
                    organization, **dict([place, holder]), access_role=draw(ROLES), expires_at=draw(EXPIRIES)
                )
    return directory


def expected(directory: Directory, before: Contents) -> Contents:
    """What a backend should hold, given what it held: only disabled organizations keep something."""
    contents = Contents()
    tables = directory.tables
    names = {row["user_id"]: named(row) for row in tables["users"] if not row["disabled"]}
    for row in tables["organizations"]:
        organization = row["organization_id"]
        contents.organizations[organization] = {"organizationName": named(row), "disabled": row["disabled"]}
        if row["disabled"]:
            keep(organization, before, contents)
            continue
        of = {name: [r for r in rows if r.get("organization_id") == organization] for name, rows in tables.items()}
        for kind, held, place in (
            ("folder", contents.folders, "parent_folder_id"),
            ("document", contents.documents, "folder_id"),
        ):
            for thing in of[f"{kind}s"]:
                inherited = None if thing[place] else row["access_type"]
                held[organization, thing[f"{kind}_id"]] = {
                    "name": named(thing),
                    "in": thing[place],
                    "type": thing["access_type"] or inherited,
                }
        for group in of["groups"]:
            contents.groups[organization, group["organization_user_group_id"]] = set()
        for group_id, user in members_of(of["group_members"]):
            if user in names:
                contents.groups[organization, group_id].add(user)
        held_roles = {
            ("organization", "", membership["user_id"]): membership["access_role"]
            for membership in filter(is_active, of["memberships"])
        } | roles(of)
        for (level, container, user), role in held_roles.items():
            if user in names:
                people = contents.people.setdefault((organization, level, container), {})
                people[user] = {"name": names[user], "accessRole": role}
    return contents


def named(row: dict[str, Any]) -> str:
    name: str = next(iter(json.loads(row["payload"]).values()))
    return name


def keep(organization: str, before: Contents, contents: Contents) -> None:
    for name in ("folders", "documents", "groups", "people"):
        kept = {key: value for key, value in getattr(before, name).items() if key[0] == organization}
        getattr(contents, name).update(deepcopy(kept))


def is_active(row: dict[str, Any]) -> bool:
    return row["expires_at"] is None or row["expires_at"] > NOON_MS


def members_of(rows: Rows) -> set[tuple[str, str]]:
    """Group and user, through any depth of groups inside groups."""
    found = {(row["organization_user_group_id"], row["user_id"]) for row in rows if row["user_id"]}
    while (
        more := {
            (row["organization_user_group_id"], user)
            for row in rows
            for group, user in found
            if row["member_group_id"] == group
        }
        - found
    ):
        found |= more
    return found


def roles(of: dict[str, Rows]) -> dict[tuple[str, str, str], str]:
    own: dict[tuple[str, str, str], str] = {}
    through_groups: dict[tuple[str, str, str], list[str]] = {}
    members = members_of(of["group_members"])
    for grant in filter(is_active, of["grants"]):
        place = ("folder", grant["folder_id"]) if grant["folder_id"] else ("document", grant["document_id"])
        if grant["user_id"]:
            own[*place, grant["user_id"]] = grant["access_role"]
        for group, user in members:
            if group == grant["organization_user_group_id"]:
                through_groups.setdefault((*place, user), []).append(grant["access_role"])
    return {key: "editor" if "editor" in granted else "viewer" for key, granted in through_groups.items()} | own


def in_force(contents: Contents) -> dict[tuple[str, str], object]:
    def type_of(where: str, thing: dict[str, Any]) -> object:
        if thing["type"] or not thing["in"]:
            return thing["type"]
        return type_of(where, contents.folders[where, thing["in"]])

    things = [*contents.folders.items(), *contents.documents.items()]
    return {key: type_of(key[0], thing) for key, thing in things}


def described(contents: Contents) -> dict[str, object]:
    """All but access types and groups, in plain terms."""
    return {
        "organizations": {
            key: (it["organizationName"], it.get("disabled", False)) for key, it in contents.organizations.items()
        },
        "folders": {key: (it["name"], it["in"]) for key, it in contents.folders.items()},
        "documents": {key: (it["name"], it["in"]) for key, it in contents.documents.items()},
        "users": {
            (*place, user): (it["name"], it["accessRole"])
            for place, people in contents.people.items()
            for user, it in people.items()
        },
        "members": {(*group, user) for group, users in contents.groups.items() for user in users},
    }


def assert_same(contents: Contents, wanted: Contents, directory: Directory) -> None:
    assert described(contents) == described(wanted)
    assert contents.groups.keys() >= wanted.groups.keys()
    disabled = {row["organization_id"] for row in directory.tables["organizations"] if row["disabled"]}
    there, should_be = in_force(contents), in_force(wanted)
    assert {key: one for key, one in there.items() if key[0] not in disabled} == {
        key: one for key, one in should_be.items() if key[0] not in disabled
    }


def start_over(world: PlanningWorld) -> None:
    with writing(world.engine) as connection:
        for table in METADATA.sorted_tables:
            connection.execute(delete(table))
    world.ledger_id = open_ledger(world.engine, "http://backend.example", "key", lambda: NOON).ledger_id
    world.revision = 0
    world.backend = Backend(Random(1))


@pytest.mark.extended
def test_plan_leads_from_any_directory_to_any_other(world: PlanningWorld) -> None:
    @MANY
    @given(st.lists(directories(), min_size=1, max_size=4))
    def check(sequence: list[Directory]) -> None:
        start_over(world)
        for directory in sequence:
            wanted = expected(directory, world.backend.contents)
            world.set_directory(directory)
            plan = world.plan()
            world.apply(plan)
            assert world.items(plan, "failed", "skipped", "cancelled") == []
            assert_same(world.backend.contents, wanted, directory)
            again = world.plan()
            assert again.counts == {}

    check()


@pytest.mark.extended
@pytest.mark.timeout(300)
def test_plan_recovers_from_any_outcome_of_calls(world: PlanningWorld) -> None:
    @MANY
    @given(st.lists(directories(), min_size=2, max_size=3), st.integers(0, 2**32))
    def check(sequence: list[Directory], seed: int) -> None:
        start_over(world)
        world.backend.random, world.backend.troubles, world.backend.percent = Random(seed), TROUBLES, 50
        for directory in sequence[:-1]:
            world.set_directory(directory)
            world.apply(world.plan())
        world.backend.percent = 0
        directory = sequence[-1]
        # What is left unfinished in an organization that is disabled stays so: nothing there is touched.
        for row in directory.tables["organizations"]:
            row["disabled"] = False
        world.set_directory(directory)
        plans = 0
        while (plan := world.plan(retry=())).counts:
            world.apply(plan)
            plans += 1
            assert plans <= 2
        assert_same(world.backend.contents, expected(directory, world.backend.contents), directory)

    check()
