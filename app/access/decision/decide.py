"""Decides whether a user has access to a resource at a moment, with which role and until when.

The rules: ``app/access/decision/README.md``, "The decision".

The pure function ``decide(view, question, now, policy)`` makes all decisions. It denies unless a rule allows:

1. *organization*: the user is an active member, and gets the membership's role.
2. *folder, document*: the nearest level of the ancestry with an active grant to the user decides: the user's own
   grant, otherwise the most permissive grant of their groups. Without such a level, the effective access type decides:
   ``restricted`` denies, otherwise members get their membership's role, and ``public`` allows everyone else with the
   role of the policy.
3. *context*: rule 2 allows the document, and an active context grant covers every field.

The organization and the user must exist and be enabled. The resource and all folders above it must exist; everything
below a missing folder or a cycle is unknown: denied as ``folder_unknown`` or ``folder_cycle``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, NamedTuple, Protocol

from app.access.decision.ancestry import Ancestry, Obstacle
from app.access.decision.view import AccessView
from app.access.records import (
    AccessRole,
    AccessType,
    ContextGrant,
    Document,
    Folder,
    Grant,
    Membership,
    Organization,
    Record,
)

ResourceType = Literal["organization", "folder", "document", "context"]
"""As in ``app.contract.permission_call``, which the decision must not import."""

ANY_VALUE = "*"
"""The value of a context grant that covers every value of its field."""


class QuestionLike(Protocol):
    """A question. For ``context``, ``resource_id`` is the document of the context.

    ``parent_folder_id`` is a browser's hint. It is used only for documents that do not exist, if the policy
    allows it.
    ``context`` maps each requested field to one value, as text.
    """

    @property
    def user_id(self) -> str: ...
    @property
    def type(self) -> ResourceType: ...
    @property
    def resource_id(self) -> str: ...
    @property
    def organization_id(self) -> str: ...
    @property
    def parent_folder_id(self) -> str | None: ...
    @property
    def context(self) -> Mapping[str, str] | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainQuestion:
    """A plain implementation of ``QuestionLike``."""

    user_id: str
    type: ResourceType
    resource_id: str
    organization_id: str
    parent_folder_id: str | None = None
    context: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPolicy:
    """The settings of the rules."""

    decision_ttl: int = 600
    """Seconds after which an allow expires at the latest. 0: no limit."""
    public_role: AccessRole = AccessRole.VIEWER
    """The role of non-members on public resources."""
    unknown_document: Literal["deny", "inherit_folder"] = "deny"
    """``inherit_folder``: a document that does not exist is decided as if it were in the folder of the hint."""


class Rule(StrEnum):
    """The rule that determined a decision."""

    ORGANIZATION_UNKNOWN = "organization_unknown"
    ORGANIZATION_DISABLED = "organization_disabled"
    USER_UNKNOWN = "user_unknown"
    USER_DISABLED = "user_disabled"
    RESOURCE_UNKNOWN = "resource_unknown"
    FOLDER_UNKNOWN = "folder_unknown"
    """Denied: a folder above the resource does not exist."""
    FOLDER_CYCLE = "folder_cycle"
    """Denied: the folders above the resource form a cycle."""
    MEMBER = "member"
    """Allowed: the user is an active member of the organization."""
    NOT_A_MEMBER = "not_a_member"
    OWN_GRANT = "own_grant"
    """Allowed: the user's own grant at the nearest level that has an active grant."""
    GROUP_GRANT = "group_grant"
    """Allowed: grants of the user's groups at the nearest level that has an active grant."""
    MEMBER_ACCESS = "member_access"
    """Allowed: members have access, and the user is one."""
    PUBLIC_ACCESS = "public_access"
    """Allowed: the resource is public, and the user is not a member."""
    RESTRICTED = "restricted"
    """Denied: the resource is restricted, and no level of the ancestry has an active grant to the user."""
    CONTEXT_EMPTY = "context_empty"
    """Denied: the question contains no context field."""
    CONTEXT_NOT_COVERED = "context_not_covered"
    """Denied: the document is allowed, but no context grant covers one of the fields."""
    CONTEXT_GRANTS = "context_grants"
    """Allowed: the document is allowed, and context grants cover every field."""

    @property
    def denies(self) -> bool:
        """Whether the rule denies."""
        return self not in _LET_IN


_LET_IN = frozenset(
    {
        Rule.MEMBER,
        Rule.OWN_GRANT,
        Rule.GROUP_GRANT,
        Rule.MEMBER_ACCESS,
        Rule.PUBLIC_ACCESS,
        Rule.CONTEXT_GRANTS,
    }
)


class Decision(NamedTuple):
    """An answer, the rule that determined it, and the records behind it, in the order in which they were read."""

    has_access: bool
    rule: Rule
    trail: tuple[Record, ...] = ()
    access_role: AccessRole | None = None
    """Set if and only if access is allowed."""
    expires_at: datetime | None = None
    """The end of an allow. None: it does not end. A deny has none."""
    uncovered: tuple[str, ...] = ()
    """The context fields that no context grant covers, with ``CONTEXT_NOT_COVERED``."""


