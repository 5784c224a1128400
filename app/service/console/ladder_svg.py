"""Draws a ladder as SVG, with attributes and classes only. The description contains the reason as text."""

from itertools import pairwise
from unicodedata import east_asian_width

from markupsafe import Markup

from app.service.console.formatting import visible
from app.service.console.ladder import Ladder, Rung

_WIDTH = 1080
_LEVEL_WIDTH, _LEVEL_HEIGHT, _GAP = 380, 46, 18
_TOP = 26
"""The top of the first level, below the headings of the columns."""
_BOX_WIDTH = 190
_LAST_GAP = 130
"""The space for the label of the arrow to the deciding level."""
_MAX_GROUPS = 4
_TEXT, _SMALL, _MONO = 13.0, 11.5, 12.0
_PADDING = 12
_NARROW, _BROAD = frozenset("fijlrtI.,:;'|!()[] -"), frozenset("mwMW@%")


def draw_ladder(ladder: Ladder) -> Markup:
    """The whole SVG element."""
    left = _WIDTH - _LEVEL_WIDTH - 1
    tops = [_TOP + number * (_LEVEL_HEIGHT + _GAP) for number in range(len(ladder.rungs))]
    height = tops[-1] + _LEVEL_HEIGHT + 1
    deciding = len(ladder.rungs) - 1 if ladder.deciding is None else ladder.deciding
    parts = [_heading(1, "The user, and the groups with the grant" if ladder.groups else "The user")]
    parts.append(_heading(left, "The resource, from the organization down"))
    parts += [
        Markup('<line x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>').format(
            left + _LEVEL_WIDTH / 2, above + _LEVEL_HEIGHT, below
        )
        for above, below in pairwise(tops)
    ]
    parts += [_rung(rung, left, top) for rung, top in zip(ladder.rungs, tops, strict=True)]
    parts.append(_chain(ladder, left, tops[deciding] + _LEVEL_HEIGHT / 2))
    return Markup(
        '<svg class="ladder" role="img" viewBox="0 0 {} {}"><title>The path to the decision</title>'
        "<desc>{}</desc>{}</svg>"
    ).format(_WIDTH, height, visible(ladder.reason), Markup("").join(parts))


def cut(text: str, room: float, size: float, *, mono: bool = False) -> str:
    """Shortens a text with an ellipsis to a width in pixels."""
    shown = visible(text)
    if _measure(shown, size, mono=mono) <= room:
        return shown
    room -= size
    end = 0
    for end, character in enumerate(shown):  # noqa: B007 - used after the loop
        room -= _measure(character, size, mono=mono)
        if room < 0:
            break
    return f"{shown[:end]}…"


def _measure(text: str, size: float, *, mono: bool = False) -> float:
    """The approximate width of a text. Fonts differ, so it is rather too wide than too narrow."""
    if mono:
        return sum(2 if east_asian_width(character) in "WF" else 1 for character in text) * size * 0.61
    return sum(_relative_width(character) for character in text) * size


def _relative_width(character: str) -> float:
    if east_asian_width(character) in "WF":
        return 1.0
    if character in _NARROW:
        return 0.36
    if character in _BROAD:
        return 0.92
    return 0.7 if character.isupper() else 0.58


def _heading(x: float, text: str) -> Markup:
    return Markup('<text class="tiny" x="{}" y="12">{}</text>').format(x, text)


