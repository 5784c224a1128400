"""The ladder of a decision: who asks on the left, the levels from the organization down on the right, and what leads
from one to the other.

The ladder is always whole. The level that decides is thick; those nearer to what is asked for were passed and say why;
those farther up were not looked at, and say so, also where a grant stands there: that is the question with which people
come.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from markupsafe import Markup

from app.access.ancestry import Ancestry
from app.access.decide import Decision, PermissionRequest, Rule
from app.access.records import Document, Folder, Grant, Organization
from app.access.view import AccessView
from app.console.frame.words import visible

_LEVEL_WIDTH, _LEVEL_HEIGHT, _GAP = 320, 46, 18
_BOX_WIDTH, _BOX_NARROW = 150, 110
_WIDTH = 960
_NAME_CHARACTERS = 34
_MOST_GROUPS = 4


@dataclass(frozen=True, slots=True)
class Rung:
    """One level: the organization, a folder or the document."""

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
    grant: str = ""
    """``viewer grant``; empty: no grant decides."""
    reason: str = ""
    allows: bool = False

    @property
    def deciding(self) -> int | None:
        """The number of the rung that decides; None: none does."""
        return next((number for number, rung in enumerate(self.rungs) if rung.state in {"allows", "denies"}), None)


def make_ladder(
    view: AccessView, question: PermissionRequest, decision: Decision, reason: str, now: datetime
) -> Ladder | None:
    """The ladder of this decision; None where there are no levels to show: the organization or what is asked for is
    unknown."""
    organization = view.organization(question.organization_id)
    if organization is None:
        return None
    user = view.user(question.user_id)
    levels = _levels(view, question)
    grants = [record for record in decision.trail if isinstance(record, Grant)]
    reached = _reached(levels, organization, decision, grants)
    rungs = []
    for number, level in enumerate(levels):
        found = _grants_on(view, question, level)
        if number == reached:
            state = "allows" if decision.has_access else "denies"
            says = "grant decides" if grants else _type_says(level, found, now)
        elif reached is not None and number > reached:
            state, says = "passed", _passed(found, question.user_id, now)
        else:
            state, says = "beyond", _beyond(found, now)
        rungs.append(_rung(level, says, state))
    groups: tuple[str, ...] = ()
    if grants and grants[0].organization_user_group_id is not None:
        path = view.group_path(question.organization_id, question.user_id, grants[0].organization_user_group_id)
        groups = tuple(member.organization_user_group_id for member in path)
    return Ladder(
        rungs,
        question.user_id,
        "" if user is None else user.name or "",
        groups,
        f"{grants[0].access_role} grant" if grants else "",
        reason,
        decision.has_access,
    )


Level = Organization | Folder | Document


def _levels(view: AccessView, question: PermissionRequest) -> list[Level]:
    """From the organization down."""
    organization = view.organization(question.organization_id)
    levels: list[Level] = [] if organization is None else [organization]
    if question.type == "organization":
        return levels
    document = None
    folder_id: str | None = question.resource_id
    if question.type != "folder":
        document = view.document(question.organization_id, question.resource_id)
        folder_id = None if document is None else document.folder_id
    ancestry = Ancestry() if folder_id is None else view.ancestry_of(question.organization_id, folder_id)
    levels += reversed(ancestry.folders)
    if document is not None:
        levels.append(document)
    return levels


def _reached(
    levels: Sequence[Level], organization: Organization, decision: Decision, grants: Sequence[Grant]
) -> int | None:
    """The number of the level that decides."""
    if decision.rule in {
        Rule.USER_UNKNOWN,
        Rule.USER_DISABLED,
        Rule.RESOURCE_UNKNOWN,
        Rule.FOLDER_UNKNOWN,
        Rule.FOLDER_CYCLE,
    }:
        return None
    if decision.rule in {Rule.MEMBER, Rule.NOT_A_MEMBER, Rule.ORGANIZATION_DISABLED} and len(levels) == 1:
        return 0
    if decision.rule is Rule.ORGANIZATION_DISABLED:
        return 0
    if grants:
        on = (grants[0].folder_id, grants[0].document_id)
        return next((number for number, level in enumerate(levels) if _ids(level) == on), None)
    nearest = next((number for number in reversed(range(len(levels))) if levels[number].access_type is not None), None)
    return 0 if nearest is None and levels and levels[0] is organization else nearest


def _ids(level: Level) -> tuple[str | None, str | None]:
    if isinstance(level, Folder):
        return level.folder_id, None
    return (None, level.document_id) if isinstance(level, Document) else (None, None)


def _grants_on(view: AccessView, question: PermissionRequest, level: Level) -> Sequence[Grant]:
    if isinstance(level, Folder):
        return view.grants(question.organization_id, "folder", level.folder_id, question.user_id)
    if isinstance(level, Document):
        return view.grants(question.organization_id, "document", level.document_id, question.user_id)
    return ()


def _type_says(level: Level, grants: Sequence[Grant], now: datetime) -> str:
    says = f"{level.access_type} decides" if level.access_type is not None else "decides"
    ended = _ended(grants, now)
    return f"{says}, {ended}" if ended else says


def _passed(grants: Sequence[Grant], user_id: str, now: datetime) -> str:
    return _ended(grants, now) or f"nothing for {_cut(user_id, 18)}"


def _ended(grants: Sequence[Grant], now: datetime) -> str:
    ended = [grant.expires_at for grant in grants if grant.expires_at is not None and grant.expires_at <= now]
    return f"grant ended {max(ended):%-d %b %Y}" if ended else ""


def _beyond(grants: Sequence[Grant], now: datetime) -> str:
    active = [grant for grant in grants if grant.expires_at is None or grant.expires_at > now]
    if active:
        return f"{max(active, key=lambda grant: grant.access_role.rank).access_role} grant, not reached"
    return "not looked at"


def _rung(level: Level, says: str, state: str) -> Rung:
    kind = level.kind if level.access_type is None else f"{level.kind} · {level.access_type}"
    if isinstance(level, Organization):
        return Rung(kind, level.organization_id, level.organization_name or "", says, state)
    if isinstance(level, Folder):
        return Rung(kind, level.folder_id, level.folder_name or "", says, state)
    return Rung(kind, level.document_id, level.document_name or "", says, state)


def draw(ladder: Ladder) -> Markup:
    """It as SVG, by attributes and classes alone; what it says stands in its description, too."""
    height = len(ladder.rungs) * (_LEVEL_HEIGHT + _GAP)
    left = _WIDTH - _LEVEL_WIDTH - 1
    deciding = ladder.deciding
    middle = (deciding if deciding is not None else len(ladder.rungs) - 1) * (_LEVEL_HEIGHT + _GAP) + _LEVEL_HEIGHT / 2
    parts = [_draw_rung(rung, left, number * (_LEVEL_HEIGHT + _GAP) + 1) for number, rung in enumerate(ladder.rungs)]
    parts += [
        Markup('<line x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>').format(
            left + _LEVEL_WIDTH / 2,
            number * (_LEVEL_HEIGHT + _GAP) + _LEVEL_HEIGHT + 1,
            (number + 1) * (_LEVEL_HEIGHT + _GAP) + 1,
        )
        for number in range(len(ladder.rungs) - 1)
    ]
    parts.append(_draw_chain(ladder, left, middle))
    return Markup(
        '<svg class="ladder" role="img" viewBox="0 0 {} {}"><title>The way to the decision</title>'
        "<desc>{}</desc>{}</svg>"
    ).format(_WIDTH, max(height, _LEVEL_HEIGHT + 2), visible(ladder.reason), Markup("").join(parts))


def _draw_rung(rung: Rung, x: float, y: float) -> Markup:
    name = rung.name or rung.item_id
    shown_id = "" if name == rung.item_id else rung.item_id
    room = _NAME_CHARACTERS - len(_cut(name, _NAME_CHARACTERS))
    return Markup(
        '<g class="level {state}"><title>{kind} {id}{name}</title>'
        '<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="5"/>'
        '<text class="tiny" x="{tx}" y="{first}">{kind}</text>'
        '<text class="note" x="{end}" y="{first}" text-anchor="end">{says}</text>'
        '<text x="{tx}" y="{second}">{shown}<tspan class="mono muted" dx="8">{shown_id}</tspan></text></g>'
    ).format(
        state=rung.state,
        kind=rung.kind,
        id=visible(rung.item_id),
        name=f" {visible(rung.name)}" if rung.name else "",
        x=x,
        y=y,
        w=_LEVEL_WIDTH,
        h=_LEVEL_HEIGHT,
        tx=x + 12,
        end=x + _LEVEL_WIDTH - 12,
        first=y + 18,
        second=y + 36,
        says=visible(rung.says),
        shown=_cut(name, _NAME_CHARACTERS),
        shown_id=_cut(shown_id, max(room, 8)),
    )


def _draw_chain(ladder: Ladder, left: float, middle: float) -> Markup:
    groups = list(ladder.groups)
    if len(groups) > _MOST_GROUPS:
        groups = [groups[0], f"{len(groups) - 2} more", groups[-1]]
    boxes = [("user", ladder.user_name or ladder.user_id), *(("group", group) for group in groups)]
    narrow = len(boxes) > 2
    width = _BOX_NARROW if narrow else _BOX_WIDTH
    room = left - 130
    step = min(width + 40, (room - width) / max(len(boxes) - 1, 1)) if len(boxes) > 1 else 0
    leads = bool(ladder.grant) and ladder.allows
    parts = []
    for number, (kind, name) in enumerate(boxes):
        x = 1 + number * step
        parts.append(
            Markup(
                '<g><title>{kind} {whole}</title><rect x="{x:.0f}" y="{y:.0f}" width="{w}" height="46" rx="5"/>'
                '<text class="tiny" x="{tx:.0f}" y="{first:.0f}">{kind}</text>'
                '<text x="{tx:.0f}" y="{second:.0f}">{shown}</text></g>'
            ).format(
                kind=kind,
                whole=visible(name),
                x=x,
                y=middle - 23,
                w=width,
                tx=x + 10,
                first=middle - 5,
                second=middle + 13,
                shown=_cut(name, 14 if narrow else 20),
            )
        )
        if number:
            parts.append(_arrow(x - step + width, x, middle, "leads" if leads else "", "in"))
    end = 1 + (len(boxes) - 1) * step + width
    if ladder.deciding is not None:
        tone = "leads" if leads or ladder.allows else "none"
        says = ladder.grant or ("let in" if ladder.allows else "no grant")
        parts.append(_arrow(end, left, middle, tone, says))
    return Markup("").join(parts)


def _arrow(begin: float, end: float, y: float, tone: str, says: str) -> Markup:
    return Markup(
        '<path class="{tone}" d="M{begin:.0f} {y:.0f}H{end:.0f}m-6 -4 6 4-6 4"/>'
        '<text class="tiny {tone}-note" x="{x:.0f}" y="{above:.0f}" text-anchor="middle">{says}</text>'
    ).format(tone=tone, begin=begin, end=end, y=y, x=(begin + end) / 2, above=y - 7, says=says)


def _cut(text: str, characters: int) -> str:
    shown = visible(text)
    return shown if len(shown) <= characters else f"{shown[: characters - 1]}…"
