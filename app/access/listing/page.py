"""A page of a list of access: candidates from the database, decided one by one.

The candidates contain everything that the rules could allow, and little else. ``decide_uncapped`` decides each of them,
so that a list is exact whatever the candidates are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from app.access.decision.decide import Decision, QuestionLike, Rule
from app.access.decision.explain import reason_of
from app.access.records import AccessRole, AccessType, Grant

_MAX_CANDIDATES = 10_000
"""The maximum number of candidates that are decided together."""

CONDITION_OF_TIME = "(g.expires_at IS NULL OR g.expires_at > :at)"
"""The condition for grants ``g`` that have not ended."""

CONDITION_OF_ROLE: Mapping[AccessRole | None, str] = {
    None: "TRUE",
    AccessRole.VIEWER: "g.access_role = 'viewer'",
    AccessRole.EDITOR: "g.access_role = 'editor'",
}
"""The condition for grants ``g`` by the role that a list asks for. None: every role."""

Candidates = Callable[[str, int], Sequence[str]]
"""Returns the ids after an id, in the order of their bytes, up to a number."""

DecideAll = Callable[[Sequence[str]], Sequence[Decision]]
"""Returns the decisions about ids, in their order."""


class AllowedCandidate(NamedTuple):
    """A candidate to which, or to whom, the decision allows access."""

    item_id: str
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessEntry:
    """A user and a resource to which the user has access."""

    kind: str
    """The kind of the listed item: organization, folder, document or user."""
    item_id: str
    name: str
    access_role: AccessRole
    rule: Rule
    grants: Sequence[Grant]
    """The grants that decided: the user's own one, or those of their groups. Empty: access without a grant."""
    expires_at: datetime | None
    """The end of the access by the directory, not shortened by ``provider.decision_ttl``. None: it does not end."""


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a list is empty, whatever the grants."""

    rule: Rule
    reason: str
    """The rule in words, as part of a sentence."""


def denial(question: QuestionLike, decision: Decision) -> Denial:
    """The denial of everything by this decision."""
    return Denial(decision.rule, reason_of(question, decision))


@dataclass(frozen=True, slots=True, kw_only=True)
class Openness:
    """Who may open a resource without a grant, by its access type in force."""

    access_type: AccessType | None
    """None: an organization itself, which is open to its members."""
    records: int
    """The number of members in the directory, or of users if it is ``public``. Disabled users and ended memberships
    count. 0 for ``restricted``."""

    @property
    def to(self) -> Literal["nobody", "members", "everyone"]:
        """Who may open it without a grant."""
        if self.access_type is AccessType.RESTRICTED:
            return "nobody"
        return "everyone" if self.access_type is AccessType.PUBLIC else "members"

    @property
    def sentence(self) -> str:
        """The same in words."""
        if self.access_type is AccessType.RESTRICTED:
            return "restricted: only users with a grant"
        if self.access_type is AccessType.PUBLIC:
            return f"public: open to every user, {self.records:,} in the directory"
        return f"{self.access_type or 'organization'}: open to members, {self.records:,} in the directory"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPage:
    """A page of a list of access, from one revision."""

    revision: int
    """0: the directory was never read."""
    entries: Sequence[AccessEntry] = ()
    has_more: bool = False
    denied: Denial | None = None
    openness: Openness | None = None
    """Who has access without a grant, for a list of users. None: nobody has access."""


def find_allowed(
    candidates: Candidates, decide_all: DecideAll, *, after: str, limit: int, role: AccessRole | None
) -> list[AllowedCandidate]:
    """The first allowed candidates after an id, at least ``limit`` of them if there are as many. With ``role``, only
    those with this role."""
    allowed: list[AllowedCandidate] = []
    size = _batch_size(limit)
    while True:
        ids = candidates(after, size)
        allowed += _decide_allowed(ids, decide_all, role)
        if len(allowed) >= limit or len(ids) < size:
            return allowed
        after, size = ids[-1], min(2 * size, max(size, _MAX_CANDIDATES))


def find_next(
    candidates: Candidates, decide_all: DecideAll, *, after: str, limit: int, role: AccessRole | None
) -> tuple[list[AllowedCandidate], str | None]:
    """Decides one batch of candidates. Returns the allowed ones, and the id to continue after (None: no more)."""
    size = _batch_size(limit)
    ids = candidates(after, size)
    return _decide_allowed(ids, decide_all, role), ids[-1] if len(ids) == size else None


def _batch_size(limit: int) -> int:
    # Some candidates may be denied: without a few more, most pages would need a second batch.
    return limit + limit // 2 + 16


def _decide_allowed(ids: Sequence[str], decide_all: DecideAll, role: AccessRole | None) -> list[AllowedCandidate]:
    return [
        AllowedCandidate(item_id, decision)
        for item_id, decision in zip(ids, decide_all(ids), strict=True)
        if decision.has_access and role in {None, decision.access_role}
    ]


def entry(kind: str, item_id: str, name: str, decision: Decision) -> AccessEntry:
    """The entry of an allowed candidate."""
    assert decision.access_role is not None  # noqa: S101 - of an allow
    return AccessEntry(
        kind=kind,
        item_id=item_id,
        name=name,
        access_role=decision.access_role,
        rule=decision.rule,
        grants=[record for record in decision.trail if isinstance(record, Grant)],
        expires_at=decision.expires_at,
    )
