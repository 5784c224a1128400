"""The ladder of a decision: who asks, the levels from the organization down, and what leads from one to the other.

The ladder is always whole. The level that decides is thick; those nearer to what is asked for were passed and say why;
those farther up were not looked at, and say so, also where a grant stands there: that is the question with which people
come.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from app.access.decision.ancestry import Ancestry, Obstacle
from app.access.decision.decide import Decision, PermissionRequest, Rule
from app.access.decision.view import AccessView
from app.access.records import Document, Folder, Grant, Membership, Organization

Level = Organization | Folder | Document

_UNDECIDED = frozenset({Rule.USER_UNKNOWN, Rule.USER_DISABLED, Rule.CONTEXT_EMPTY})
"""Rules that look at no level."""
_MISSING = frozenset({Rule.RESOURCE_UNKNOWN, Rule.FOLDER_UNKNOWN, Rule.FOLDER_CYCLE})


@dataclass(frozen=True, slots=True)
class Rung:
    """One level: the organization, a folder, the document, or the context within it."""

    kind: str
    item_id: str
    name: str
    says: str
    """``not looked at``, ``nothing for farah``, ``grant decides`` …"""
    state: str
    """allows, denies, passed, beyond."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """The levels from the organization down, and the chain from the user to the one that decides."""

    rungs: Sequence[Rung]
    user_id: str
    user_name: str
    groups: Sequence[str] = field(default_factory=tuple)
    """From the user to the group that has the grant."""
    leads: str = ""
    """What leads to the level that decides: ``viewer grant``, ``no grant``, ``editor as a member``."""
    user_says: str = ""
    """What keeps the user out whatever they ask for."""
    reason: str = ""
    allows: bool = False

    @property
    def deciding(self) -> int | None:
        """The number of the rung that decides: the one that denies, else the one that allows; None: none does."""
        for state in ("denies", "allows"):
            for number, rung in enumerate(self.rungs):
                if rung.state == state:
                    return number
        return None


def make_ladder(
    view: AccessView, question: PermissionRequest, decision: Decision, reason: str, now: datetime
) -> Ladder | None:
    """The ladder of this decision; None where there is no level to show: the organization is unknown."""
    organization = view.organization(question.organization_id)
    if organization is None:
        return None
    user = view.user(question.user_id)
    levels, obstacle = _levels(view, question, organization)
    grants = [record for record in decision.trail if isinstance(record, Grant)]
    rungs = _Rungs(view, question, decision, levels, now).all()
    rungs[1:1] = _gap(question, decision, levels, obstacle)
    if question.type == "context":
        rungs.append(_context_rung(question, decision))
    groups: tuple[str, ...] = ()
    if grants and grants[0].organization_user_group_id is not None:
        path = view.group_path(question.organization_id, question.user_id, grants[0].organization_user_group_id)
        groups = tuple(member.organization_user_group_id for member in path)
    return Ladder(
        rungs,
        question.user_id,
        "" if user is None else user.name or "",
        groups,
        _leads(decision, grants),
        {Rule.USER_UNKNOWN: "not in the directory", Rule.USER_DISABLED: "disabled"}.get(decision.rule, ""),
        reason,
        decision.has_access,
    )


def passed_over(
    view: AccessView, question: PermissionRequest, decision: Decision, now: datetime
) -> list[tuple[Grant | Membership, str]]:
    """What might have let them in and did not decide: their grants and membership, the nearest first, each with why."""
    organization = view.organization(question.organization_id)
    if organization is None or decision.rule in _UNDECIDED:
        return []
    levels, _ = _levels(view, question, organization)
    rungs = _Rungs(view, question, decision, levels, now)
    found: list[tuple[Grant | Membership, str]] = []
    for number in reversed(range(len(levels))):
        here = "another on the same level decides" if number == rungs.reached else "farther up: not reached"
        found += [(one, here) for one in rungs.grants_on(levels[number]) if one not in decision.trail]
    membership = view.membership(question.organization_id, question.user_id)
    if membership is not None and membership not in decision.trail:
        found.append((membership, "not asked for: a grant or the access type decides"))
    return [
        (one, f"ended {one.expires_at:%-d %b %Y}" if one.expires_at is not None and one.expires_at <= now else why)
        for one, why in found
    ]


def _levels(view: AccessView, question: PermissionRequest, organization: Organization) -> tuple[list[Level], Ancestry]:
    """The levels that exist, from the organization down, and their ancestry."""
    if question.type == "organization":
        return [organization], Ancestry()
    document = None
    folder_id: str | None = question.resource_id
    if question.type != "folder":
        document = view.document(question.organization_id, question.resource_id)
        folder_id = None if document is None else document.folder_id
    ancestry = Ancestry() if folder_id is None else view.ancestry_of(question.organization_id, folder_id)
    levels: list[Level] = [organization, *reversed(ancestry.folders)]
    return levels if document is None else [*levels, document], ancestry


class _Rungs:
    """The rungs of the levels that are there."""

    def __init__(
        self,
        view: AccessView,
        question: PermissionRequest,
        decision: Decision,
        levels: Sequence[Level],
        now: datetime,
    ) -> None:
        self._view, self._question, self._decision = view, question, decision
        self._levels, self._now = levels, now
        self._grants = [record for record in decision.trail if isinstance(record, Grant)]
        self.reached = self._find()

    def all(self) -> list[Rung]:
        """From the organization down."""
        return [self._rung(number, level) for number, level in enumerate(self._levels)]

    def _find(self) -> int | None:
        """The number of the level that decides; None: none of these does."""
        rule = self._decision.rule
        if rule in _UNDECIDED | _MISSING:
            return None
        if rule is Rule.ORGANIZATION_DISABLED or len(self._levels) == 1:
            return 0
        if self._grants:
            on = (self._grants[0].folder_id, self._grants[0].document_id)
            return next((number for number, level in enumerate(self._levels) if _ids(level) == on), None)
        typed = (n for n in reversed(range(len(self._levels))) if self._levels[n].access_type is not None)
        return next(typed, 0)

    def _rung(self, number: int, level: Level) -> Rung:
        says, state = self._says(number, level)
        kind = level.kind if level.access_type is None else f"{level.kind} · {level.access_type}"
        if isinstance(level, Organization):
            return Rung(kind, level.organization_id, level.organization_name or "", says, state)
        if isinstance(level, Folder):
            return Rung(kind, level.folder_id, level.folder_name or "", says, state)
        return Rung(kind, level.document_id, level.document_name or "", says, state)

    def _says(self, number: int, level: Level) -> tuple[str, str]:
        found, ended = self.grants_on(level), self._ended(level)
        if number == self.reached:
            # That a context is not covered is said of the context.
            allows = self._decision.has_access or self._decision.rule is Rule.CONTEXT_NOT_COVERED
            says = "grant decides" if self._grants else self._type_says()
            return f"{says}, {ended}" if ended and not self._grants else says, "allows" if allows else "denies"
        if self.reached is None or self._decision.rule is Rule.ORGANIZATION_DISABLED:
            return self._beyond(found), "beyond"
        if not self._grants:
            # Every level was looked at for a grant before the access type had its say.
            plain = "no grant, inherits type" if number > self.reached else "no grant"
            return ended or plain, "passed"
        if number > self.reached:
            return ended or f"nothing for {self._question.user_id}", "passed"
        return self._beyond(found), "beyond"

    def _type_says(self) -> str:
        rule = self._decision.rule
        if rule is Rule.ORGANIZATION_DISABLED:
            return "disabled"
        if self._question.type == "organization":
            return "member" if self._decision.has_access else "members only"
        return "access type decides"

    def grants_on(self, level: Level) -> Sequence[Grant]:
        within, user_id = self._question.organization_id, self._question.user_id
        if isinstance(level, Folder):
            return self._view.grants(within, "folder", level.folder_id, user_id)
        if isinstance(level, Document):
            return self._view.grants(within, "document", level.document_id, user_id)
        return ()

    def _ended(self, level: Level) -> str:
        ends = [grant.expires_at for grant in self.grants_on(level) if grant.expires_at is not None]
        ended = [end for end in ends if end <= self._now]
        return f"grant ended {max(ended):%-d %b %Y}" if ended else ""

    def _beyond(self, found: Sequence[Grant]) -> str:
        active = [grant for grant in found if grant.expires_at is None or grant.expires_at > self._now]
        if active:
            return f"{max(active, key=lambda grant: grant.access_role.rank).access_role} grant, not reached"
        return "not looked at"


def _gap(question: PermissionRequest, decision: Decision, levels: Sequence[Level], ancestry: Ancestry) -> list[Rung]:
    """What is missing between the organization and what is there."""
    if decision.rule is Rule.RESOURCE_UNKNOWN:
        kind = "document" if question.type == "context" else question.type
        return [Rung(kind, question.resource_id, "", "not in the directory", "denies")]
    if ancestry.obstacle is None or len(levels) < 2:
        return []
    if ancestry.obstacle is Obstacle.CYCLE:
        return [Rung("folders", "in each other", "", "a circle", "denies")]
    top = levels[1]
    above = top.parent_folder_id if isinstance(top, Folder) else getattr(top, "folder_id", "")
    return [Rung("folder", above or "", "", "not in the directory", "denies")]


def _context_rung(question: PermissionRequest, decision: Decision) -> Rung:
    fields = ", ".join(question.context or ()) or "no field"
    if decision.rule is Rule.CONTEXT_NOT_COVERED:
        return Rung("context", fields, "", f"no context grant for {', '.join(decision.uncovered)}", "denies")
    if decision.rule is Rule.CONTEXT_EMPTY:
        return Rung("context", fields, "", "names no field", "denies")
    if decision.has_access:
        return Rung("context", fields, "", "context grants cover it", "allows")
    return Rung("context", fields, "", "not looked at", "beyond")


def _leads(decision: Decision, grants: Sequence[Grant]) -> str:
    if decision.rule is Rule.CONTEXT_NOT_COVERED:
        return "no context grant"
    if grants:
        return f"{grants[0].access_role} grant"
    if decision.has_access:
        member = any(isinstance(record, Membership) for record in decision.trail)
        return f"{decision.access_role} as a member" if member else f"{decision.access_role}, public"
    return {
        Rule.RESTRICTED: "no grant",
        Rule.NOT_A_MEMBER: "no member",
        Rule.ORGANIZATION_DISABLED: "disabled",
        Rule.CONTEXT_EMPTY: "no context",
    }.get(decision.rule, "")


def _ids(level: Level) -> tuple[str | None, str | None]:
    if isinstance(level, Folder):
        return level.folder_id, None
    return (None, level.document_id) if isinstance(level, Document) else (None, None)
