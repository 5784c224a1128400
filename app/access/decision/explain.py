"""The explanation of a decision: the same again, as one sentence for a person and the records that led to it.

Nothing is evaluated a second time: the sentence and the path are made from what ``decide`` itself went by.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from app.access.decision.decide import Decision, DecisionPolicy, PermissionRequest, Rule, decide
from app.access.decision.view import AccessView
from app.access.kinds import KINDS
from app.access.records import ContextGrant, Document, Folder, Grant, Membership, Organization, Record, Sort
from app.foundation.clock import epoch_ms
from app.foundation.text import named


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision with its reasons.

    ``path`` holds the records in the order in which they were looked at, each as a JSON object with its ``kind`` and
    its fields by their wire names (times in epoch milliseconds). Before a group's grant come the memberships that make
    the user a member of the group, their own first.
    """

    decision: Decision
    reason: str
    path: tuple[Mapping[str, object], ...]
    records: tuple[Record, ...]
    """Those of ``path``, in its order."""


def explain(view: AccessView, question: PermissionRequest, now: datetime, policy: DecisionPolicy) -> Explanation:
    """The decision at the moment ``now``, and why. The view should carry names: they are shown in ``path``."""
    decision = decide(view, question, now, policy)
    records = tuple(_steps(view, question, decision))
    verdict = f"Allowed as {decision.access_role}" if decision.has_access else "Denied"
    reason = f"{verdict}: {_REASONS[decision.rule](question, decision)}"
    if decision.expires_at is not None:
        reason += f"; to be asked again after {_time(decision.expires_at)}"
    return Explanation(decision, reason + ".", tuple(map(record_to_wire, records)), records)


def _steps(view: AccessView, question: PermissionRequest, decision: Decision) -> Iterator[Record]:
    shown: set[tuple[str, ...]] = set()
    for record in decision.trail:
        if isinstance(record, Grant | ContextGrant) and record.organization_user_group_id is not None:
            for member in view.group_path(
                question.organization_id, question.user_id, record.organization_user_group_id
            ):
                if member.key not in shown:
                    shown.add(member.key)
                    yield member
        if record.key not in shown:
            shown.add(record.key)
            yield record


def record_to_wire(record: Record) -> dict[str, object]:
    """The record as in ``path``."""
    wire: dict[str, object] = {"kind": record.kind}
    for field in KINDS[record.kind].fields:
        value = getattr(record, field.attribute)
        if value not in {None, "", ()}:
            wire[field.name] = epoch_ms(value) if field.sort is Sort.TIME else value
    return wire


def _organization_unknown(question: PermissionRequest, _: Decision) -> str:
    return f"organization {named(question.organization_id)} is not in the directory"


def _organization_disabled(question: PermissionRequest, _: Decision) -> str:
    return f"organization {named(question.organization_id)} is disabled"


def _user_unknown(question: PermissionRequest, _: Decision) -> str:
    return f"user {named(question.user_id)} is not in the directory"


def _user_disabled(question: PermissionRequest, _: Decision) -> str:
    return f"user {named(question.user_id)} is disabled"


def _resource_unknown(question: PermissionRequest, _: Decision) -> str:
    return f"organization {named(question.organization_id)} has no {_resource(question)}"


def _folder_unknown(question: PermissionRequest, decision: Decision) -> str:
    last = decision.trail[-1]
    missing = last.parent_folder_id if isinstance(last, Folder) else getattr(last, "folder_id", None)
    return f"folder {named(missing or '')}, in which {_resource(question)} lies, is not in the directory"


def _folder_cycle(question: PermissionRequest, _: Decision) -> str:
    return f"the folders around {_resource(question)} lie in each other in a circle"


def _member(question: PermissionRequest, _: Decision) -> str:
    return f"{named(question.user_id)} is a member of organization {named(question.organization_id)}"


