"""Data tables of the contract's tests."""

from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).parent / "data"


def table(name: str) -> Any:
    """A data file, parsed."""
    return yaml.load((DATA / name).read_text(encoding="utf-8"), yaml.CSafeLoader)


def pytest_generate_tests(metafunc: Any) -> None:
    """Runs a test once per row: `request_case` of requests.yaml, `answer_case` of answers.yaml."""
    if "request_case" in metafunc.fixturenames:
        cases = [(name, case) for name, cases in table("requests.yaml").items() for case in cases]
        metafunc.parametrize("request_case", cases, ids=[f"{name}-{i}" for i, (name, _) in enumerate(cases)])
    if "answer_case" in metafunc.fixturenames:
        cases = list(table("answers.yaml").items())
        metafunc.parametrize("answer_case", cases, ids=[name for name, _ in cases])
