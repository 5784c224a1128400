"""The ladder of a decision: the levels from the organization down to the resource, and how the decision uses each.

Explain shows it as a diagram. The deciding level is emphasized. Levels below it have no grant that decides; levels
above it were not checked. A grant above the deciding level is shown as not reached, because operators ask why it has no
effect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Literal, NamedTuple

from app.access.browse.lookup import name_of
from app.access.decision.ancestry import Ancestry, Obstacle
from app.access.decision.decide import Decision, QuestionLike, Rule
from app.access.decision.view import AccessView
from app.access.records import Document, Folder, Grant, Membership, Organization
from app.access.records import Level as RecordLevel
from app.service.console.names import RecordNames

Level = Organization | Folder | Document

# The words for these keys are in ``ladder.html`` and ``explain.html``.
RungUse = Literal[
    "grant",
    "type",
    "disabled",
    "member",
    "members",
    "unchecked",
    "unreached",
    "ended",
    "none",
    "inherits",
    "nothing",
    "unknown",
    "cycle",
    "uncovered",
    "empty",
    "covered",
]
"""How the decision uses a level."""
RungState = Literal["allows", "denies", "passed", "beyond"]
"""Of a level. ``passed``: checked without effect. ``beyond``: not checked."""
Link = Literal["", "grant", "member", "public", "no grant", "no member", "no context", "no context grant", "disabled"]
"""What leads from the user to the deciding level, or is missing."""
UserProblem = Literal["", "unknown", "disabled"]
"""Why the user is denied everywhere. Empty: they are not."""
UnusedReason = Literal["beside", "above", "unchecked", "ended"]
"""Why a record did not decide."""

_WITHOUT_LEVEL = frozenset({Rule.USER_UNKNOWN, Rule.USER_DISABLED, Rule.CONTEXT_EMPTY})
"""Rules that deny before any level is checked."""
_USER_PROBLEMS: Mapping[Rule, UserProblem] = {Rule.USER_UNKNOWN: "unknown", Rule.USER_DISABLED: "disabled"}
_MISSING_LINKS: Mapping[Rule, Link] = {
    Rule.RESTRICTED: "no grant",
    Rule.NOT_A_MEMBER: "no member",
    Rule.ORGANIZATION_DISABLED: "disabled",
    Rule.CONTEXT_EMPTY: "no context",
}
_MISSING = frozenset({Rule.RESOURCE_UNKNOWN, Rule.FOLDER_UNKNOWN, Rule.FOLDER_CYCLE})
"""Rules that deny because a level is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One level: the organization, a folder, the document, or the context within it."""

    kind: str
    item_id: str = ""
    name: str = ""
    use: RungUse = "unchecked"
    state: RungState = "beyond"
    access_type: str = ""
    """Its own access type. Empty: it is inherited."""
    ended: datetime | None = None
    """When the user's last grant on it ended."""
    about: str = ""
    """The role of a grant that was not reached, or the fields of a context that no grant covers."""


class NamedRecord(NamedTuple):
    item_id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The levels from the organization down, and the chain from the user to the deciding level."""

    rungs: Sequence[Rung]
    user: NamedRecord
    groups: Sequence[NamedRecord]
    """From the user to the group that has the grant."""
    link: Link
    role: str
    """The user's role by the link."""
    user_problem: UserProblem
    allows: bool

    @property
    def deciding(self) -> int | None:
        """The index of the rung that decides: the one that denies, else the one that allows."""
        for state in ("denies", "allows"):
            for number, rung in enumerate(self.rungs):
                if rung.state == state:
                    return number
        return None


def make_ladder(
    view: AccessView, question: QuestionLike, decision: Decision, now: datetime, *, names: RecordNames
) -> Ladder | None:
    """The ladder of a decision. None: the organization is unknown, so there is no level."""
    organization = view.organization(question.organization_id)
    if organization is None:
        return None
    records, ancestry = _levels(view, question, organization)
    levels = _Levels(view, question, decision, records, now)
    rungs, grants = levels.rungs(), levels.grants
    rungs[1:1] = _missing_level(question, decision, records, ancestry)
    if question.type == "context":
        rungs.append(_context_rung(question, decision))
    groups: list[NamedRecord] = []
    if grants and grants[0].organization_user_group_id is not None:
        path = view.group_path(question.organization_id, question.user_id, grants[0].organization_user_group_id)
        ids = [member.organization_user_group_id for member in path]
        groups = [NamedRecord(group_id, names("group", question.organization_id, group_id)) for group_id in ids]
    return Ladder(
        rungs=rungs,
        user=NamedRecord(question.user_id, names("user", "", question.user_id)),
        groups=groups,
        link=_link(decision, grants),
        role=str(grants[0].access_role if grants else decision.access_role or ""),
        user_problem=_USER_PROBLEMS.get(decision.rule, ""),
        allows=decision.has_access,
    )


def unused_records(
    view: AccessView, question: QuestionLike, decision: Decision, now: datetime
) -> list[tuple[Grant | Membership, UnusedReason]]:
    """The user's grants and membership that did not decide, the nearest first, each with the reason."""
    organization = view.organization(question.organization_id)
    if organization is None or decision.rule in _WITHOUT_LEVEL:
        return []
    records, _ = _levels(view, question, organization)
    levels = _Levels(view, question, decision, records, now)
    unused: list[tuple[Grant | Membership, UnusedReason]] = []
    for number in reversed(range(len(records))):
        reason: UnusedReason = "beside" if number == levels.deciding else "above"
        unused += [(grant, reason) for grant in levels.grants_on(records[number]) if grant not in decision.trail]
    membership = view.membership(question.organization_id, question.user_id)
    if membership is not None and membership not in decision.trail:
        unused.append((membership, "unchecked"))
    return [
        (record, "ended" if record.expires_at is not None and record.expires_at <= now else otherwise)
        for record, otherwise in unused
    ]


