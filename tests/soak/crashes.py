"""Kills runs at each of their steps, and the runs that continue them."""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.crashes.points import SCENARIOS
from tests.memory import memory_folder


@dataclass
class Totals:
    points: int = 0
    killed: int = 0
    interrupted: int = 0
    problems: list[str] = field(default_factory=list)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=600, help="how long new rounds are begun")
    parser.add_argument("--seed", type=int, default=1, help="where the second kills are drawn from")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")


def run(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    totals = Totals()
    rounds = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        # The first round kills once at each point, the others kill the run that goes on as well.
        while rounds == 0 or time.monotonic() - began < arguments.seconds:
            second = [] if rounds == 0 else [str(arguments.seed + rounds)]
            shares = [(name, str(first), second) for name in SCENARIOS for first in range(1, 5)]
            for found in pool.map(_share, shares):
                totals.points += found["points"] if found["first"] == 1 else 0
                totals.killed += found["killed"]
                totals.interrupted += found["interrupted"]
                totals.problems += found["problems"]
                print(*found["problems"], sep="\n", end="\n" if found["problems"] else "", flush=True)
            rounds += 1
    print(f"seed {arguments.seed}, {rounds} rounds of {len(SCENARIOS)} scenarios, {time.monotonic() - began:.0f} s")
    print(f"{totals.points} points, {totals.killed} runs killed, {totals.interrupted} with calls in flight")
    print(f"{len(totals.problems)} not made good")
    return 1 if totals.problems else 0


def _share(share: tuple[str, str, list[str]]) -> dict[str, Any]:
    name, first, second = share
    with tempfile.TemporaryDirectory(prefix="usher-soak-", dir=memory_folder()) as folder:
        program = subprocess.run(
            [sys.executable, "-m", "tests.crashes.points", folder, name, first, "4", *second],
            capture_output=True,
            text=True,
            check=False,
        )
    if program.returncode:
        problem = f"{name}, from {first}: {program.stderr[-2000:]}"
        return {"points": 0, "killed": 0, "interrupted": 0, "problems": [problem], "first": int(first)}
    found: dict[str, Any] = json.loads(program.stdout)
    return {**found, "first": int(first)}
