"""Fuzzes the service and the backend: no 5xx, no hang, no memory growth."""

import argparse
import tempfile
import time
from pathlib import Path

from tests.attack.fuzzing import Fire, Target, backend, memory, service
from tests.memory import memory_folder
from tests.soak.faults import quiet

ROUND = 160
"""Cases from one seed."""
STEADY = 0.25
"""The share of the time in which sound bodies are bent and nothing new is drawn: schemathesis keeps what it made."""
MOST_GROWTH = 20
"""MB that the process may grow by in that share."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=600, help="how long, all together")
    parser.add_argument("--seed", type=int, default=1, help="the first seed; the others follow it")
    parser.add_argument("--target", choices=["service", "backend", "both"], default="both")


def run(arguments: argparse.Namespace) -> int:
    quiet()
    names = ["service", "backend"] if arguments.target == "both" else [arguments.target]
    failed = total = 0
    for name in names:
        with tempfile.TemporaryDirectory(prefix="usher-fuzz-", dir=memory_folder()) as folder:
            target = {"service": service, "backend": backend}[name](Path(folder))
            fire, problems = fuzz(target, arguments.seed, arguments.seconds / len(names))
        failed += len(problems)
        total += fire.cases
        for problem in problems:
            print(problem)
    print(f"{total} cases, {failed} problems")
    return 1 if failed else 0


def fuzz(target: Target, first_seed: int, seconds: float) -> tuple[Fire, list[str]]:
    """Sends requests for the given time and prints the findings."""
    fire = Fire(target, first_seed)
    began = time.monotonic()
    while time.monotonic() - began < seconds * (1 - STEADY):
        fire.round(ROUND)
    bodies = fire.sound_bodies()
    fire.steady(bodies)
    target.tidy()
    before, cases = memory(), fire.cases
    while time.monotonic() - began < seconds:
        fire.steady(bodies)
    target.tidy()
    growth = memory() - before
    codes = ", ".join(f"{code}: {count}" for code, count in sorted(fire.codes.items()))
    print(f"{target.name}: seeds {first_seed + 1} to {fire.seed}, {fire.cases} cases, slowest {fire.slowest:.2f} s")
    print(f"{target.name}: {codes}")
    print(f"{target.name}: {before:.0f} MB, {growth:+.1f} MB over the last {fire.cases - cases} cases")
    problems = list(fire.problems)
    if growth > MOST_GROWTH:
        problems.append(f"{target.name}: memory grew by {growth:.0f} MB")
    return fire, problems