def _levels(view: AccessView, question: QuestionLike, organization: Organization) -> tuple[list[Level], Ancestry]:
    """The existing levels from the organization down, and the ancestry of the resource's folder."""
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


@dataclass(frozen=True)
class _Levels:
    """The existing levels, and how the decision uses them."""

    view: AccessView
    question: QuestionLike
    decision: Decision
    levels: Sequence[Level]
    now: datetime

    @cached_property
    def grants(self) -> list[Grant]:
        """The grants that decide."""
        return [record for record in self.decision.trail if isinstance(record, Grant)]

    def rungs(self) -> list[Rung]:
        """A rung for each level, from the organization down."""
        return [self._rung(number, level) for number, level in enumerate(self.levels)]

    def grants_on(self, level: Level) -> Sequence[Grant]:
        if isinstance(level, Organization):
            return ()
        kind: RecordLevel = "folder" if isinstance(level, Folder) else "document"
        return self.view.grants(self.question.organization_id, kind, level.key[-1], self.question.user_id)

    @cached_property
    def deciding(self) -> int | None:
        """The index of the level that decides. None: none of them does."""
        rule = self.decision.rule
        if rule in _WITHOUT_LEVEL | _MISSING:
            return None
        if rule is Rule.ORGANIZATION_DISABLED or len(self.levels) == 1:
            return 0
        if self.grants:
            on = self.grants[0]
            key = (Folder.kind, on.folder_id) if on.document_id is None else (Document.kind, on.document_id)
            keys = [(level.kind, level.key[-1]) for level in self.levels]
            return keys.index(key) if key in keys else None
        numbers = reversed(range(len(self.levels)))
        return next((number for number in numbers if self.levels[number].access_type is not None), 0)

    def _rung(self, number: int, level: Level) -> Rung:
        own_type = "" if level.access_type is None else level.access_type.value
        rung = Rung(
            kind=level.kind,
            item_id=level.key[-1],
            name=name_of(level),
            access_type=own_type,
            ended=self._ended(level),
        )
        if number == self.deciding:
            # An uncovered context is denied on its own rung, below a level that allows.
            allows = self.decision.has_access or self.decision.rule is Rule.CONTEXT_NOT_COVERED
            use: RungUse = "grant" if self.grants else self._type_use()
            return replace(rung, use=use, state="allows" if allows else "denies")
        if self.deciding is None or self.decision.rule is Rule.ORGANIZATION_DISABLED:
            return self._unchecked(rung, level)
        if not self.grants:
            # All levels are checked for grants before the access type decides.
            use = "ended" if rung.ended else "inherits" if number > self.deciding else "none"
            return replace(rung, use=use, state="passed")
        if number > self.deciding:
            return replace(rung, use="ended" if rung.ended else "nothing", state="passed")
        return self._unchecked(rung, level)

    def _type_use(self) -> RungUse:
        if self.decision.rule is Rule.ORGANIZATION_DISABLED:
            return "disabled"
        if self.question.type == "organization":
            return "member" if self.decision.has_access else "members"
        return "type"

    def _ended(self, level: Level) -> datetime | None:
        ends = [grant.expires_at for grant in self.grants_on(level) if grant.expires_at is not None]
        return max((end for end in ends if end <= self.now), default=None)

    def _unchecked(self, rung: Rung, level: Level) -> Rung:
        grants = self.grants_on(level)
        active = [grant for grant in grants if grant.expires_at is None or grant.expires_at > self.now]
        if not active:
            return rung
        role = max(active, key=lambda grant: grant.access_role.rank).access_role
        return replace(rung, use="unreached", about=role.value)


def _missing_level(
    question: QuestionLike, decision: Decision, levels: Sequence[Level], ancestry: Ancestry
) -> list[Rung]:
    """The level that is missing between the organization and the existing levels, if any."""
    if decision.rule is Rule.RESOURCE_UNKNOWN:
        kind = "document" if question.type == "context" else question.type
        return [Rung(kind=kind, item_id=question.resource_id, use="unknown", state="denies")]
    if ancestry.obstacle is None or len(levels) < 2:
        return []
    if ancestry.obstacle is Obstacle.CYCLE:
        return [Rung(kind="folders", use="cycle", state="denies")]
    top = levels[1]
    above = top.parent_folder_id if isinstance(top, Folder) else getattr(top, "folder_id", "")
    return [Rung(kind="folder", item_id=above or "", use="unknown", state="denies")]


def _context_rung(question: QuestionLike, decision: Decision) -> Rung:
    rung = Rung(kind="context", item_id=", ".join(question.context or ()))
    if decision.rule is Rule.CONTEXT_NOT_COVERED:
        return replace(rung, use="uncovered", state="denies", about=", ".join(decision.uncovered))
    if decision.rule is Rule.CONTEXT_EMPTY:
        return replace(rung, use="empty", state="denies")
    return replace(rung, use="covered", state="allows") if decision.has_access else rung


def _link(decision: Decision, grants: Sequence[Grant]) -> Link:
    if decision.rule is Rule.CONTEXT_NOT_COVERED:
        return "no context grant"
    if grants:
        return "grant"
    if decision.has_access:
        return "member" if any(isinstance(record, Membership) for record in decision.trail) else "public"
    return _MISSING_LINKS.get(decision.rule, "")