def decide(view: AccessView, question: QuestionLike, now: datetime, policy: DecisionPolicy) -> Decision:
    """The answer to one question at the moment ``now`` (aware), from one revision of the access model."""
    return _cap(decide_uncapped(view, question, now, policy), now, policy)


def decide_uncapped(view: AccessView, question: QuestionLike, now: datetime, policy: DecisionPolicy) -> Decision:
    """``decide`` without the policy's limit on the lifetime.

    Within one revision, an allow stays valid until its ``expires_at``. A deny stays valid, because an expiring record
    never adds access.
    """
    organization = view.organization(question.organization_id)
    if organization is None:
        return Decision(False, Rule.ORGANIZATION_UNKNOWN)
    if organization.disabled:
        return Decision(False, Rule.ORGANIZATION_DISABLED, (organization,))
    user = view.user(question.user_id)
    if user is None:
        return Decision(False, Rule.USER_UNKNOWN)
    if user.disabled:
        return Decision(False, Rule.USER_DISABLED, (user,))
    kind = question.type
    if kind == "organization":
        return _decide_organization(view, question, now)
    if kind == "context":
        return _decide_context(view, question, now, policy, organization)
    return _decide_resource(view, question, now, policy, organization)


def denied_to_all(view: AccessView, question: QuestionLike) -> Decision | None:
    """The denial of an organization, folder or document that holds for every user. None: it depends on the user."""
    organization = view.organization(question.organization_id)
    if organization is None:
        return Decision(False, Rule.ORGANIZATION_UNKNOWN)
    if organization.disabled:
        return Decision(False, Rule.ORGANIZATION_DISABLED, (organization,))
    if question.type == "organization":
        is_unknown = question.resource_id != question.organization_id
        return Decision(False, Rule.RESOURCE_UNKNOWN) if is_unknown else None
    document, _, ancestry = _find_resource(view, question, DecisionPolicy())
    return None if ancestry.obstacle is None else _decide_unknown(document, ancestry)


def _cap(decision: Decision, now: datetime, policy: DecisionPolicy) -> Decision:
    """The decision with the policy's limit on the lifetime of an allow."""
    if not decision.has_access or not policy.decision_ttl:
        return decision
    cap = now + timedelta(seconds=policy.decision_ttl)
    if decision.expires_at is not None and decision.expires_at <= cap:
        return decision
    return Decision(True, decision.rule, decision.trail, decision.access_role, cap)


def _decide_organization(view: AccessView, question: QuestionLike, now: datetime) -> Decision:
    if question.resource_id != question.organization_id:
        return Decision(False, Rule.RESOURCE_UNKNOWN)
    membership = view.membership(question.organization_id, question.user_id)
    if membership is None or not is_active(membership, now):
        return Decision(False, Rule.NOT_A_MEMBER, () if membership is None else (membership,))
    return Decision(True, Rule.MEMBER, (membership,), membership.access_role, membership.expires_at)


_TOP = Ancestry()
_UNKNOWN = Ancestry((), Obstacle.UNKNOWN)


def _decide_resource(
    view: AccessView, question: QuestionLike, now: datetime, policy: DecisionPolicy, organization: Organization
) -> Decision:
    organization_id = question.organization_id
    document, above, ancestry = _find_resource(view, question, policy)
    # Check the whole ancestry first: a grant below a missing folder must not be effective.
    if ancestry.obstacle is not None:
        return _decide_unknown(document, ancestry)
    if view.any_grants(organization_id, question.user_id, None if document is None else document.document_id, above):
        levels: tuple[Folder | Document, ...] = ancestry.folders if document is None else (document, *ancestry.folders)
        for passed, level in enumerate(levels, start=1):
            active = [grant for grant in _grants_on(view, question, level) if is_active(grant, now)]
            if active:
                return _decide_by_grants(active, question.user_id, levels[:passed])
    access_type, trail = access_type_in_force(document, ancestry, organization)
    membership = view.membership(organization_id, question.user_id)
    return _decide_by_access_type(access_type, trail, membership, now, policy)


def _find_resource(
    view: AccessView, question: QuestionLike, policy: DecisionPolicy
) -> tuple[Document | None, str | None, Ancestry]:
    """The document, the folder in which the resource is, and the ancestry.

    The hint decides about a document that does not exist, if the policy accepts hints. It comes from a browser, so it
    never replaces the folders of a document that exists, even if they are unknown.
    """
    organization_id, resource_id = question.organization_id, question.resource_id
    if question.type == "folder":
        return None, resource_id, view.ancestry_of(organization_id, resource_id)
    document = view.document(organization_id, resource_id)
    if document is not None:
        above = document.folder_id
        return document, above, _TOP if above is None else view.ancestry_of(organization_id, above)
    hint = question.parent_folder_id if policy.unknown_document == "inherit_folder" else None
    return None, hint, _UNKNOWN if hint is None else view.ancestry_of(organization_id, hint)