def _not_a_member(question: PermissionRequest, decision: Decision) -> str:
    user, organization = named(question.user_id), named(question.organization_id)
    last = decision.trail[-1] if decision.trail else None
    if isinstance(last, Membership) and last.expires_at is not None:
        missing = f"{user}'s membership of organization {organization} ended at {_time(last.expires_at)}"
    else:
        missing = f"{user} is not a member of organization {organization}"
    if question.type == "organization":
        return missing
    return f"no grant lets {user} in, {_resource(question)} is open to members only, and {missing}"


def _own_grant(question: PermissionRequest, decision: Decision) -> str:
    return f"{named(question.user_id)} was let in by name on {_granted_on(decision)}"


def _group_grant(question: PermissionRequest, decision: Decision) -> str:
    groups = [
        named(record.organization_user_group_id)
        for record in decision.trail
        if isinstance(record, Grant) and record.organization_user_group_id is not None
    ]
    which = f"group {groups[0]}" if len(groups) == 1 else f"groups {', '.join(groups)}"
    return f"{named(question.user_id)} is in {which}, let in by name on {_granted_on(decision)}"


def _member_access(question: PermissionRequest, decision: Decision) -> str:
    return f"{_access_type(question, decision)}, and {_member(question, decision)}"


def _public_access(question: PermissionRequest, decision: Decision) -> str:
    return _access_type(question, decision)


def _restricted(question: PermissionRequest, decision: Decision) -> str:
    return f"{_access_type(question, decision)}, and no grant lets {named(question.user_id)} in"


def _context_empty(_question: PermissionRequest, _decision: Decision) -> str:
    return "the question names no field of the context"


def _context_not_covered(question: PermissionRequest, decision: Decision) -> str:
    fields_shown = ", ".join(named(name) for name in decision.uncovered)
    return (
        f"{named(question.user_id)} may reach document {named(question.resource_id)}, "
        f"but no context grant covers what was asked of {fields_shown}"
    )


def _context_grants(question: PermissionRequest, _: Decision) -> str:
    return (
        f"{named(question.user_id)} may reach document {named(question.resource_id)}, "
        "and context grants cover every field that was asked for"
    )


_REASONS: Mapping[Rule, Callable[[PermissionRequest, Decision], str]] = {
    Rule.ORGANIZATION_UNKNOWN: _organization_unknown,
    Rule.ORGANIZATION_DISABLED: _organization_disabled,
    Rule.USER_UNKNOWN: _user_unknown,
    Rule.USER_DISABLED: _user_disabled,
    Rule.RESOURCE_UNKNOWN: _resource_unknown,
    Rule.FOLDER_UNKNOWN: _folder_unknown,
    Rule.FOLDER_CYCLE: _folder_cycle,
    Rule.MEMBER: _member,
    Rule.NOT_A_MEMBER: _not_a_member,
    Rule.OWN_GRANT: _own_grant,
    Rule.GROUP_GRANT: _group_grant,
    Rule.MEMBER_ACCESS: _member_access,
    Rule.PUBLIC_ACCESS: _public_access,
    Rule.RESTRICTED: _restricted,
    Rule.CONTEXT_EMPTY: _context_empty,
    Rule.CONTEXT_NOT_COVERED: _context_not_covered,
    Rule.CONTEXT_GRANTS: _context_grants,
}


def _resource(question: PermissionRequest) -> str:
    kind = "document" if question.type == "context" else question.type
    return f"{kind} {named(question.resource_id)}"


def _granted_on(decision: Decision) -> str:
    """Where the grant stands that decided."""
    grant = next(record for record in decision.trail if isinstance(record, Grant))
    if grant.folder_id is not None:
        return f"folder {named(grant.folder_id)}"
    return f"document {named(grant.document_id or '')}"


def _access_type(question: PermissionRequest, decision: Decision) -> str:
    """The access type in force and where it comes from."""
    source = next(record for record in reversed(decision.trail) if isinstance(record, Organization | Folder | Document))
    resource = f"{_resource(question)} is {source.access_type}"
    if isinstance(source, Organization):
        return f"{resource} like its organization"
    if isinstance(source, Folder) and (question.type != "folder" or source.folder_id != question.resource_id):
        return f"{resource} through folder {named(source.folder_id)}"
    return resource


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
