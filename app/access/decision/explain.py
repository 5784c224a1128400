"""Explains a decision: one sentence, and the records that led to it.

Both follow from the trail that ``decide`` returns. Nothing is evaluated a second time.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from app.access.decision.decide import Decision, DecisionPolicy, QuestionLike, Rule, decide
from app.access.decision.view import AccessView
from app.access.kinds import KINDS
from app.access.records import ContextGrant, Document, FieldType, Folder, Grant, Membership, Organization, Record
from app.foundation.clock import epoch_ms
from app.foundation.text import named

Mention = Callable[[str, str], str]
"""The kind and the id of a record → the text for it in a sentence."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision with its reasons.

    ``path`` contains the records in the order in which they were read, each as a JSON object with its ``kind`` and its
    fields by their wire names (times in epoch milliseconds). The memberships that make the user a member of a group
    come before the group's grant, the user's own first.
    """

    decision: Decision
    cause: str
    """The rule that decided, as ``reason_of``."""
    remarks: tuple[str, ...]
    """Further parts of the reason, such as the end of the decision."""
    path: tuple[Mapping[str, object], ...]
    records: tuple[Record, ...]
    """The records of ``path``."""

    @property
    def reason(self) -> str:
        """The decision in one sentence."""
        verdict = f"Allowed as {self.decision.access_role}" if self.decision.has_access else "Denied"
        return f"{verdict}: {'; '.join((self.cause, *self.remarks))}."


def explain(view: AccessView, question: QuestionLike, now: datetime, policy: DecisionPolicy) -> Explanation:
    """The decision at the moment ``now``, with its reasons. The view should contain names, which ``path`` shows."""
    decision = decide(view, question, now, policy)
    records = tuple(_steps(view, question, decision))
    end = decision.expires_at
    remarks = () if end is None else (f"to be asked again after {_time(end)}",)
    return Explanation(decision, reason_of(question, decision), remarks, tuple(map(record_to_wire, records)), records)


def reason_of(question: QuestionLike, decision: Decision, mention: Mention | None = None) -> str:
    """The rule of a decision in words, as part of a sentence. ``mention`` returns the text for a record, by default its
    id."""
    return _REASONS[decision.rule].format(_Names(question, decision, mention or (lambda _, item_id: named(item_id))))


def _steps(view: AccessView, question: QuestionLike, decision: Decision) -> Iterator[Record]:
    yielded: set[tuple[str, ...]] = set()
    for record in decision.trail:
        if isinstance(record, Grant | ContextGrant) and record.organization_user_group_id is not None:
            for member in view.group_path(
                question.organization_id, question.user_id, record.organization_user_group_id
            ):
                if member.key not in yielded:
                    yielded.add(member.key)
                    yield member
        if record.key not in yielded:
            yielded.add(record.key)
            yield record


def record_to_wire(record: Record) -> dict[str, object]:
    """The record as in ``path``."""
    wire: dict[str, object] = {"kind": record.kind}
    for field in KINDS[record.kind].fields:
        value = getattr(record, field.attribute)
        if value not in {None, "", ()}:
            wire[field.name] = epoch_ms(value) if field.type is FieldType.TIME else value
    return wire


class _Names:
    """The parts of the reasons."""

    def __init__(self, question: QuestionLike, decision: Decision, mention: Mention) -> None:
        self._question = question
        self._decision = decision
        self._mention = mention
        kind = "document" if question.type == "context" else question.type
        self.organization = mention("organization", question.organization_id)
        self.user = mention("user", question.user_id)
        self.id = mention(kind, question.resource_id)
        self.resource = f"{kind} {self.id}"
        self.uncovered = ", ".join(map(named, decision.uncovered))

    @property
    def missing_folder(self) -> str:
        last = self._decision.trail[-1]
        above = last.parent_folder_id if isinstance(last, Folder) else getattr(last, "folder_id", None)
        return self._mention("folder", above or "")

    @property
    def not_a_member(self) -> str:
        last = self._decision.trail[-1] if self._decision.trail else None
        if isinstance(last, Membership) and last.expires_at is not None:
            missing = f"{self.user}'s membership of organization {self.organization} ended at {_time(last.expires_at)}"
        else:
            missing = f"{self.user} is not a member of organization {self.organization}"
        if self._question.type == "organization":
            return missing
        return f"no grant lets {self.user} in, {self.resource} is open to members only, and {missing}"

    @property
    def groups(self) -> str:
        ids = [grant.organization_user_group_id for grant in self._grants if grant.organization_user_group_id]
        mentions = ", ".join(self._mention("group", group_id) for group_id in ids)
        return f"{'group' if len(ids) == 1 else 'groups'} {mentions}"

    @property
    def granted_on(self) -> str:
        """The folder or document of the grant that decided."""
        grant = self._grants[0]
        if grant.folder_id is None:
            return f"document {self._mention('document', grant.document_id or '')}"
        return f"folder {self._mention('folder', grant.folder_id)}"

    @property
    def _grants(self) -> list[Grant]:
        return [record for record in self._decision.trail if isinstance(record, Grant)]

    @property
    def access_type(self) -> str:
        """The access type in force and the record that has it."""
        trail = reversed(self._decision.trail)
        source = next(record for record in trail if isinstance(record, Organization | Folder | Document))
        resource = f"{self.resource} is {source.access_type}"
        if isinstance(source, Organization):
            return f"{resource} like its organization"
        if isinstance(source, Folder) and (
            self._question.type != "folder" or source.folder_id != self._question.resource_id
        ):
            return f"{resource} through folder {self._mention('folder', source.folder_id)}"
        return resource


_REASONS: Mapping[Rule, str] = {
    Rule.ORGANIZATION_UNKNOWN: "organization {0.organization} is not in the directory",
    Rule.ORGANIZATION_DISABLED: "organization {0.organization} is disabled",
    Rule.USER_UNKNOWN: "user {0.user} is not in the directory",
    Rule.USER_DISABLED: "user {0.user} is disabled",
    Rule.RESOURCE_UNKNOWN: "organization {0.organization} has no {0.resource}",
    Rule.FOLDER_UNKNOWN: "folder {0.missing_folder}, in which {0.resource} lies, is not in the directory",
    Rule.FOLDER_CYCLE: "the folders around {0.resource} lie in each other in a circle",
    Rule.MEMBER: "{0.user} is a member of organization {0.organization}",
    Rule.NOT_A_MEMBER: "{0.not_a_member}",
    Rule.OWN_GRANT: "{0.user} has a grant on {0.granted_on}",
    Rule.GROUP_GRANT: "{0.user} is in {0.groups} with a grant on {0.granted_on}",
    Rule.MEMBER_ACCESS: "{0.access_type}, and {0.user} is a member of organization {0.organization}",
    Rule.PUBLIC_ACCESS: "{0.access_type}",
    Rule.RESTRICTED: "{0.access_type}, and no grant lets {0.user} in",
    Rule.CONTEXT_EMPTY: "the question names no field of the context",
    Rule.CONTEXT_NOT_COVERED: ("{0.user} may reach document {0.id}, but no context grant covers {0.uncovered}"),
    Rule.CONTEXT_GRANTS: (
        "{0.user} may reach document {0.id}, and context grants cover every field that was asked for"
    ),
}


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
