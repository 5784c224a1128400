"""The users whose entries in the backend a run changed."""

from collections import Counter

import pytest

from app.foundation.database.engine import reading
from app.sync.plan.changed_users import ChangedUser, changed_access_types, changed_users
from app.sync.plan.settings import LimitSettings
from app.sync.runs.run import Run
from tests.worlds.syncing import SyncedWorld

pytestmark = pytest.mark.slow
USERS = {"organizationUser", "folderUser", "documentUser", "groupMember"}


def users_of(world: SyncedWorld, run: Run) -> list[ChangedUser]:
    with reading(world.engine) as connection:
        return changed_users(connection, str(run.plan_id))


def test_users_have_their_entries_by_effect(company: SyncedWorld) -> None:
    company.directory.remove("user", "dan")
    company.directory.member("bob", role="editor")
    company.directory.member("cleo")
    company.directory.user("ada", name="Countess")
    company.directory.document("later", folder="archive")
    run = company.sync(allow_deletes=True)
    users = users_of(company, run)
    numbers = {user.user_id: tuple(user.effects[effect] for effect in ("gain", "lose", "change")) for user in users}
    items = [item for item in company.items(run) if item.kind in USERS]
    assert {item.status for item in items} == {"done"}
    # Another name is not another role.
    assert "ada" in {item.item_id for item in items if item.action == "update"}
    assert numbers["bob"] == (0, 0, 1)
    assert numbers["cleo"] == (1, 0, 0)
    of_dan = Counter(item.action for item in items if item.item_id == "dan")
    assert of_dan["delete"] >= 3
    assert numbers["dan"] == (0, of_dan["delete"], 0)
    assert set(numbers) == {"bob", "cleo", "dan"}
    assert users[0].user_id == "dan"
    assert users[0].entries == of_dan["delete"]
    assert users[0].ordinals == [item.ordinal for item in items if item.item_id == "dan"][:3]


def test_access_types_of_existing_folders_and_documents_are_counted(company: SyncedWorld) -> None:
    company.directory.folder("archive", access="restricted")
    company.directory.document("handbook", access="public")
    company.directory.document("new", access="restricted")
    run = company.sync()
    assert {("document", "new"), ("folder", "archive")} <= {(item.kind, item.item_id) for item in company.items(run)}
    with reading(company.engine) as connection:
        assert changed_access_types(connection, str(run.plan_id)) == {"folder": 1, "document": 1}


def test_only_what_is_done_counts(company: SyncedWorld) -> None:
    for user_id in ("ada", "bob", "dan"):
        company.directory.remove("user", user_id)
    company.directory.member("cleo")
    company.limits = LimitSettings(delete_count=1, delete_percent=1)
    run = company.sync()
    held = [item for item in company.items(run, "held") if item.kind in USERS]
    done = [item for item in company.items(run, "done") if item.kind in USERS]
    assert held
    assert done
    assert sum(user.entries for user in users_of(company, run)) == len(done)
