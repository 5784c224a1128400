"""Explanations of all cases: one sentence with the verdict and the reason."""

from collections.abc import Callable
from typing import Any

import pytest

from app.access.decision.decide import Rule
from app.access.decision.explain import explain
from tests.access.decision.test_decide import CASES, NOW, Case, check, directory_of, policy_of, question_of

# The alternative sentences of a rule are separated by a bar.
REASONS = {
    Rule.ORGANIZATION_UNKNOWN: "organization {organization} is not in the directory",
    Rule.ORGANIZATION_DISABLED: "organization {organization} is disabled",
    Rule.USER_UNKNOWN: "user {user} is not in the directory",
    Rule.USER_DISABLED: "user {user} is disabled",
    Rule.RESOURCE_UNKNOWN: "organization {organization} has no ",
    Rule.FOLDER_UNKNOWN: "in which {kind} {resource} lies, is not in the directory",
    Rule.FOLDER_CYCLE: "the folders around {kind} {resource} lie in each other in a circle",
    Rule.MEMBER: "{user} is a member of organization {organization}",
    Rule.NOT_A_MEMBER: "{user} is not a member of organization {organization}|{user}'s membership of organization",
    Rule.OWN_GRANT: "{user} has a grant on ",
    Rule.GROUP_GRANT: "{user} is in group",
    Rule.MEMBER_ACCESS: "and {user} is a member of organization {organization}",
    Rule.PUBLIC_ACCESS: "{kind} {resource} is public",
    Rule.RESTRICTED: "and no grant lets {user} in",
    Rule.CONTEXT_EMPTY: "the question names no field of the context",
    Rule.CONTEXT_NOT_COVERED: "but no context grant covers ",
    Rule.CONTEXT_GRANTS: "and context grants cover every field that was asked for",
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_decisions_are_explained_in_one_sentence(case: Case, from_wire: Callable[..., Any], memory_view: type) -> None:
    question = question_of(case)
    view = memory_view(from_wire(directory_of(case)))

    explanation = explain(view, question, case.get("at", NOW), policy_of(case))

    check(case, explanation.decision)
    verdict = f"Allowed as {case['allow']}: " if "allow" in case else "Denied: "
    assert explanation.reason.startswith(verdict)
    assert explanation.reason.endswith(".")
    kind = "document" if question.type == "context" else question.type
    names = {"organization": question.organization_id, "user": question.user_id, "resource": question.resource_id}
    assert any(
        template.format(kind=kind, **names) in explanation.reason for template in REASONS[Rule(case["rule"])].split("|")
    )
    assert [step["kind"] for step in explanation.path] == [record.kind for record in explanation.records]
