"""The decision: whether this user may reach this resource at this moment, in which role and until when.

The rules: ``app/access/README.md``, "The decision".

One pure function answers, ``decide(view, question, now, policy)``; nothing else decides. It denies unless a rule
allows:

1. *organization*: an active member, with the membership's role.
2. *folder, document*: the nearest level of the ancestry that has an active grant to the user decides: their own
   grant, otherwise the most permissive of their groups' grants. Without any grant the access type in force does:
   ``restricted`` denies, otherwise a member has the membership's role, and ``public`` lets anyone else in with the role
   that the policy names.
3. *context*: rule 2 allows the document and every field is covered by an active context grant.

The organization and the user must be known and enabled, and the resource and every folder above it known. A missing
folder or a cycle makes everything below it unknown: denied as ``folder_unknown`` or ``folder_cycle``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, NamedTuple, Protocol

from app.access.ancestry import Ancestry, Obstacle
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
from app.access.view import AccessView

ResourceType = Literal["organization", "folder", "document", "context"]

ANY_VALUE = "*"
"""The value of a context grant that covers every value of its field."""


class PermissionRequest(Protocol):
    """Who asks for what, in whatever form it came. For ``context``, ``resource_id`` is the document that the context
    belongs to.

    ``parent_folder_id`` is a browser's hint, heeded for unknown documents alone and only where the policy says so.
    ``context`` maps each field to the one value asked for, as text.
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
class Check:
    """What ``PermissionRequest`` asks, for those who have no form of their own."""

    user_id: str
    type: ResourceType
    resource_id: str
    organization_id: str
    parent_folder_id: str | None = None
    context: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPolicy:
    """What the configuration leaves open in the rules."""

    decision_ttl: int = 600
    """Seconds after which an allow has to be asked for again at the latest; 0: no cap."""
    public_role: AccessRole = AccessRole.VIEWER
    """What someone may do who is let in because a resource is public."""
    unknown_document: Literal["deny", "inherit_folder"] = "deny"
    """Whether a document that is not in the directory is judged as if it lay in the folder that is hinted at."""


class Rule(StrEnum):
    """What settled a decision."""

    ORGANIZATION_UNKNOWN = "organization_unknown"
    ORGANIZATION_DISABLED = "organization_disabled"
    USER_UNKNOWN = "user_unknown"
    USER_DISABLED = "user_disabled"
    RESOURCE_UNKNOWN = "resource_unknown"
    FOLDER_UNKNOWN = "folder_unknown"
    """A folder above the resource is not in the directory."""
    FOLDER_CYCLE = "folder_cycle"
    """The folders above the resource lead back into themselves."""
    MEMBER = "member"
    """Allowed: an active member asks for their organization."""
    NOT_A_MEMBER = "not_a_member"
    OWN_GRANT = "own_grant"
    """Allowed: the user's own grant at the nearest level that has any."""
    GROUP_GRANT = "group_grant"
    """Allowed: grants of the user's groups at the nearest level that has any."""
    MEMBER_ACCESS = "member_access"
    """Allowed: the resource is open to members and the user is one."""
    PUBLIC_ACCESS = "public_access"
    """Allowed: the resource is public and the user no member."""
    RESTRICTED = "restricted"
    """Denied: no grant in the ancestry, and the resource is restricted."""
    CONTEXT_EMPTY = "context_empty"
    """Denied: the question names no field of the context."""
    CONTEXT_NOT_COVERED = "context_not_covered"
    """Denied: the document is allowed, but a field of the context is not."""
    CONTEXT_GRANTS = "context_grants"
    """Allowed: the document is, and context grants cover every field."""

    @property
    def denies(self) -> bool:
        """Whether a decision that this settled is a denial."""
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
    """An answer, what settled it, and the records that led to it, in the order in which they were looked at."""

    has_access: bool
    rule: Rule
    trail: tuple[Record, ...] = ()
    access_role: AccessRole | None = None
    """Given with every allow, and only then."""
    expires_at: datetime | None = None
    """When an allow has to be asked for again; None: never. A deny has none."""
    uncovered: tuple[str, ...] = ()
    """The context fields that no context grant covers, with ``CONTEXT_NOT_COVERED``."""