def _rung(rung: Rung, x: float, y: float) -> Markup:
    name = rung.name or rung.item_id
    room = _LEVEL_WIDTH - 2 * _PADDING
    shown_id = rung.item_id if rung.name and rung.name != rung.item_id else ""
    note = cut(rung.note, room - _measure(rung.kind, _SMALL) - 16, _SMALL)
    # Names may be equal, so the id keeps at least a third of the width.
    shown = cut(name, room * 2 / 3 if shown_id else room, _TEXT, mono=not rung.name)
    remaining = room - _measure(shown, _TEXT) - 8
    return Markup(
        '<g class="level {state}"><title>{kind} {whole}: {whole_note}</title>'
        '<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="5"/>'
        '<text class="tiny" x="{tx}" y="{first}">{kind}</text>'
        '<text class="note" x="{end}" y="{first}" text-anchor="end">{note}</text>'
        '<text{mono} x="{tx}" y="{second}">{shown}{id}</text></g>'
    ).format(
        state=rung.state,
        kind=rung.kind,
        whole=visible(f"{rung.name} {rung.item_id}" if shown_id else name),
        whole_note=visible(rung.note),
        x=x,
        y=y,
        w=_LEVEL_WIDTH,
        h=_LEVEL_HEIGHT,
        tx=x + _PADDING,
        end=x + _LEVEL_WIDTH - _PADDING,
        first=y + 18,
        second=y + 36,
        note=note,
        mono=Markup("") if rung.name else Markup(' class="id"'),
        shown=shown,
        id=Markup('<tspan class="id" dx="8">{}</tspan>').format(cut(shown_id, remaining, _MONO, mono=True))
        if shown_id
        else "",
    )


def _chain(ladder: Ladder, left: float, middle: float) -> Markup:
    """The boxes and arrows from the user through groups to the deciding level."""
    boxes = [("user", ladder.user_name or ladder.user_id, f"{ladder.user_name} {ladder.user_id}".strip())]
    boxes += [("group", group, group) for group in ladder.groups]
    if len(ladder.groups) > _MAX_GROUPS:
        inner = ladder.groups[1:-1]
        boxes[2:-1] = [("groups", f"{len(inner)} more", ", ".join(inner))]
    gap = 40 if len(boxes) < 4 else 28
    width = min(_BOX_WIDTH, (left - _LAST_GAP - gap * (len(boxes) - 1)) / len(boxes))
    tone = "leads" if ladder.allows else ""
    parts = []
    for number, (kind, name, whole) in enumerate(boxes):
        x = 1 + number * (width + gap)
        problem = ladder.user_problem if not number else ""
        parts.append(
            Markup(
                '<g class="who{state}"><title>{kind} {whole}</title>'
                '<rect x="{x:.0f}" y="{y:.0f}" width="{w:.0f}" height="46" rx="5"/>'
                '<text class="tiny" x="{tx:.0f}" y="{first:.0f}">{label}</text>'
                '<text x="{tx:.0f}" y="{second:.0f}">{shown}</text></g>'
            ).format(
                state=" denies" if problem else "",
                kind=kind,
                label=f"{kind} · {problem}" if problem else kind,
                whole=visible(whole),
                x=x,
                y=middle - 23,
                w=width,
                tx=x + 10,
                first=middle - 5,
                second=middle + 13,
                shown=cut(name, width - 20, _TEXT),
            )
        )
        if number:
            parts.append(_arrow(x - gap, x, middle, tone, "in"))
    end = 1 + len(boxes) * (width + gap) - gap
    if ladder.deciding is not None and ladder.link:
        parts.append(_arrow(end, left, middle, tone or "none", ladder.link))
    return Markup("").join(parts)


def _arrow(begin: float, end: float, y: float, tone: str, label: str) -> Markup:
    return Markup(
        '<path class="{tone}" d="M{begin:.0f} {y:.0f}H{end:.0f}"/>'
        '<path class="{tone} tip" d="M{tip:.0f} {above_tip:.0f}l6 4-6 4"/>'
        '<text class="tiny {tone}-note" x="{x:.0f}" y="{above:.0f}" text-anchor="middle">{label}</text>'
    ).format(
        tone=tone,
        begin=begin,
        end=end - 1,
        tip=end - 7,
        above_tip=y - 4,
        y=y,
        x=(begin + end) / 2,
        above=y - 7,
        label=label,
    )
