"""Whatever the directory says, one after the other, and whatever becomes of calls: the backend comes to hold just that.

What it should hold is computed here a second time, record by record, from the words of
``app/plan/README.md``, "Desired".
"""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from app.database.engine import writing
from app.ledger.ledger import open_ledger
from app.store.base import METADATA

pytestmark = pytest.mark.slow

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)

ORGANIZATIONS = ["acme", "o\"2'é"]
USERS = ["ada", "bob", "cleo"]
GROUPS = ["eng", "ops", "all"]
FOLDERS = ["f1", "f2", "f3", "f4"]
DOCUMENTS = ["d1", "d2", "d3"]
TYPES = st.sampled_from(["", "", "public", "restricted", "organizationPrivate"])
NAMES = st.sampled_from(["n", "n", "m"])
ROLES = st.sampled_from(["viewer", "editor"])
EXPIRIES = st.sampled_from([None, None, None, NOW_MS - 1, NOW_MS, NOW_MS + 1])
MANY = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def some(ids: list[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(ids), unique=True)


@st.composite
def directories(draw: Callable, directory_class: type):
    directory = directory_class()
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


def expected(directory, before):
    """What a backend should hold, given what it held: only disabled organizations keep something."""
    backend = type(before)()
    tables = directory.tables
    enabled_users = {row["user_id"]: row["digest"] for row in tables["users"] if not row["disabled"]}
    for row in tables["organizations"]:
        organization = row["organization_id"]
        backend.organizations[organization] = {"digest": row["digest"], "disabled": row["disabled"]}
        if row["disabled"]:
            keep(organization, before, backend)
            continue
        of = {name: [r for r in rows if r.get("organization_id") == organization] for name, rows in tables.items()}
        for folder in of["folders"]:
            backend.folders[organization, folder["folder_id"]] = {
                "digest": folder["digest"],
                "parent": folder["parent_folder_id"],
                "type": folder["access_type"] or ("" if folder["parent_folder_id"] else row["access_type"]),
            }
        for document in of["documents"]:
            backend.documents[organization, document["document_id"]] = {
                "digest": document["digest"],
                "folder": document["folder_id"],
                "type": document["access_type"] or ("" if document["folder_id"] else row["access_type"]),
            }
        backend.groups |= {(organization, group["organization_user_group_id"]) for group in of["groups"]}
        backend.members |= {
            (organization, group, user) for group, user in members_of(of["group_members"]) if user in enabled_users
        }
        for membership in of["memberships"]:
            if is_active(membership) and membership["user_id"] in enabled_users:
                key = ("organizationUser", organization, "", membership["user_id"])
                backend.users[key] = (enabled_users[membership["user_id"]], membership["access_role"])
        for (kind, container, user), role in roles(of, enabled_users).items():
            backend.users[kind, organization, container, user] = (enabled_users[user], role)
    return backend


def keep(organization, before, backend):
    for name in ("folders", "documents"):
        kept = {key: value for key, value in getattr(before, name).items() if key[0] == organization}
        getattr(backend, name).update(kept)
    backend.groups |= {key for key in before.groups if key[0] == organization}
    backend.members |= {key for key in before.members if key[0] == organization}
    backend.users.update({key: value for key, value in before.users.items() if key[1] == organization})


def is_active(row):
    return row["expires_at"] is None or row["expires_at"] > NOW_MS


def members_of(rows):
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


def roles(of, users):
    own, through_groups = {}, {}
    members = members_of(of["group_members"])
    for grant in filter(is_active, of["grants"]):
        place = ("folderUser", grant["folder_id"]) if grant["folder_id"] else ("documentUser", grant["document_id"])
        if grant["user_id"]:
            own[*place, grant["user_id"]] = grant["access_role"]
        for group, user in members:
            if group == grant["organization_user_group_id"]:
                through_groups.setdefault((*place, user), []).append(grant["access_role"])
    best = {key: "editor" if "editor" in granted else "viewer" for key, granted in through_groups.items()}
    return {key: role for key, role in (best | own).items() if key[2] in users}


def in_force(backend):
    return {
        (kind, *key): backend.type_in_force(key[0], kind, key[1])
        for kind, things in (("folder", backend.folders), ("document", backend.documents))
        for key in things
    }


def without_types(things):
    return {key: {name: value for name, value in thing.items() if name != "type"} for key, thing in things.items()}


def assert_same(backend, wanted, directory):
    assert backend.organizations == wanted.organizations
    assert without_types(backend.folders) == without_types(wanted.folders)
    assert without_types(backend.documents) == without_types(wanted.documents)
    disabled = {row["organization_id"] for row in directory.tables["organizations"] if row["disabled"]}
    compared = lambda types: {key: value for key, value in types.items() if key[1] not in disabled}  # noqa: E731
    assert compared(in_force(backend)) == compared(in_force(wanted))
    assert backend.groups >= wanted.groups
    assert backend.members == wanted.members
    assert backend.users == wanted.users


def start_over(world):
    with writing(world.engine) as connection:
        for table in METADATA.sorted_tables:
            connection.execute(delete(table))
    world.ledger_id = open_ledger(world.engine, "http://backend.example", "key", lambda: NOW).ledger_id
    world.revision = 0


def test_plan_leads_from_any_directory_to_any_other(world, new_directory, new_backend):
    @MANY
    @given(st.lists(directories(new_directory), min_size=1, max_size=4))
    def check(sequence):
        start_over(world)
        backend = new_backend()
        for directory in sequence:
            wanted = expected(directory, backend)
            world.says(directory)
            plan = world.plan()
            world.apply(plan, backend)
            assert world.items(plan, "failed", "skipped") == []
            assert_same(backend, wanted, directory)
            again = world.plan()
            assert again.counts == {}

    check()


@pytest.mark.timeout(300)
def test_plan_recovers_from_whatever_becomes_of_calls(world, new_directory, new_backend):
    outcomes = st.sampled_from(["done", "done", "failed", "lost", "unanswered"])

    @MANY
    @given(st.lists(directories(new_directory), min_size=2, max_size=3), st.data())
    def check(sequence, data):
        start_over(world)
        backend = new_backend()
        for directory in sequence[:-1]:
            world.says(directory)
            world.apply(world.plan(), backend, lambda item: data.draw(outcomes))
        directory = sequence[-1]
        # What is left unfinished in an organization that is disabled stays so: nothing there is touched.
        for row in directory.tables["organizations"]:
            row["disabled"] = False
        world.says(directory)
        plans = 0
        while (plan := world.plan()).counts:
            world.apply(plan, backend)
            plans += 1
            assert plans <= 2
        assert_same(backend, expected(directory, backend), directory)

    check()
