"""The ladder of a decision: the levels from the organization down to the resource, and how the decision uses each.

Explain shows it as a diagram. The deciding level is emphasized. Levels below it have no grant that decides; levels
above it were not checked. A grant above the deciding level is shown as not reached, because operators ask why it has no
effect.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.access.browse.lookup import name_of
from app.access.decision.ancestry import Ancestry, Obstacle
from app.access.decision.decide import Decision, PermissionRequest, Rule
from app.access.decision.view import AccessView
from app.access.records import Document, Folder, Grant, Membership, Organization
from app.access.records import Level as RecordLevel
from app.service.console.names import RecordNames

Level = Organization | Folder | Document

_WITHOUT_LEVEL = frozenset({Rule.USER_UNKNOWN, Rule.USER_DISABLED, Rule.CONTEXT_EMPTY})
"""Rules that deny before any level is checked."""
_MISSING = frozenset({Rule.RESOURCE_UNKNOWN, Rule.FOLDER_UNKNOWN, Rule.FOLDER_CYCLE})


@dataclass(frozen=True, slots=True)
class Rung:
    """One level: the organization, a folder, the document, or the context within it."""

    kind: str
    item_id: str
    name: str
    note: str
    """How the decision uses the level, such as ``not checked`` or ``grant decides``."""
    state: str
    """allows, denies, passed (checked without effect) or beyond (not checked)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The levels from the organization down, and the chain from the user to the deciding level."""

    rungs: Sequence[Rung]
    user: tuple[str, str]
    """Id and name."""
    groups: Sequence[tuple[str, str]]
    """From the user to the group that has the grant: id and name of each."""
    link: str
    """The label of the arrow to the deciding level: ``viewer grant``, ``no grant``, ``editor as a member``."""
    user_problem: str
    """Why the user is denied everywhere; empty: they are not."""
    reason: str
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
    view: AccessView,
    entry: PermissionRequest,
    decision: Decision,
    reason: str,
    now: datetime,
    *,
    names: RecordNames,
) -> Ladder | None:
    """The ladder of a decision. None: the organization is unknown, so there is no level."""
    organization = view.organization(entry.organization_id)
    if organization is None:
        return None
    user_name = names("user", "", entry.user_id)
    levels, ancestry = _levels(view, entry, organization)
    grants = [record for record in decision.trail if isinstance(record, Grant)]
    rungs = _Levels(view, entry, decision, levels, now, user_name=user_name).rungs()
    rungs[1:1] = _missing_level(entry, decision, levels, ancestry)
    if entry.type == "context":
        rungs.append(_context_rung(entry, decision))
    groups: tuple[tuple[str, str], ...] = ()
    if grants and grants[0].organization_user_group_id is not None:
        path = view.group_path(entry.organization_id, entry.user_id, grants[0].organization_user_group_id)
        ids = [member.organization_user_group_id for member in path]
        groups = tuple((one, names("group", entry.organization_id, one)) for one in ids)
    return Ladder(
        rungs=rungs,
        user=(entry.user_id, user_name),
        groups=groups,
        link=_link(decision, grants),
        user_problem={Rule.USER_UNKNOWN: "not in the directory", Rule.USER_DISABLED: "disabled"}.get(decision.rule, ""),
        reason=reason,
        allows=decision.has_access,
    )


def unused_records(
    view: AccessView, entry: PermissionRequest, decision: Decision, now: datetime
) -> list[tuple[Grant | Membership, str]]:
    """The user's grants and membership that did not decide, the nearest first, each with the reason."""
    organization = view.organization(entry.organization_id)
    if organization is None or decision.rule in _WITHOUT_LEVEL:
        return []
    records, _ = _levels(view, entry, organization)
    levels = _Levels(view, entry, decision, records, now)
    unused: list[tuple[Grant | Membership, str]] = []
    for number in reversed(range(len(records))):
        reason = "another grant on the same level decides" if number == levels.deciding else "above the deciding level"
        unused += [(grant, reason) for grant in levels.grants_on(records[number]) if grant not in decision.trail]
    membership = view.membership(entry.organization_id, entry.user_id)
    if membership is not None and membership not in decision.trail:
        unused.append((membership, "not checked: a grant or the access type decides"))
    return [
        (
            record,
            f"ended {record.expires_at:%-d %b %Y}"
            if record.expires_at is not None and record.expires_at <= now
            else reason,
        )
        for record, reason in unused
    ]


def _levels(view: AccessView, entry: PermissionRequest, organization: Organization) -> tuple[list[Level], Ancestry]:
    """The existing levels from the organization down, and the ancestry of the resource's folder."""
    if entry.type == "organization":
        return [organization], Ancestry()
    document = None
    folder_id: str | None = entry.resource_id
    if entry.type != "folder":
        document = view.document(entry.organization_id, entry.resource_id)
        folder_id = None if document is None else document.folder_id
    ancestry = Ancestry() if folder_id is None else view.ancestry_of(entry.organization_id, folder_id)
    levels: list[Level] = [organization, *reversed(ancestry.folders)]
    return levels if document is None else [*levels, document], ancestry