def _decide_unknown(document: Document | None, ancestry: Ancestry) -> Decision:
    passed: tuple[Folder | Document, ...] = ancestry.folders if document is None else (document, *ancestry.folders)
    if ancestry.obstacle is Obstacle.CYCLE:
        return Decision(False, Rule.FOLDER_CYCLE, passed)
    return Decision(False, Rule.FOLDER_UNKNOWN if passed else Rule.RESOURCE_UNKNOWN, passed)


def _grants_on(view: AccessView, question: QuestionLike, level: Folder | Document) -> Sequence[Grant]:
    if isinstance(level, Folder):
        return view.grants(question.organization_id, "folder", level.folder_id, question.user_id)
    return view.grants(question.organization_id, "document", level.document_id, question.user_id)


def _decide_by_grants(active: list[Grant], user_id: str, levels: tuple[Folder | Document, ...]) -> Decision:
    """The decision of the nearest level that has active grants. ``levels`` ends with it."""
    for grant in active:
        if grant.user_id == user_id:
            return Decision(True, Rule.OWN_GRANT, (*levels, grant), grant.access_role, grant.expires_at)
    role = max((grant.access_role for grant in active), key=lambda role: role.rank)
    deciding = [grant for grant in active if grant.access_role is role]
    return Decision(True, Rule.GROUP_GRANT, (*levels, *deciding), role, _latest(deciding))


def access_type_in_force(
    document: Document | None, ancestry: Ancestry, organization: Organization
) -> tuple[AccessType, tuple[Folder | Document | Organization, ...]]:
    """The nearest access type, and the levels up to the one that has it. The organization always has one."""
    if document is not None and document.access_type is not None:
        return document.access_type, (document,)
    folders = ancestry.folders[: ancestry.levels_to_type] if ancestry.levels_to_type else ancestry.folders
    passed: tuple[Folder | Document, ...] = folders if document is None else (document, *folders)
    if ancestry.levels_to_type and (access_type := folders[-1].access_type) is not None:
        return access_type, passed
    return organization.access_type, (*passed, organization)


def _decide_by_access_type(
    access_type: AccessType,
    trail: tuple[Record, ...],
    membership: Membership | None,
    now: datetime,
    policy: DecisionPolicy,
) -> Decision:
    """The decision if no level has an active grant to the user."""
    if access_type is AccessType.RESTRICTED:
        return Decision(False, Rule.RESTRICTED, trail)
    if membership is not None:
        trail = (*trail, membership)
        if is_active(membership, now):
            return Decision(True, Rule.MEMBER_ACCESS, trail, membership.access_role, membership.expires_at)
    if access_type is AccessType.PUBLIC:
        return Decision(True, Rule.PUBLIC_ACCESS, trail, policy.public_role)
    return Decision(False, Rule.NOT_A_MEMBER, trail)


def _decide_context(
    view: AccessView, question: QuestionLike, now: datetime, policy: DecisionPolicy, organization: Organization
) -> Decision:
    requested = question.context
    if not requested:
        return Decision(False, Rule.CONTEXT_EMPTY)
    document = _decide_resource(view, question, now, policy, organization)
    if not document.has_access:
        return document
    # The trail of an allow begins with the document. An unknown one has no context grants of its own.
    is_known = isinstance(document.trail[0], Document)
    documents = (None, question.resource_id) if is_known else (None,)
    covering: dict[str, list[ContextGrant]] = {name: [] for name in requested}
    for grant in view.context_grants(question.organization_id, question.user_id):
        if (
            grant.field in covering
            and grant.value in (requested[grant.field], ANY_VALUE)
            and grant.document_id in documents
            and is_active(grant, now)
        ):
            covering[grant.field].append(grant)
    uncovered = tuple(name for name, grants in covering.items() if not grants)
    if uncovered:
        return Decision(False, Rule.CONTEXT_NOT_COVERED, document.trail, uncovered=uncovered)
    expires_at = document.expires_at
    for grants in covering.values():
        expires_at = _earlier(expires_at, _latest(grants))
    trail = (*document.trail, *(grant for grants in covering.values() for grant in grants))
    return Decision(True, Rule.CONTEXT_GRANTS, trail, document.access_role, expires_at)


def is_active(record: Membership | Grant | ContextGrant, now: datetime) -> bool:
    """Whether the record has not ended at the moment ``now``."""
    return record.expires_at is None or record.expires_at > now


def _latest(grants: Sequence[Grant | ContextGrant]) -> datetime | None:
    """The latest end. None if one of the grants does not end."""
    latest: datetime | None = None
    for grant in grants:
        if grant.expires_at is None:
            return None
        if latest is None or grant.expires_at > latest:
            latest = grant.expires_at
    return latest


def _earlier(first: datetime | None, second: datetime | None) -> datetime | None:
    """The earlier of two ends, where None is never."""
    if first is None or second is None:
        return first or second
    return min(first, second)
