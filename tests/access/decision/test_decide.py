"""The cases of ``cases.yaml``, on a view in memory and on each database."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.access.decision.decide import Decision, DecisionPolicy, PlainQuestion, Rule, decide
from app.access.records import AccessRole

TABLE = yaml.load((Path(__file__).parent / "cases.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
CASES: list[dict[str, Any]] = TABLE["cases"]
NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
NO_CAP = DecisionPolicy(decision_ttl=0)

Case = Mapping[str, Any]


def question_of(case: Case) -> PlainQuestion:
    user_id, resource_type, resource_id = case["ask"]
    return PlainQuestion(
        user_id=user_id,
        type=resource_type,
        resource_id=resource_id,
        organization_id=case.get("in", "acme"),
        parent_folder_id=case.get("hint"),
        context=case.get("context"),
    )


def policy_of(case: Case) -> DecisionPolicy:
    given = {"decision_ttl": 0, **case.get("policy", {})}
    return DecisionPolicy(**{**given, "public_role": AccessRole(given.get("public_role", "viewer"))})


def directory_of(case: Case) -> dict[str, list[Mapping[str, object]]]:
    directory = {kind: list(listed) for kind, listed in TABLE["directories"][case["directory"]].items()}
    for kind, listed in case.get("with", {}).items():
        directory.setdefault(kind, []).extend(listed)
    return directory


def check(case: Case, decision: Decision) -> None:
    assert decision.rule == Rule(case["rule"])
    if "allow" in case:
        assert (decision.has_access, decision.access_role) == (True, AccessRole(case["allow"]))
        assert decision.expires_at == case.get("until")
    else:
        assert case["deny"] is True
        assert (decision.has_access, decision.access_role, decision.expires_at) == (False, None, None)


def test_the_table_covers_every_rule() -> None:
    assert len(CASES) >= 75
    assert len({case["name"] for case in CASES}) == len(CASES)
    assert {Rule(case["rule"]) for case in CASES} == set(Rule)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_decide_in_memory(case: Case, from_wire: Callable[..., Any], memory_view: type) -> None:
    view = memory_view(from_wire(directory_of(case)))
    check(case, decide(view, question_of(case), case.get("at", NOW), policy_of(case)))


def test_decide_in_a_database(viewed_directory: Any, from_wire: Callable[..., Any]) -> None:
    for case in CASES:
        viewed_directory.write(from_wire(directory_of(case)))
        try:
            with viewed_directory.view([question_of(case)]) as view:
                check(case, decide(view, question_of(case), case.get("at", NOW), policy_of(case)))
        except AssertionError as error:
            error.add_note(case["name"])
            raise


def _without_records_on_top() -> Iterator[Case]:
    return (case for case in CASES if case["directory"] == "acme" and "with" not in case and "policy" not in case)


def test_decide_in_a_database_as_one_batch(viewed_directory: Any, from_wire: Callable[..., Any]) -> None:
    cases = list(_without_records_on_top())
    assert len(cases) > 10
    viewed_directory.write(from_wire(TABLE["directories"]["acme"]))
    with viewed_directory.view([question_of(case) for case in cases]) as view:
        for case in cases:
            check(case, decide(view, question_of(case), case.get("at", NOW), NO_CAP))
