"""Once the backend stops misbehaving, it matches the directory: removed users are gone, and items of other clients
still exist.

No verify is needed: this backend has no silent faults, so its responses suffice.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import structlog

from app.commands.schema import METADATA
from app.directory.configured import sources_from_settings
from app.directory.settings import DirectorySettings
from app.foundation.database.engine import open_engine
from app.sync.runs.run import Run, RunStatus
from tests.choice import sampled
from tests.misbehaving.company import FOREIGN, Directory, held
from tests.soak.faults import quiet
from tests.tables import make_tables
from tests.worlds.backend import EXTENDED, TROUBLES, Backend, serving
from tests.worlds.world import UsherWorld

SCHEDULES = 30
TOGETHER = 3
_RUNS_TO_CONVERGE = 3


class MisbehavingWorld(UsherWorld):
    """Usher with an empty database, a directory file, and a backend that has seen others before."""

    allow_deletes = True

    def __init__(self, folder: Path, seed: int, url: str, backend: Backend) -> None:
        super().__init__(open_engine(f"sqlite:///{folder / f'usher-{seed}.db'}"))
        make_tables(self.engine, METADATA)
        self.random = Random(f"misbehaving {seed}")
        self.backend = backend
        self.directory = Directory(self.random)
        self.path = folder / f"directory-{seed}.jsonl"
        self.sources = sources_from_settings(self.directory_settings)
        self.base_url = url
        self.batch_size = self.random.choice((1, 3, 200))
        self.max_in_flight = self.random.choice((1, 4))

    @property
    def directory_settings(self) -> DirectorySettings:
        return DirectorySettings.model_validate({"sources": [{"type": "file", "path": str(self.path)}]})

    def sync(self, **request: Any) -> Run:
        self.directory.write(self.path)
        return super().sync(**request)


@pytest.fixture(scope="module", autouse=True)
def silent() -> Iterator[None]:
    quiet()
    yield
    structlog.reset_defaults()


def plant(backend: Backend) -> None:
    """What others put there, in an organization of their own and in ours."""
    person = {"userId": f"{FOREIGN}-guest", "name": "Guest", "email": "guest@else.example"}
    for organization in (f"{FOREIGN}-inc", "acme"):
        for route, further in (
            ("/v2/organizations/add", {"organizations": [{"organizationId": organization, "organizationName": "X"}]}),
            ("/v2/users/add", {"users": [person]}),
            ("/v2/organizations/folders/add", {"folders": [{"folderId": f"{FOREIGN}-folder", "folderName": "F"}]}),
            ("/v2/organizations/documents/add", {"documents": [{"documentId": f"{FOREIGN}-d", "documentName": "D"}]}),
            ("/v2/organizations/usergroups/users/add", {
                "organizationUserGroupId": f"{FOREIGN}-group", "userIds": [person["userId"]],
            }),
        ):  # fmt: skip
            answer = backend.answer(route, {"organizationId": organization, **further})
            assert answer is not None
            assert answer[0] == 200


def differences(world: MisbehavingWorld) -> list[str]:
    wanted, there = world.directory.wanted(), held(world.backend.contents)
    return [
        f"{name}: {key} is {there[name].get(key)}, not {wanted[name].get(key)}"
        for name in wanted
        for key in sorted(wanted[name].keys() | there[name].keys(), key=str)
        if wanted[name].get(key) != there[name].get(key)
    ]


def play(seed: int, folder: Path) -> list[str]:
    """One schedule; what went wrong in it."""
    random = Random(f"misbehaviour {seed}")
    backend = Backend(random)
    plant(backend)
    foreign = held(backend.contents, foreign=True)
    with serving(backend) as url:
        world = MisbehavingWorld(folder, seed, url, backend)
        if random.random() < 0.5:
            world.sync()
        backend.troubles = tuple(random.sample(TROUBLES, random.choice((1, 2, 4, len(TROUBLES)))))
        for _ in range(random.choice((1, 2, 4))):
            backend.percent = random.choice((10, 30, 60, 100)) if random.random() < 0.8 else 0
            world.directory.edit(random.choice((3, 10, 30)))
            run = world.sync()
            assert run.status in {RunStatus.DONE, RunStatus.PARTIAL, RunStatus.FAILED}, run.status
            world.time.move_on(hours=random.choice((0, 0, 7)))
        backend.percent = 0
        for _ in range(_RUNS_TO_CONVERGE):
            world.time.move_on(hours=7)
            run = world.sync()
            if run.status is RunStatus.DONE and not differences(world):
                break
        found = differences(world)
        if run.status is not RunStatus.DONE:
            found.append(f"the last run is {run.status}: {run.error}")
        if held(backend.contents, foreign=True) != foreign:
            found.append("what others had put there was touched")
        before = backend.writes
        world.sync()
        if backend.writes != before:
            found.append(f"a further run wrote {backend.writes - before} times")
        world.close()
    if found:
        found.insert(0, f"seed {seed}: {backend.troubles}, batches of {world.settings.batch_size}")
    return found


@pytest.mark.timeout(400)
@pytest.mark.parametrize("first", sampled(range(1, SCHEDULES + 1, TOGETHER), sample=1))
def test_backend_reaches_the_state_of_the_directory(tmp_path: Path, first: int) -> None:
    found = [line for seed in range(first, first + TOGETHER) for line in play(seed, tmp_path)]
    assert not found, "\n".join(found)


@pytest.mark.extended
def test_every_write_that_has_items_can_leave_some_undone(tmp_path: Path) -> None:
    """Otherwise the schedules would prove nothing about it."""
    backend = Backend(Random(7))
    backend.troubles = TROUBLES[:3]
    with serving(backend) as url:
        world = MisbehavingWorld(tmp_path, 7, url, backend)  # who leaves all of them undone soon
        for number in range(200):
            backend.percent = 100 * (number % 2)
            world.time.move_on(hours=7)
            world.directory.edit(40)
            world.sync()
            undone = {route for route, times in backend.failed_by_path.items() if times}
            if not EXPECTED - undone:
                break
        world.close()
    assert not EXPECTED - undone


EXPECTED = {route for route in EXTENDED if not route.endswith(("/get", "/disablestate/update"))} | {
    "/users/add", "/users/update", "/users/delete", "/organizations/folders/add", "/organizations/folders/update",
    "/organizations/usergroups/users/add", "/organizations/usergroups/users/delete",
}  # fmt: skip
"""Every write of a synchronization but disabling, which this directory never asks for."""
