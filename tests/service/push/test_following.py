"""The runs after pushes: narrowed, one for many pushes, and not lost if a process dies."""

from datetime import timedelta
from random import Random
from threading import Event

import pytest

from app.sync.apply.progress import Progress
from app.sync.runs.lifecycle import Runs
from app.sync.runs.lock import SyncLock, sync_lock
from app.sync.runs.queue import CHANGES, MAX_TOUCHED
from app.sync.runs.run import Run, RunRequest, RunStatus
from app.sync.worker import Worker
from tests.service.push.conftest import Service, document, grant, membership, organization, user

DELAY = timedelta(seconds=2)


@pytest.fixture
def runs(service: Service) -> Runs:
    return Runs(service.engine, service.clock, Random(7))


def queued(runs: Runs) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [(run.organization_ids, run.user_ids) for run in runs.recent() if run.status is RunStatus.QUEUED]


def test_pushes_gather_and_make_one_run(service: Service, runs: Runs) -> None:
    service.pushed(1, upsert=[organization(), organization("other")])
    service.clock.move_on(seconds=1)
    service.pushed(2, upsert=[document("d1"), document("d2")])
    assert runs.enqueue_changes(DELAY) == []
    service.clock.move_on(seconds=1)
    assert [run.trigger for run in runs.enqueue_changes(DELAY)] == [CHANGES]
    assert queued(runs) == [(("acme", "other"), ())]
    # Pending changes were taken. Later ones wait for their own delay.
    assert runs.enqueue_changes(timedelta()) == []
    service.pushed(3, upsert=[document("d3")])
    assert runs.enqueue_changes(DELAY) == []
    assert len(runs.enqueue_changes(timedelta())) == 1
    assert sorted(queued(runs)) == [(("acme",), ()), (("acme", "other"), ())]


def test_users_are_followed_by_a_run_about_them(service: Service, runs: Runs) -> None:
    service.pushed(1, upsert=[organization(), user("ann"), user("bob"), membership("ann")])
    runs.enqueue_changes(timedelta())
    assert sorted(queued(runs)) == [((), ("ann", "bob")), (("acme",), ())]


def test_grants_that_go_over_with_an_alias_are_followed_in_their_organizations(service: Service, runs: Runs) -> None:
    """The push names the user only, not the organizations of the grants."""
    everywhere = ("acme", "beta", "gamma")
    named = [grant("d", "", one) | {"userId": None, "userAlias": "Desk@acme.example"} for one in everywhere[:2]]
    ann, bob = user("ann") | {"aliases": ["desk@acme.example"]}, user("bob")
    service.pushed(
        1, upsert=[*map(organization, everywhere), *(document("d", one) for one in everywhere), *named, ann, bob]
    )
    runs.enqueue_changes(timedelta())
    for run in runs.recent():
        runs.cancel(run.run_id)
    assert service.pushed(2, upsert=[user("bob") | {"aliases": ["desk@acme.example"]}])["leftOut"] == []
    runs.enqueue_changes(timedelta())
    # Two users have the alias, so neither has the grants.
    assert queued(runs) == [(("acme", "beta"), ())]
    assert not service.may("ann", "d")
    service.pushed(3, upsert=[user("ann")])
    assert service.may("bob", "d", "beta")
    runs.enqueue_changes(timedelta())
    assert queued(runs) == [(("acme", "beta"), ())]


def test_a_fill_by_an_alias_is_followed_by_a_run_about_its_user(service: Service, runs: Runs) -> None:
    service.pushed(1, upsert=[user("ann") | {"aliases": ["a@acme.example"]}, user("bob")])
    runs.enqueue_changes(timedelta())
    for run in runs.recent():
        runs.cancel(run.run_id)
    service.pushed(2, upsert=[{"kind": "fill", "userAlias": "A@acme.example", "disabled": True}])
    runs.enqueue_changes(timedelta())
    assert queued(runs) == [((), ("ann",))]


def test_a_push_without_changes_queues_no_run(service: Service, runs: Runs) -> None:
    service.pushed(1, upsert=[organization()])
    runs.enqueue_changes(timedelta())
    service.pushed(2, upsert=[organization()])
    service.pushed(1, upsert=[organization()])
    assert runs.enqueue_changes(timedelta()) == []


def test_a_run_that_is_queued_for_the_same_is_enough(service: Service, runs: Runs) -> None:
    service.pushed(1, upsert=[organization()])
    first, _ = runs.enqueue(RunRequest(trigger="resync", organization_ids=("acme",)))
    assert [run.run_id for run in runs.enqueue_changes(timedelta())] == [first.run_id]


def test_very_many_are_followed_by_a_run_of_everything(service: Service, runs: Runs) -> None:
    service.pushed(1, upsert=[organization(f"o{number}") for number in range(MAX_TOUCHED)])
    service.pushed(2, upsert=[organization("one more")])
    runs.enqueue_changes(timedelta())
    assert queued(runs) == [((), ())]


def test_changes_stay_pending_if_no_run_can_be_queued(
    service: Service, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies during the transaction has the same effect as a failed transaction."""
    service.pushed(1, upsert=[organization()])
    with monkeypatch.context() as patched:
        patched.setattr("app.sync.runs.lifecycle.enqueue", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("died")))
        with pytest.raises(RuntimeError):
            runs.enqueue_changes(timedelta())
    assert queued(runs) == []
    assert len(runs.enqueue_changes(timedelta())) == 1


def test_a_worker_follows_within_the_delay(service: Service, runs: Runs) -> None:
    executed: list[Run] = []

    def execute(run_id: str, _lock: SyncLock, _progress: Progress, _stop: Event) -> Run:
        executed.append(runs.get(run_id))
        return runs.cancel(run_id)

    worker = Worker(
        runs=runs,
        lock=sync_lock(service.engine, sleep=lambda _: None),
        execute=execute,
        clock=service.clock,
        stop=Event(),
        poll=0.5,
        push_delay=2.0,
    )
    service.pushed(1, upsert=[organization()])
    for _ in range(2):
        worker.tick()
        assert executed == []
        service.clock.move_on(seconds=0.5)
    service.clock.move_on(seconds=0.5)
    # The next check would follow after two seconds.
    worker.tick()
    assert [(run.trigger, run.organization_ids) for run in executed] == [(CHANGES, ("acme",))]


def test_runs_that_followed_and_went_well_are_forgotten_after_a_day(service: Service, runs: Runs) -> None:
    for trigger in (CHANGES, "resync"):
        run, _ = runs.enqueue(RunRequest(trigger=trigger, organization_ids=(trigger,)))
        runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING)
        runs.move(run.run_id, RunStatus.READING, RunStatus.PLANNING)
        runs.move(run.run_id, RunStatus.PLANNING, RunStatus.DONE, finished_at=service.clock())
    service.clock.move_on(days=2)
    assert runs.prune(timedelta(days=30)) == 1
    assert [run.trigger for run in runs.recent()] == ["resync"]
