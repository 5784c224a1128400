"""Fuzzes with a fixed set of requests; ``python -m tests.soak fuzz`` runs for any time."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from tests.attack.fuzzing import Fire, Target, backend, service
from tests.choice import sampled
from tests.soak.faults import quiet

CASES = 10
"""At each operation; ``make test`` has fewer."""


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    before = structlog.get_config()
    quiet()
    yield
    structlog.configure(**before)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("make", "every", "cases"),
    sampled([(service, 1, 4), (backend, 20, 4), (service, 1, CASES), (backend, 5, CASES)], sample=2),
    ids=["sample of the service", "sample of the backend", "service", "backend"],
)
def test_mutated_requests_are_answered(tmp_path: Path, make: Callable[[Path], Target], every: int, cases: int) -> None:
    target = make(tmp_path)
    target.operations = target.operations[::every]
    fire = Fire(target, 1)
    for _ in target.operations:
        fire.round(cases)
    assert fire.problems == []
    assert fire.cases > cases * len(target.operations) * 0.7
    assert fire.codes[200] + fire.codes[202] > 0
    assert fire.codes[400] > 0
    assert not any(300 <= code < 400 for code in fire.codes)
