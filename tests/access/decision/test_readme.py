"""The worked examples and the rules of the decision's README file."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import app.access
from app.access.decision.decide import DecisionPolicy, PlainQuestion, Rule, decide
from tests.access.decision.test_decide import TABLE
from tests.worlds.access_model import MemoryView, records_from_wire

TEXT = (Path(app.access.__file__).parent / "decision" / "README.md").read_text(encoding="utf-8")
MORNING = datetime(2026, 11, 20, 10, tzinfo=UTC)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
AFTERNOON = datetime(2026, 11, 20, 13, tzinfo=UTC)


def section(name: str) -> str:
    return TEXT.split(f"\n## {name}\n")[1].split("\n## ")[0]


def examples() -> Iterator[list[str]]:
    rows = [line for line in section("Worked examples").splitlines() if line.startswith("| ")]
    for row in rows[1:]:
        yield [cell.strip() for cell in row.strip("|").split("|")]


@pytest.mark.parametrize(("who", "what", "answer", "because", "rule"), list(examples()))
def test_worked_example_has_the_documented_answer(who: str, what: str, answer: str, because: str, rule: str) -> None:
    assert because
    asked, _, later = what.partition(", at ")
    resource_type, resource_id = asked.split()
    question = PlainQuestion(user_id=who, type=resource_type, resource_id=resource_id, organization_id="acme")  # type: ignore[arg-type] # a word of the page
    view = MemoryView(records_from_wire(TABLE["directories"]["acme"]))
    assert later in {"", "13:00"}
    decision = decide(view, question, AFTERNOON if later else MORNING, DecisionPolicy(decision_ttl=0))
    documented = "denied" if decision.access_role is None else decision.access_role.value
    if decision.expires_at is not None:
        assert decision.expires_at == NOON
        documented += " until noon"
    assert (documented, decision.rule.value) == (answer, rule.strip("`"))


def test_readme_has_examples() -> None:
    assert len(list(examples())) >= 13


def test_rules_by_name_equal_those_in_the_code() -> None:
    rows = [line.split("|")[1] for line in section("The rules by name").splitlines() if line.startswith("| `")]
    documented = re.findall(r"`(\w+)`", "".join(rows))
    assert sorted(documented) == sorted(rule.value for rule in Rule)
