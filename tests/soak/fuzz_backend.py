"""Fuzzes the backend with requests that follow or violate its OpenAPI document.

Every response must be documented and no server error, and invalid requests must be refused.
"""

import argparse
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import requests
import schemathesis
from flask import Flask
from hypothesis import HealthCheck, Phase, given, seed, settings
from requests.adapters import BaseAdapter
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from app.backend.app import create_backend
from app.contract.operations import OPERATIONS
from tests.backend.conftest import BackendWorld
from tests.soak.faults import quiet

CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
EXAMPLES = 10
_PATHS = frozenset(path for operation in OPERATIONS for path in operation.paths)


class Offline(BaseAdapter):
    """Blocks all outgoing requests."""

    def send(self, *_: Any, **__: Any) -> requests.Response:
        raise requests.ConnectionError("offline")

    def close(self) -> None:
        pass


class OfflineWorld(BackendWorld):
    """A backend without outgoing calls."""

    def __init__(self, database_url: str) -> None:
        super().__init__(database_url, workspaces_per_hour=1_000_000_000, provider_tries=1)

    def another_node(self, threads: int = 8) -> Flask:
        session = requests.Session()
        for prefix in ("http://", "https://"):
            session.mount(prefix, Offline())
        return create_backend(
            self.settings,
            self.engine,
            self.clock,
            random.SystemRandom(),
            session,
            sleep=self.slept.append,
            threads=threads,
        )


@dataclass
class Findings:
    """The results. `problems` contain the steps to reproduce them."""

    requests: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def fuzz(
    world: BackendWorld,
    number: int,
    *,
    examples: int,
    paths: Collection[str] = _PATHS,
    until: Callable[[], bool] = lambda: False,
) -> Findings:
    """One round: `examples` requests of each kind for each path. Ends early when `until` returns True."""
    findings = Findings()
    headers = {"Content-Type": "application/json"} | world.tenant().headers | world.workspace().headers
    schema = schemathesis.openapi.from_wsgi("/openapi.json", world.app)
    for result in schema.get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()
        if operation.path not in paths:
            continue
        for mode in GenerationMode:
            if until():
                return findings
            _try_one(operation, mode, number, examples=examples, headers=headers, findings=findings)
    return findings


def _try_one(
    operation: Any, mode: GenerationMode, number: int, *, examples: int, headers: dict[str, str], findings: Findings
) -> None:
    @seed(number)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(operation.as_strategy(generation_mode=mode))
    def request(case: Any) -> None:
        response = case.call(headers=headers)
        findings.requests += 1
        findings.codes[response.status_code] += 1
        case.validate_response(response, checks=CHECKS)

    try:
        request()
    except Exception as error:  # noqa: BLE001 - it is reported, and the round goes on
        reported = "\n".join(str(one) for one in getattr(error, "exceptions", [error]))
        findings.problems.append(f"seed {number}, {operation.label}, {mode.value}: {reported}")


def rounds(first: int) -> Iterator[int]:
    """The seeds, one after the other."""
    while True:
        yield first
        first += 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=600, help="how long requests are made")
    parser.add_argument("--seed", type=int, default=1, help="the first seed; the others follow it")
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="requests of a kind for a path, in one round")


def run(arguments: argparse.Namespace) -> int:
    quiet()
    began = time.monotonic()
    total = Findings()

    def is_over() -> bool:
        return time.monotonic() - began >= float(arguments.seconds)

    with tempfile.TemporaryDirectory(prefix="usher-fuzz-") as folder:
        world = OfflineWorld(f"sqlite:///{folder}/backend.db")
        for number in rounds(arguments.seed):
            found = fuzz(world, number, examples=arguments.examples, until=is_over)
            total.requests += found.requests
            total.codes += found.codes
            total.problems += found.problems
            for problem in found.problems:
                print(problem, flush=True)
            if is_over():
                break
        world.close()
    print(f"seeds {arguments.seed} to {number}, {time.monotonic() - began:.0f} s, {total.requests} requests")
    print("answers: " + ", ".join(f"{count} of {code}" for code, count in sorted(total.codes.items())))
    print(f"{len(total.problems)} problems")
    return 1 if total.problems else 0