def decide(view: AccessView, question: PermissionRequest, now: datetime, policy: DecisionPolicy) -> Decision:
    """The answer to one question at the moment ``now`` (aware), from one revision of the access model."""
    return capped(judge(view, question, now, policy), now, policy)


def judge(view: AccessView, question: PermissionRequest, now: datetime, policy: DecisionPolicy) -> Decision:
    """The same without the cap on its lifetime.

    Within one revision it stays what it is from ``now`` until its own ``expires_at``: that is what this moment means,
    and a deny stays a deny, because nothing is let in by what expires.
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


def capped(decision: Decision, now: datetime, policy: DecisionPolicy) -> Decision:
    """The decision with the end that the policy sets to every allow."""
    if not decision.has_access or not policy.decision_ttl:
        return decision
    cap = now + timedelta(seconds=policy.decision_ttl)
    if decision.expires_at is not None and decision.expires_at <= cap:
        return decision
    return Decision(True, decision.rule, decision.trail, decision.access_role, cap)


def _decide_organization(view: AccessView, question: PermissionRequest, now: datetime) -> Decision:
    if question.resource_id != question.organization_id:
        return Decision(False, Rule.RESOURCE_UNKNOWN)
    membership = view.membership(question.organization_id, question.user_id)
    if membership is None or not _is_active(membership, now):
        return Decision(False, Rule.NOT_A_MEMBER, () if membership is None else (membership,))
    return Decision(True, Rule.MEMBER, (membership,), membership.access_role, membership.expires_at)


_TOP = Ancestry()
_UNKNOWN = Ancestry((), Obstacle.UNKNOWN)


def _decide_resource(
    view: AccessView, question: PermissionRequest, now: datetime, policy: DecisionPolicy, organization: Organization
) -> Decision:
    organization_id = question.organization_id
    document, above, ancestry = _find_resource(view, question, policy)
    # The whole ancestry is known before anything is decided: a grant below a gap must not count.
    if ancestry.obstacle is not None:
        return _decide_unknown(document, ancestry)
    if view.any_grants(organization_id, question.user_id, None if document is None else document.document_id, above):
        levels: tuple[Folder | Document, ...] = ancestry.folders if document is None else (document, *ancestry.folders)
        for passed, level in enumerate(levels, start=1):
            active = [grant for grant in _grants_on(view, question, level) if _is_active(grant, now)]
            if active:
                return _decide_by_grants(active, question.user_id, levels[:passed])
    access_type, trail = _type_in_force(document, ancestry, organization)
    membership = view.membership(organization_id, question.user_id)
    return _decide_by_access_type(access_type, trail, membership, now, policy)


def _find_resource(
    view: AccessView, question: PermissionRequest, policy: DecisionPolicy
) -> tuple[Document | None, str | None, Ancestry]:
    """The document, the folder in which the resource is, and the ancestry.

    A document whose ancestry is broken is unknown: the hint then replaces it, if the policy accepts hints.
    """
    organization_id, resource_id = question.organization_id, question.resource_id
    if question.type == "folder":
        return None, resource_id, view.ancestry_of(organization_id, resource_id)
    document = view.document(organization_id, resource_id)
    hint = question.parent_folder_id if policy.unknown_document == "inherit_folder" else None
    if document is not None:
        above = document.folder_id
        ancestry = _TOP if above is None else view.ancestry_of(organization_id, above)
        if ancestry.obstacle is None or hint is None:
            return document, above, ancestry
    if hint is None:
        return None, None, _UNKNOWN
    return None, hint, view.ancestry_of(organization_id, hint)


def _decide_unknown(document: Document | None, ancestry: Ancestry) -> Decision:
    passed: tuple[Folder | Document, ...] = ancestry.folders if document is None else (document, *ancestry.folders)
    if ancestry.obstacle is Obstacle.CYCLE:
        return Decision(False, Rule.FOLDER_CYCLE, passed)
    return Decision(False, Rule.FOLDER_UNKNOWN if passed else Rule.RESOURCE_UNKNOWN, passed)


def _grants_on(view: AccessView, question: PermissionRequest, level: Folder | Document) -> Sequence[Grant]:
    if isinstance(level, Folder):
        return view.grants(question.organization_id, "folder", level.folder_id, question.user_id)
    return view.grants(question.organization_id, "document", level.document_id, question.user_id)


def _decide_by_grants(active: list[Grant], user_id: str, levels: tuple[Folder | Document, ...]) -> Decision:
    """The decision of the nearest level that has active grants; ``levels`` ends with it."""
    for grant in active:
        if grant.user_id == user_id:
            return Decision(True, Rule.OWN_GRANT, (*levels, grant), grant.access_role, grant.expires_at)
    role = max((grant.access_role for grant in active), key=lambda role: role.rank)
    deciding = [grant for grant in active if grant.access_role is role]
    return Decision(True, Rule.GROUP_GRANT, (*levels, *deciding), role, _latest(deciding))


def _type_in_force(
    document: Document | None, ancestry: Ancestry, organization: Organization
) -> tuple[AccessType, tuple[Folder | Document | Organization, ...]]:
    """The nearest access type, and the levels up to the one that has it: at last the organization, which always has."""
    if document is not None and document.access_type is not None:
        return document.access_type, (document,)
    folders = ancestry.folders[: ancestry.typed] if ancestry.typed else ancestry.folders
    passed: tuple[Folder | Document, ...] = folders if document is None else (document, *folders)
    if ancestry.typed and (access_type := folders[-1].access_type) is not None:
        return access_type, passed
    return organization.access_type, (*passed, organization)


def _decide_by_access_type(
    access_type: AccessType,
    trail: tuple[Record, ...],
    membership: Membership | None,
    now: datetime,
    policy: DecisionPolicy,
) -> Decision:
    """The decision where no grant is in the ancestry."""
    if access_type is AccessType.RESTRICTED:
        return Decision(False, Rule.RESTRICTED, trail)
    if membership is not None:
        trail = (*trail, membership)
        if _is_active(membership, now):
            return Decision(True, Rule.MEMBER_ACCESS, trail, membership.access_role, membership.expires_at)
    if access_type is AccessType.PUBLIC:
        return Decision(True, Rule.PUBLIC_ACCESS, trail, policy.public_role)
    return Decision(False, Rule.NOT_A_MEMBER, trail)


def _decide_context(
    view: AccessView, question: PermissionRequest, now: datetime, policy: DecisionPolicy, organization: Organization
) -> Decision:
    asked = question.context
    if not asked:
        return Decision(False, Rule.CONTEXT_EMPTY)
    document = _decide_resource(view, question, now, policy, organization)
    if not document.has_access:
        return document
    # The trail of an allow begins with the document. An unknown one has no context grants of its own.
    is_known = isinstance(document.trail[0], Document)
    documents = (None, question.resource_id) if is_known else (None,)
    covering: dict[str, list[ContextGrant]] = {name: [] for name in asked}
    for grant in view.context_grants(question.organization_id, question.user_id):
        if (
            grant.field in covering
            and grant.value in (asked[grant.field], ANY_VALUE)
            and grant.document_id in documents
            and _is_active(grant, now)
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


def _is_active(record: Membership | Grant | ContextGrant, now: datetime) -> bool:
    return record.expires_at is None or record.expires_at > now


def _latest(grants: Sequence[Grant | ContextGrant]) -> datetime | None:
    """When the last of them ends; None when one of them never does."""
    latest: datetime | None = None
    for grant in grants:
        if grant.expires_at is None:
            return None
        if latest is None or grant.expires_at > latest:
            latest = grant.expires_at
    return latest


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    """The earlier of two ends, where None is never."""
    if one is None or other is None:
        return one or other
    return min(one, other)
