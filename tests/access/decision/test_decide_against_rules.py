"""``decide`` against a second evaluation, written straight from the rules and sharing no code with it.

The rules are ``app/access/decision/README.md``, "The decision".
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.access.decision.decide import DecisionPolicy, PlainQuestion, Rule, decide, decide_uncapped
from app.access.records import (
    AccessRole,
    AccessType,
    ContextGrant,
    Document,
    Folder,
    Grant,
    Group,
    GroupMember,
    Membership,
    Organization,
    Record,
    User,
)
from tests.choice import examples
from tests.worlds.random_directories import NOW, Company


@dataclass(frozen=True)
class Verdict:
    allowed: bool
    role: AccessRole | None = None
    end: datetime | None = None


DENY = Verdict(False)
FOREVER = datetime.max.replace(tzinfo=UTC)


class Rulebook:
    """A naive implementation of the rules. Slow and simple on purpose."""

    def __init__(self, records: list[Record], policy: DecisionPolicy) -> None:
        self.records = list({record.key: record for record in records}.values())
        self.policy = policy

    def find(self, kind: type[Any], **values: object) -> Any:
        matches = [
            record
            for record in self.records
            if type(record) is kind and all(getattr(record, name) == value for name, value in values.items())
        ]
        return matches[0] if matches else None

    def verdict(self, question: PlainQuestion) -> Verdict:
        organization = self.find(Organization, organization_id=question.organization_id)
        user = self.find(User, user_id=question.user_id)
        if not organization or organization.disabled or not user or user.disabled:
            return DENY
        if question.type == "organization":
            verdict = self.by_membership(question) if question.resource_id == question.organization_id else DENY
        elif question.type == "context":
            verdict = self.context(question, organization)
        else:
            verdict = self.resource(question, organization)
        if not verdict.allowed:
            return DENY
        end = verdict.end or FOREVER
        if self.policy.decision_ttl > 0:
            end = min(end, NOW + timedelta(seconds=self.policy.decision_ttl))
        return Verdict(True, verdict.role, None if end == FOREVER else end)

    def active(self, record: Any) -> bool:
        return record is not None and (record.expires_at is None or record.expires_at > NOW)

    def by_membership(self, question: PlainQuestion) -> Verdict:
        membership = self.find(Membership, organization_id=question.organization_id, user_id=question.user_id)
        return Verdict(True, membership.access_role, membership.expires_at) if self.active(membership) else DENY

    def groups(self, question: PlainQuestion) -> set[str]:
        members = [
            record
            for record in self.records
            if isinstance(record, GroupMember) and record.organization_id == question.organization_id
        ]
        known = {
            record.organization_user_group_id
            for record in self.records
            if isinstance(record, Group) and record.organization_id == question.organization_id
        }
        groups: set[str] = set()
        for _ in range(len(members) + 1):
            for member in members:
                if member.user_id == question.user_id or member.member_group_id in groups:
                    groups |= {member.organization_user_group_id} & known
        return groups

    def ancestry(self, question: PlainQuestion) -> list[Any] | None:
        """The resource and all folders above. None when anything about it is unknown."""
        if question.type == "folder":
            return self.folders(question.organization_id, question.resource_id)
        document = self.document(question)
        if document:
            folders = self.folders(question.organization_id, document.folder_id)
            return None if folders is None else [document, *folders]
        if self.policy.unknown_document == "inherit_folder" and question.parent_folder_id:
            return self.folders(question.organization_id, question.parent_folder_id)
        return None

    def document(self, question: PlainQuestion) -> Any:
        """The document that is asked for."""
        return self.find(Document, organization_id=question.organization_id, document_id=question.resource_id)

    def folders(self, organization_id: str, above: str | None) -> list[Any] | None:
        """The folder and all above it. None when one of them is missing or comes twice."""
        levels: list[Any] = []
        while above is not None:
            folder = self.find(Folder, organization_id=organization_id, folder_id=above)
            if folder is None or folder in levels:
                return None
            levels.append(folder)
            above = folder.parent_folder_id
        return levels

    def resource(self, question: PlainQuestion, organization: Organization) -> Verdict:
        levels = self.ancestry(question)
        if levels is None:
            return DENY
        groups = self.groups(question)
        for level in levels:
            here = [
                grant
                for grant in self.records
                if isinstance(grant, Grant)
                and grant.organization_id == question.organization_id
                and self.active(grant)
                and (
                    grant.folder_id == level.folder_id
                    if isinstance(level, Folder)
                    else grant.document_id == level.document_id
                )
            ]
            own = [grant for grant in here if grant.user_id == question.user_id]
            by_group = [grant for grant in here if grant.organization_user_group_id in groups]
            if own:
                return Verdict(True, own[0].access_role, own[0].expires_at)
            if by_group:
                editors = [grant for grant in by_group if grant.access_role == AccessRole.EDITOR]
                deciding = editors or by_group
                end = max(grant.expires_at or FOREVER for grant in deciding)
                return Verdict(True, deciding[0].access_role, None if end == FOREVER else end)
        types_on_the_way = [level.access_type for level in levels if level.access_type] + [organization.access_type]
        if types_on_the_way[0] == AccessType.RESTRICTED:
            return DENY
        member = self.by_membership(question)
        if not member.allowed and types_on_the_way[0] == AccessType.PUBLIC:
            return Verdict(True, self.policy.public_role, None)
        return member

    def context(self, question: PlainQuestion, organization: Organization) -> Verdict:
        document = self.resource(question, organization)
        if not question.context or not document.allowed:
            return DENY
        groups = self.groups(question)
        documents = {None, question.resource_id if self.document(question) else None}
        ends = [document.end or FOREVER]
        for field, value in question.context.items():
            covering = [
                grant.expires_at or FOREVER
                for grant in self.records
                if isinstance(grant, ContextGrant)
                and grant.organization_id == question.organization_id
                and (grant.user_id == question.user_id or grant.organization_user_group_id in groups)
                and grant.field == field
                and grant.value in {"*", value}
                and grant.document_id in documents
                and self.active(grant)
            ]
            if not covering:
                return DENY
            ends.append(max(covering))
        return Verdict(True, document.role, None if min(ends) == FOREVER else min(ends))


def answers(view: Any, questions: list[PlainQuestion], policy: DecisionPolicy) -> Mapping[int, Verdict]:
    decisions = [decide(view, question, NOW, policy) for question in questions]
    return {
        number: Verdict(decision.has_access, decision.access_role, decision.expires_at)
        for number, decision in enumerate(decisions)
    }


def expected_verdicts(
    records: list[Record], questions: list[PlainQuestion], policy: DecisionPolicy
) -> Mapping[int, Verdict]:
    book = Rulebook(records, policy)
    return {number: book.verdict(question) for number, question in enumerate(questions)}


numbers = st.integers(0, 2**32)
fixtures_may_stay = [HealthCheck.function_scoped_fixture]


def draw_case(number: int) -> tuple[list[Record], list[PlainQuestion], DecisionPolicy]:
    company = Company(number)
    return company.records(), [company.question() for _ in range(20)], company.policy()


@settings(max_examples=examples(400), deadline=None, suppress_health_check=fixtures_may_stay)
@given(number=numbers)
def test_decide_in_memory_follows_the_rules(number: int, memory_view: Any) -> None:
    records, questions, policy = draw_case(number)
    assert answers(memory_view(records), questions, policy) == expected_verdicts(records, questions, policy)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=fixtures_may_stay)
@given(number=numbers)
def test_decide_in_a_database_follows_the_rules(number: int, viewed_directory: Any) -> None:
    records, questions, policy = draw_case(number)
    viewed_directory.write(records)
    with viewed_directory.view(questions) as view:
        assert answers(view, questions, policy) == expected_verdicts(records, questions, policy)


def test_random_questions_are_decided_by_every_rule(memory_view: Any) -> None:
    met: Counter[Rule] = Counter()
    for number in range(200):
        records, questions, policy = draw_case(number)
        met.update(decide(memory_view(records), question, NOW, policy).rule for question in questions)
    assert all(met[rule] >= 10 for rule in Rule), met


@settings(max_examples=examples(150), deadline=None, suppress_health_check=fixtures_may_stay)
@given(number=numbers)
def test_uncapped_decision_is_valid_until_its_end(number: int, memory_view: Any) -> None:
    records, questions, policy = draw_case(number)
    view = memory_view(records)
    for question in questions:
        first = decide_uncapped(view, question, NOW, policy)
        for seconds in range(0, 420, 30):
            later = NOW + timedelta(seconds=seconds)
            if first.expires_at is None or later < first.expires_at:
                again = decide_uncapped(view, question, later, policy)
                assert (again.has_access, again.access_role, again.expires_at) == (
                    first.has_access,
                    first.access_role,
                    first.expires_at,
                )
