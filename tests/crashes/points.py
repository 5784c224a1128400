"""Kills a run at every point at which its process may die, one after the other.

A point is right before or after a commit (of Usher's database, or of the backend's, which is in the same process here),
or right before or after a call is sent. A run is executed once to count its points. Then, for each of them, a child
process is forked that executes the run and is killed by SIGKILL at that point. The parent continues from the files that
are left, as a worker does, and the next run must complete the work.

``python -m tests.crashes.points FOLDER SCENARIO FIRST STEP [SECOND]`` does that for every STEP-th point from FIRST on
and prints its findings as JSON. With SECOND, the continuation is killed as well, at a random point of that seed. It
is a program of its own, because a process with threads must not be forked.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from sqlalchemy import Engine, text

from app.foundation.database.engine import reading
from app.sync.runs.lock import sync_lock
from app.sync.runs.run import RunStatus
from tests.faults.comparing import differences, ledger_differences
from tests.faults.world import FaultyWorld
from tests.soak.faults import quiet
from tests.worlds.company import HOME, Company, edit_many, rename_all


@dataclass
class Scenario:
    """What stands before the run that is killed, and how it runs."""

    seed: int
    first_sync: bool
    verify: bool = False
    batch_size: int = 200
    max_in_flight: int = 1
    behind: int = 0
    """So many things someone changes in the backend beforehand."""


SCENARIOS = {
    "first": Scenario(seed=1, first_sync=False, batch_size=3),
    "edits": Scenario(seed=2, first_sync=True, batch_size=3),
    "side by side": Scenario(seed=3, first_sync=True, batch_size=1, max_in_flight=4),
    "verify": Scenario(seed=4, first_sync=True, verify=True, behind=6),
}


@dataclass
class Found:
    """The result of all points."""

    points: int = 0
    """In the run."""
    killed: int = 0
    problems: list[str] = field(default_factory=list)
    interrupted: int = 0
    """Runs after which calls stood in the journal without an answer."""


class Killer:
    """Counts points, and ends the process at one of them."""

    def __init__(self, world: FaultyWorld, at: int = 0) -> None:
        self.count = 0
        self.at = at
        self.names: list[str] = []
        self._undo: list[Callable[[], None]] = []
        self._around_commits(world.engine, "usher's database")
        self._around_commits(world.backend_engine, "the backend's database")
        send = world.layer._backend.send

        def send_between_points(request: Any, **given: Any) -> Any:
            self.point("before a call")
            answer = send(request, **given)
            self.point("after a call")
            return answer

        world.layer._backend.send = send_between_points  # type: ignore[method-assign, assignment]
        self._undo.append(lambda: setattr(world.layer._backend, "send", send))

    def _around_commits(self, engine: Engine, name: str) -> None:
        commit = engine.dialect.do_commit

        def commit_between_points(connection: Any) -> None:
            self.point(f"before a commit of {name}")
            commit(connection)
            self.point(f"after a commit of {name}")

        engine.dialect.do_commit = commit_between_points  # type: ignore[method-assign, assignment]
        self._undo.append(lambda: setattr(engine.dialect, "do_commit", commit))

    def point(self, name: str) -> None:
        self.count += 1
        self.names.append(name)
        if self.count == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def remove(self) -> None:
        for undo in self._undo:
            undo()


class Prepared:
    """A scenario's world right before the run, which can be had again and again."""

    def __init__(self, world: FaultyWorld, scenario: Scenario) -> None:
        self.deaths = 0
        self.world, self.scenario = world, scenario
        random = Random(scenario.seed)
        company = Company(random, size=1)
        world.begin(company, batch_size=scenario.batch_size, max_in_flight=scenario.max_in_flight, foreign=True)
        if scenario.first_sync:
            assert world.sync().status is RunStatus.DONE
            edit_many(company, 20)
            rename_all(company)
            company.records.pop(
                next(key for key in company.records if key[0] == "organization" and key[1] != HOME), None
            )
            company._tidy()
        for _ in range(scenario.behind):
            world.change_something(random)
        self.foreign = world.held(foreign=True)
        self.files = [Path(str(engine.url.database)) for engine in (world.engine, world.backend_engine)]
        self._dispose()
        for file in self.files:
            shutil.copy(file, file.with_suffix(".prepared"))

    def again(self) -> None:
        self._dispose()
        for file in self.files:
            for tail in ("-wal", "-shm"):
                file.with_name(file.name + tail).unlink(missing_ok=True)
            shutil.copy(file.with_suffix(".prepared"), file)

    def _dispose(self) -> None:
        self.world.engine.dispose()
        self.world.backend_engine.dispose()

    def run(self) -> None:
        self.world.random.seed("run")
        self.world.sync(verify=self.scenario.verify)

    def count(self) -> int:
        self.again()
        killer = Killer(self.world)
        self.run()
        killer.remove()
        return killer.count

    def killed_at(self, point: int, run: Callable[[], object]) -> bool:
        """Runs it in a child that is killed at that point. False if the child finishes before it."""
        self._dispose()
        child = os.fork()
        if not child:
            try:
                Killer(self.world, point)
                run()
            finally:
                os._exit(0)
        _pid, status = os.waitpid(child, 0)
        # The ids of runs that follow are not those that the child drew.
        self.deaths += 1
        self.world.random.seed(self.deaths)
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL

    def is_interrupted(self) -> bool:
        """Whether a call was sent, or was about to be, of which the journal does not know the answer."""
        with reading(self.world.engine) as connection:
            return connection.execute(text("SELECT 1 FROM call WHERE settled_at IS NULL")).first() is not None

    def go_on(self) -> list[str]:
        """What a worker does when it finds that another one has died; what is wrong afterwards."""
        world = self.world
        lock = sync_lock(world.engine)
        if not lock.acquire():
            return ["the lock of the dead process is still held"]
        world.runs.end_orphans()
        lock.release()
        run = world.sync(verify=self.scenario.verify)
        found = [] if run.status is RunStatus.DONE else [f"the next run is {run.status}: {run.error}"]
        found += differences(world) + ledger_differences(world)
        if world.held(foreign=True) != self.foreign:
            found.append("what others had put there was touched")
        before = world.layer.writes
        world.sync()
        if world.layer.writes != before:
            found.append("a further run wrote")
        return found


def try_points(folder: Path, name: str, first: int, step: int, second: int | None = None) -> Found:
    """See above."""
    quiet()
    world = FaultyWorld(folder)
    prepared = Prepared(world, SCENARIOS[name])
    found = Found(points=prepared.count())
    for point in range(first, found.points + 1, step):
        prepared.again()
        if not prepared.killed_at(point, prepared.run):
            # Threads may make one point more or less of it.
            continue
        found.killed += 1
        if second is not None:
            again = Random(f"{second} {point}").randrange(1, found.points)
            found.killed += prepared.killed_at(again, world.sync)
        found.interrupted += prepared.is_interrupted()
        problems = prepared.go_on()
        if problems:
            found.problems.append(f"{name}, point {point} of {found.points}: {problems[:5]}")
    world.close()
    return found


def main(folder: str, name: str, first: str, step: str, *second: str) -> None:
    """The program."""
    print(json.dumps(asdict(try_points(Path(folder), name, int(first), int(step), *map(int, second)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
