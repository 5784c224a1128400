"""Runs one schedule: a company, edits, and runs with injected faults. Then checks that the backend converges.

When the faults stop, at most two more runs make the backend match the directory. Some faults show in no response: a
confirmed write that was lost, a change by another client, a call that arrived long after its timeout. If there was one,
the first of the two runs verifies, because only reading the backend back finds it.
"""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from app.sync.runs.run import Run, RunStatus
from tests.faults.comparing import differences, ledger_differences
from tests.faults.layer import OUTAGES, SILENT, Fault, Weather
from tests.faults.world import FaultyWorld
from tests.worlds.company import EDITS, Company

ENDED = {RunStatus.DONE, RunStatus.PARTIAL, RunStatus.FAILED}

CALLS_PER_FAULT = 12
"""See ``Outcome.bound``."""


@dataclass(frozen=True)
class Drawn:
    """The parameters of a schedule, drawn from a seed."""

    seed: int
    weather: Weather
    runs: int
    batch_size: int
    max_in_flight: int

    @classmethod
    def of(cls, seed: int) -> "Drawn":
        random = Random(f"schedule {seed}")
        kinds = list(OUTAGES) if random.random() < 0.6 else list(Fault)
        faults = random.sample(kinds, random.choice((1, 2, 4, len(kinds))))
        return cls(
            seed=seed,
            weather=Weather(seed, tuple(sorted(faults)), random.choice((3, 10, 25, 50, 90))),
            runs=random.choice((1, 2, 3, 4)),
            batch_size=random.choice((1, 3, 200)),
            max_in_flight=random.choice((1, 1, 1, 4)),
        )


@dataclass
class Outcome:
    """The result of a schedule."""

    drawn: Drawn
    statuses: list[str] = field(default_factory=list)
    injected: Counter[Fault] = field(default_factory=Counter)
    calls: int = 0
    """Requests that reached the backend or the layer, in all runs."""
    calm: int | None = None
    """Requests that the same runs make in good weather, where that was tried."""
    runs_to_converge: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def bound(self) -> int:
        """The most calls allowed: twice those of a schedule without faults, and for each fault its retries, the halves
        of its batch and the items that it made uncertain."""
        return 2 * (self.calm or 0) + CALLS_PER_FAULT * self.injected.total()

    def summary(self) -> str:
        weather = self.drawn.weather
        faults = ", ".join(fault.name for fault in weather.faults)
        return (
            f"seed {self.drawn.seed}: {weather.percent} % of {faults}; {self.drawn.runs} runs, batches of "
            f"{self.drawn.batch_size}, {self.drawn.max_in_flight} side by side; runs {self.statuses}; "
            f"{self.calls} calls ({self.calm} when calm), {self.injected.total()} faults\n" + "\n".join(self.problems)
        )


def run_schedule(seed: int, world: FaultyWorld) -> Outcome:
    """Plays the schedule of that seed. Every fourth is played in good weather, too, to see what the faults cost."""
    drawn = Drawn.of(seed)
    outcome = Outcome(drawn)
    if seed % 4 == 0:
        outcome.calm = _play(drawn, world, outcome, calm=True)
    outcome.calls = _play(drawn, world, outcome, calm=False)
    if outcome.calm is not None and outcome.calls > outcome.bound:
        outcome.problems.append(f"{outcome.calls} calls, the bound is {outcome.bound}")
    return outcome


def _play(drawn: Drawn, world: FaultyWorld, outcome: Outcome, *, calm: bool) -> int:
    random = Random(f"play {drawn.seed}")
    company = Company(random, size=random.choice((0.3, 1, 2)))
    world.begin(company, batch_size=drawn.batch_size, max_in_flight=drawn.max_in_flight, foreign=True)
    foreign = world.held(foreign=True)
    if random.random() < 0.5:
        world.sync()
        world.layer.calls.clear()
    for _ in range(drawn.runs):
        random.choice(EDITS)(company)
        pause = random.choice((0, 60, 3600 * 7))
        verify = random.random() < 0.2
        world.layer.weather = None if calm else drawn.weather
        run = world.sync(verify=verify)
        world.time.sleep(pause)
        if not calm:
            outcome.statuses.append(run.status.value)
            if run.status not in ENDED or (run.error or "").startswith("an error of the program"):
                outcome.problems.append(f"run {run.status}: {run.error}")
    world.layer.clear_up()
    if calm:
        for _ in range(2):
            world.time.move_on(hours=7)
            world.sync()
    else:
        outcome.injected = world.layer.injected
        _make_good(world, outcome)
        if world.held(foreign=True) != foreign:
            outcome.problems.append("what others had put there was touched")
    return len(world.layer.calls)


def _make_good(world: FaultyWorld, outcome: Outcome) -> None:
    verify = bool(SILENT & set(outcome.injected))
    last: Run | None = None
    for number in (1, 2):
        world.time.move_on(hours=7)  # whatever rests after a failure has rested
        last = world.sync(verify=verify and number == 1)
        outcome.statuses.append(last.status.value)
        outcome.runs_to_converge = number
        if not differences(world, silent=verify) and not ledger_differences(world, silent=verify):
            break
    found = differences(world, silent=verify) + ledger_differences(world, silent=verify)
    if found:
        assert last is not None
        outcome.problems += [f"not converged ({last.error}): {len(found)} differences", *found[:10]]
        return
    before = world.layer.writes
    last = world.sync()
    if world.layer.writes != before and outcome.runs_to_converge == 1:
        # The backend was already right. The second run sent what the first could not confirm.
        outcome.runs_to_converge = 2
        before = world.layer.writes
        last = world.sync()
    if world.layer.writes != before:
        outcome.problems.append(f"a further run wrote: {[call.operation for call in world.layer.calls[-5:]]}")
    if last.status is not RunStatus.DONE:
        outcome.problems.append(f"the last run is {last.status}: {last.error}")