class _Levels:
    """The existing levels, and how the decision uses them."""

    def __init__(
        self,
        view: AccessView,
        entry: PermissionRequest,
        decision: Decision,
        levels: Sequence[Level],
        now: datetime,
        *,
        user_name: str = "",
    ) -> None:
        self._view, self._entry, self._decision = view, entry, decision
        self._user_name = user_name or entry.user_id
        self._levels, self._now = levels, now
        self._grants = [record for record in decision.trail if isinstance(record, Grant)]
        self.deciding = self._find_deciding()

    def rungs(self) -> list[Rung]:
        """A rung for each level, from the organization down."""
        return [self._rung(number, level) for number, level in enumerate(self._levels)]

    def grants_on(self, level: Level) -> Sequence[Grant]:
        """The user's grants on a level."""
        if isinstance(level, Organization):
            return ()
        kind: RecordLevel = "folder" if isinstance(level, Folder) else "document"
        return self._view.grants(self._entry.organization_id, kind, level.key[-1], self._entry.user_id)

    def _find_deciding(self) -> int | None:
        """The index of the level that decides. None: none of them does."""
        rule = self._decision.rule
        if rule in _WITHOUT_LEVEL | _MISSING:
            return None
        if rule is Rule.ORGANIZATION_DISABLED or len(self._levels) == 1:
            return 0
        if self._grants:
            on = (self._grants[0].folder_id, self._grants[0].document_id)
            return next((number for number, level in enumerate(self._levels) if _ids(level) == on), None)
        typed = (n for n in reversed(range(len(self._levels))) if self._levels[n].access_type is not None)
        return next(typed, 0)

    def _rung(self, number: int, level: Level) -> Rung:
        note, state = self._note(number, level)
        kind = level.kind if level.access_type is None else f"{level.kind} · {level.access_type}"
        return Rung(kind, level.key[-1], name_of(level), note, state)

    def _note(self, number: int, level: Level) -> tuple[str, str]:
        """The note and the state of a level."""
        ended = self._ended(level)
        if number == self.deciding:
            # An uncovered context is denied on its own rung, below a level that allows.
            allows = self._decision.has_access or self._decision.rule is Rule.CONTEXT_NOT_COVERED
            note = "grant decides" if self._grants else self._type_note()
            return f"{note}, {ended}" if ended and not self._grants else note, "allows" if allows else "denies"
        if self.deciding is None or self._decision.rule is Rule.ORGANIZATION_DISABLED:
            return self._unchecked_note(level), "beyond"
        if not self._grants:
            # All levels are checked for grants before the access type decides.
            inherits = "no grant, inherits type" if number > self.deciding else "no grant"
            return ended or inherits, "passed"
        if number > self.deciding:
            return ended or f"nothing for {self._user_name}", "passed"
        return self._unchecked_note(level), "beyond"

    def _type_note(self) -> str:
        if self._decision.rule is Rule.ORGANIZATION_DISABLED:
            return "disabled"
        if self._entry.type == "organization":
            return "member" if self._decision.has_access else "members only"
        return "access type decides"

    def _ended(self, level: Level) -> str:
        ends = [grant.expires_at for grant in self.grants_on(level) if grant.expires_at is not None]
        ended = [end for end in ends if end <= self._now]
        return f"grant ended {max(ended):%-d %b %Y}" if ended else ""

    def _unchecked_note(self, level: Level) -> str:
        grants = self.grants_on(level)
        active = [grant for grant in grants if grant.expires_at is None or grant.expires_at > self._now]
        if active:
            return f"{max(active, key=lambda grant: grant.access_role.rank).access_role} grant, not reached"
        return "not checked"


def _missing_level(
    entry: PermissionRequest, decision: Decision, levels: Sequence[Level], ancestry: Ancestry
) -> list[Rung]:
    """The level that is missing between the organization and the existing levels, if any."""
    if decision.rule is Rule.RESOURCE_UNKNOWN:
        kind = "document" if entry.type == "context" else entry.type
        return [Rung(kind, entry.resource_id, "", "not in the directory", "denies")]
    if ancestry.obstacle is None or len(levels) < 2:
        return []
    if ancestry.obstacle is Obstacle.CYCLE:
        return [Rung("folders", "in each other", "", "a cycle", "denies")]
    top = levels[1]
    above = top.parent_folder_id if isinstance(top, Folder) else getattr(top, "folder_id", "")
    return [Rung("folder", above or "", "", "not in the directory", "denies")]


def _context_rung(entry: PermissionRequest, decision: Decision) -> Rung:
    fields = ", ".join(entry.context or ()) or "no field"
    if decision.rule is Rule.CONTEXT_NOT_COVERED:
        return Rung("context", fields, "", f"no context grant for {', '.join(decision.uncovered)}", "denies")
    if decision.rule is Rule.CONTEXT_EMPTY:
        return Rung("context", fields, "", "has no field", "denies")
    if decision.has_access:
        return Rung("context", fields, "", "context grants cover it", "allows")
    return Rung("context", fields, "", "not checked", "beyond")


def _link(decision: Decision, grants: Sequence[Grant]) -> str:
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
