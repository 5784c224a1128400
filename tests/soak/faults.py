"""Random fault schedules during complete syncs."""

import argparse
import logging
import os
import tempfile
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path

import structlog

from tests.faults.schedule import Outcome, run_schedule
from tests.faults.world import FaultyWorld
from tests.memory import memory_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=600, help="how long new schedules are begun")
    parser.add_argument("--seed", type=int, default=1, help="the first seed; the others follow it")
    parser.add_argument("--only", action="store_true", help="that seed alone")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")


def run(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    totals: Counter[str] = Counter()
    overhead: list[float] = []
    failed: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="usher-soak-", dir=memory_folder()) as folder:
        seed = arguments.seed
        with ProcessPoolExecutor(arguments.jobs, get_context("spawn"), _prepare, (folder,)) as pool:
            under_way: set[Future[Outcome]] = set()
            while True:
                more = time.monotonic() - began < arguments.seconds and not (arguments.only and seed > arguments.seed)
                while more and len(under_way) < arguments.jobs * 2:
                    under_way.add(pool.submit(_run, seed))
                    seed += 1
                    if arguments.only:
                        break
                if not under_way:
                    break
                ended, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                for one in ended:
                    _add(one.result(), totals, overhead, failed)
    overhead.sort()
    print(f"seeds {arguments.seed} to {seed - 1}, {time.monotonic() - began:.0f} s")
    print(f"{totals['schedules']} schedules, {totals['schedules'] - len(failed)} converged", end="; ")
    print(f"{totals['runs']} runs, {totals['calls']} calls, {totals['faults']} faults")
    print(f"converged in the first run: {totals['first']}, in the second: {totals['second']}")
    print(f"calls beyond calm per fault: median {_at(overhead, 0.5):.2f}, most {_at(overhead, 1):.2f}")
    for name in sorted(key for key in totals if key.isupper()):
        print(f"  {totals[name]:8}  {name}")
    if failed:
        print(f"failed seeds: {sorted(outcome.drawn.seed for outcome in failed)}")
    return 1 if failed else 0


_worlds: list[FaultyWorld] = []
"""The one of this process."""


def _prepare(folder: str) -> None:
    quiet()
    own = Path(folder) / str(os.getpid())
    own.mkdir()
    _worlds.append(FaultyWorld(own))


def _run(seed: int) -> Outcome:
    return run_schedule(seed, _worlds[0])


def quiet() -> None:
    """Disables logging."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL), cache_logger_on_first_use=False
    )


def _add(outcome: Outcome, totals: Counter[str], overhead: list[float], failed: list[Outcome]) -> None:
    totals["schedules"] += 1
    totals["runs"] += len(outcome.statuses)
    totals["calls"] += outcome.calls
    totals["faults"] += outcome.injected.total()
    totals["first"] += outcome.runs_to_converge == 1
    totals["second"] += outcome.runs_to_converge == 2
    totals.update({fault.name: number for fault, number in outcome.injected.items()})
    if outcome.calm is not None and outcome.injected.total():
        overhead.append((outcome.calls - outcome.calm) / outcome.injected.total())
    if outcome.problems:
        failed.append(outcome)
        print(outcome.summary(), flush=True)


def _at(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0
