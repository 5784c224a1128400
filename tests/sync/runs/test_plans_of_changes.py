"""When runs plan only what has changed, and when everything."""

from collections.abc import Callable, Iterator
from threading import Event

import pytest
from sqlalchemy import text
from werkzeug.wrappers import Response

from app.foundation.database.engine import writing
from app.sync.runs.directory_reads import read_directory
from app.sync.runs.engine import SyncEngine
from app.sync.runs.lock import sync_lock
from app.sync.runs.report import report_lines
from app.sync.runs.run import Run, RunRequest
from tests.progress import QuietProgress
from tests.worlds.planning import ScopedPlans
from tests.worlds.syncing import SyncedWorld, failure


class Worker:
    """A process that executes several runs."""

    def __init__(self, world: SyncedWorld, engine: SyncEngine) -> None:
        self.world, self.engine = world, engine
        self.plans = ScopedPlans(world.engine)

    def sync(self, *, verify: bool = False, organizations: tuple[str, ...] = (), dry_run: bool = False) -> Run:
        self.world.time.move_on(seconds=1)
        request = RunRequest(trigger="schedule", verify=verify, organization_ids=organizations, dry_run=dry_run)
        run, _ = self.world.runs.enqueue(request)
        lock = sync_lock(self.world.engine)
        assert lock.acquire()
        try:
            return self.engine.execute(run.run_id, lock=lock, progress=QuietProgress(), stop=Event())
        finally:
            lock.release()

    def plans_changes(self, *, dry_run: bool = False) -> bool:
        """Whether a run plans only the changes."""
        before = self.plans.number
        run = self.sync(dry_run=dry_run)
        assert run.status == "done", run.error
        return self.plans.number > before


@pytest.fixture
def worker(company: SyncedWorld) -> Iterator[Worker]:
    worker = Worker(company, company.sync_engine())
    yield worker
    worker.engine.client.close()


def test_worker_plans_changes_after_its_first_run(company: SyncedWorld, worker: Worker) -> None:
    assert not worker.plans_changes()
    company.directory.document("minutes", folder="drafts")
    company.directory.remove("membership", "acme", "dan")
    assert worker.plans_changes()
    assert company.held()["documents"]["minutes"] == ("Minutes", "drafts", None)
    assert "dan" not in company.held()["members"]
    assert worker.plans_changes()


def test_changed_organization_is_planned_completely(company: SyncedWorld, worker: Worker) -> None:
    worker.sync()
    company.directory.organization("acme", organization_name="Acme")
    assert not worker.plans_changes()
    assert worker.plans_changes()


def test_run_of_another_process_is_followed_by_a_plan_of_everything(company: SyncedWorld, worker: Worker) -> None:
    worker.sync()
    company.directory.document("minutes")
    company.sync()
    assert not worker.plans_changes()
    assert worker.plans_changes()


def test_dry_run_plans_everything_and_changes_nothing(company: SyncedWorld, worker: Worker) -> None:
    worker.sync()
    company.directory.document("minutes")
    assert not worker.plans_changes(dry_run=True)
    assert worker.plans_changes()
    assert "minutes" in company.held()["documents"]


def test_failed_item_is_sent_by_a_later_plan_of_changes(company: SyncedWorld, worker: Worker) -> None:
    worker.sync()
    company.directory.document("minutes")
    company.wire.hook = refuse_documents
    assert worker.sync().status == "partial"
    company.wire.hook = None
    company.time.move_on(days=1)
    before = worker.plans.number
    assert worker.sync().status == "done"
    assert worker.plans.number > before
    assert "minutes" in company.held()["documents"]


def test_verify_plans_everything_and_finds_the_plans_equal(company: SyncedWorld, worker: Worker) -> None:
    worker.sync()
    company.directory.document("minutes")
    company.ask("delete_users", organizationId="acme", userIds=["bob"])
    run = worker.sync(verify=True)
    assert (run.status, run.report.get("planOfChangesDiffers")) == ("done", None)
    assert company.held()["members"].keys() == {"ada", "bob", "dan"}
    assert worker.plans_changes()


def test_verify_reports_a_plan_of_changes_that_lacks_something(company: SyncedWorld, worker: Worker) -> None:
    worker.sync()
    company.directory.document("minutes")
    read_directory(company.engine, company.sources, clock=company.time)
    with writing(company.engine) as connection:
        connection.execute(text("DELETE FROM access_change"))
    assert worker.plans_changes()
    assert "minutes" not in company.held()["documents"]
    run = worker.sync(verify=True)
    assert run.report["planOfChangesDiffers"] is True
    assert any("differs" in line for line in report_lines(run.report))
    assert "minutes" in company.held()["documents"]


def refuse_documents(operation: str, _data: object, backend: Callable[[], Response]) -> Response:
    return failure(400, "INVALID_ARGUMENT", "not this one") if operation == "add_documents" else backend()
