"""After the restore of an old backup, syncs converge and delete nothing that the directory still contains."""

import threading
from typing import Any

import pytest
from sqlalchemy import text

from app.foundation.database.engine import reading
from app.sync.runs.directory_reads import read_directory
from app.sync.runs.lock import sync_lock
from app.sync.runs.run import RunRequest, RunStatus
from app.sync.worker import Worker
from tests.backup.conftest import Backup
from tests.sources.conftest import FileWorld, People, ended, run_of

GUEST = {"userId": "guest-1", "name": "Guest", "email": "guest@other.example"}


def role_of(world: FileWorld, user: str) -> str:
    return str(world.held()["users"]["acme", "organization", "", user][1])


def membership(user: str, role: str) -> dict[str, object]:
    """A later record of the same user, which replaces the first one."""
    return {"kind": "membership", "organizationId": "acme", "userId": user, "accessRole": role}


@pytest.fixture
def restored(world: FileWorld, people: People, backup: Backup) -> FileWorld:
    """Yesterday's database, in a world in which a day has passed: one went and one came, one is a viewer, and a guest
    was put there by others. Today two more go and the viewer is an editor again."""
    backup.make()
    world.time.move_on(days=1)
    people.users = [*people.users[:-1], "u40", "u41"]
    people.more = [membership("u38", "viewer")]
    people.write()
    assert ended(world) == "done"
    world.call_backend("add_users", organizationId="acme", users=[GUEST])
    assert role_of(world, "u38") == "viewer"
    backup.restore(world)
    people.users = [user for user in people.users if user not in {"u37", "u41"}]
    people.more = []
    people.write()
    return world


def test_restored_database_converges_with_verify(restored: FileWorld, people: People) -> None:
    run = run_of(restored, verify=True)
    assert run.status == "done"
    # u37 was removed. u41 was added and removed after the backup: Usher does not know that it added u41, so it stays.
    assert restored.members() == {*people.users, "u41", "guest-1"}
    assert role_of(restored, "u38") == "editor"
    assert "u41" in str(run.report["verify"])
    assert ended(restored) == "done"
    assert run_of(restored).calls == 0


def test_restored_database_deletes_nothing_wrongly_without_verify(restored: FileWorld, people: People) -> None:
    run = run_of(restored, allow_deletes=True)
    assert run.status == "done"
    deleted = {change.item_id for change in restored.runs.changes(run.run_id) if change.action == "delete"}
    # u39 is gone there already, which is what a delete of it finds.
    assert deleted == {"u37", "u39"}
    assert restored.members() == {*people.users, "u41", "guest-1"}


def test_restored_database_answers_from_yesterday_until_the_directory_is_read(
    restored: FileWorld, people: People
) -> None:
    assert restored.may("u39")
    assert restored.metric("usher_directory_age_seconds") >= 24 * 3600
    restored.configure(people.file, max_age=7200)
    assert restored.readiness()[0] == 503
    read_directory(restored.engine, restored.sources, clock=restored.time)
    assert not restored.may("u39")
    assert restored.may("u40")
    assert restored.readiness()[0] == 200


def test_restored_hold_applies_what_is_due_today(world: FileWorld, people: People, backup: Backup) -> None:
    everybody = list(people.users)
    people.users = everybody[:20]
    people.write()
    held = run_of(world)
    assert held.status == "held"
    backup.make()
    # Meanwhile the deletes were approved and done, ten came back, and five new ones came.
    world.time.move_on(days=1)
    assert ended(world, allow_deletes=True) == "done"
    people.users = [*everybody[:30], *(f"n{number}" for number in range(5))]
    people.write()
    assert ended(world) == "done"
    backup.restore(world)
    world.runs.approve(held.run_id)
    lock = sync_lock(world.engine)
    worker = Worker(
        runs=world.runs,
        lock=lock,
        execute=lambda run_id, held_lock, progress, stop: world.sync_engine().execute(
            run_id, lock=held_lock, progress=progress, stop=stop
        ),
        clock=world.time,
        stop=threading.Event(),
    )
    world.layer.begin_run()
    assert worker.tick() == 1
    assert world.runs.get(held.run_id).status == "done"
    assert ended(world, verify=True) == "done"
    assert world.members() == set(people.users)


def test_backup_from_the_middle_of_a_run_continues(world: FileWorld, people: People, backup: Backup) -> None:
    people.users = [*people.users[:-3], *(f"n{number:03}" for number in range(100))]
    people.write()
    world.batch_size = 10

    class BackingUp:
        """Copies the database in the middle of a run."""

        applied = 0

        def phase(self, name: str, total: int | None) -> None:
            self.applied = 0

        def advance(self, n: int) -> None:
            self.applied += n
            if not backup.file.exists() and 30 <= self.applied < 60 and _status(world) == RunStatus.APPLYING:
                backup.make()

        def note(self, text: str) -> None:
            pass

    world.time.move_on(minutes=15)
    world.layer.begin_run()
    run, _ = world.runs.enqueue(RunRequest(trigger="schedule"))
    lock = sync_lock(world.engine)
    assert lock.acquire()
    try:
        done = world.sync_engine().execute(run.run_id, lock=lock, progress=BackingUp(), stop=world.stop)
    finally:
        lock.release()
    assert done.status == "done"
    assert backup.file.exists()
    backup.restore(world)
    assert world.runs.get(run.run_id).status == RunStatus.APPLYING
    # What any worker does first when nobody holds the lock.
    assert [one.run_id for one in world.runs.end_orphans()] == [run.run_id]
    assert ended(world) == "done"
    assert world.members() == set(people.users)
    assert run_of(world).calls == 0


def _status(world: FileWorld) -> Any:
    with reading(world.engine) as connection:
        return connection.execute(text("SELECT status FROM run ORDER BY run_id DESC LIMIT 1")).scalar()


def test_lost_database_is_rebuilt_from_directory_and_backend(world: FileWorld, people: People, backup: Backup) -> None:
    world.call_backend("add_users", organizationId="acme", users=[GUEST])
    with world.engine.begin() as connection:
        for table in ("ledger", "ledger_item", "directory_source", "directory_state", "access_revision", "run"):
            connection.execute(text(f"DELETE FROM {table}"))
        for kind in ("organization", "user", "membership", "document"):
            connection.execute(text(f"DELETE FROM source_{kind}"))
            connection.execute(text(f"DELETE FROM model_{kind}"))
    people.users = [*people.users[:-1], "u40"]
    people.write()
    run = run_of(world, allow_deletes=True)
    assert run.status == "done"
    # u39 is not wanted any more, but nobody knows that it was ours.
    assert world.members() == {*people.users, "u39", "guest-1"}
    assert run.counts["organizationUser"]["add"]["done"] == 1
    assert run_of(world).calls == 0
