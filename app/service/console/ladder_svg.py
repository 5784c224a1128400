"""The picture of a ladder: SVG by attributes and classes alone; what it says stands in its description, too."""

from itertools import pairwise
from unicodedata import east_asian_width

from markupsafe import Markup

from app.service.console.formatting import visible
from app.service.console.ladder import Ladder, Rung

_WIDTH = 1080
_LEVEL_WIDTH, _LEVEL_HEIGHT, _GAP = 380, 46, 18
_TOP = 26
"""Where the first level begins, below what stands over the two columns."""
_BOX_WIDTH = 190
_LAST_GAP = 130
"""Room for what stands over the arrow to the level that decides."""
_MOST_GROUPS = 4
_TEXT, _SMALL, _MONO = 13.0, 11.5, 12.0
_PADDING = 12
_NARROW, _BROAD = frozenset("fijlrtI.,:;'|!()[] -"), frozenset("mwMW@%")


def draw(ladder: Ladder) -> Markup:
    """The whole picture."""
    left = _WIDTH - _LEVEL_WIDTH - 1
    tops = [_TOP + number * (_LEVEL_HEIGHT + _GAP) for number in range(len(ladder.rungs))]
    height = tops[-1] + _LEVEL_HEIGHT + 1
    deciding = len(ladder.rungs) - 1 if ladder.deciding is None else ladder.deciding
    parts = [_heading(1, "Who asks, and the groups that lead there" if ladder.groups else "Who asks")]
    parts.append(_heading(left, "What is asked for, from the organization down"))
    parts += [
        Markup('<line x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>').format(
            left + _LEVEL_WIDTH / 2, above + _LEVEL_HEIGHT, below
        )
        for above, below in pairwise(tops)
    ]
    parts += [_rung(rung, left, top) for rung, top in zip(ladder.rungs, tops, strict=True)]
    parts.append(_chain(ladder, left, tops[deciding] + _LEVEL_HEIGHT / 2))
    return Markup(
        '<svg class="ladder" role="img" viewBox="0 0 {} {}"><title>The way to the decision</title>'
        "<desc>{}</desc>{}</svg>"
    ).format(_WIDTH, height, visible(ladder.reason), Markup("").join(parts))


def cut(text: str, room: float, size: float, *, mono: bool = False) -> str:
    """As much of a text as fits into so many pixels, with an ellipsis where some is left out."""
    shown = visible(text)
    if _measure(shown, size, mono=mono) <= room:
        return shown
    room -= size
    end = 0
    for end, character in enumerate(shown):  # noqa: B007 - where it ended
        room -= _measure(character, size, mono=mono)
        if room < 0:
            break
    return f"{shown[:end]}…"


def _measure(text: str, size: float, *, mono: bool = False) -> float:
    """How wide a text is, about: fonts differ, so rather too wide than too narrow."""
    if mono:
        return sum(2 if east_asian_width(one) in "WF" else 1 for one in text) * size * 0.61
    return sum(_share(one) for one in text) * size


def _share(character: str) -> float:
    if east_asian_width(character) in "WF":
        return 1.0
    if character in _NARROW:
        return 0.36
    if character in _BROAD:
        return 0.92
    return 0.7 if character.isupper() else 0.58


def _heading(x: float, says: str) -> Markup:
    return Markup('<text class="tiny" x="{}" y="12">{}</text>').format(x, says)


def _rung(rung: Rung, x: float, y: float) -> Markup:
    name = rung.name or rung.item_id
    room = _LEVEL_WIDTH - 2 * _PADDING
    shown_id = rung.item_id if rung.name and rung.name != rung.item_id else ""
    note = cut(rung.says, room - _measure(rung.kind, _SMALL) - 16, _SMALL)
    # The id is what tells it from others: it keeps at least a third.
    shown = cut(name, room * 2 / 3 if shown_id else room, _TEXT, mono=not rung.name)
    left = room - _measure(shown, _TEXT) - 8
    return Markup(
        '<g class="level {state}"><title>{kind} {whole}: {says}</title>'
        '<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="5"/>'
        '<text class="tiny" x="{tx}" y="{first}">{kind}</text>'
        '<text class="note" x="{end}" y="{first}" text-anchor="end">{note}</text>'
        '<text{mono} x="{tx}" y="{second}">{shown}{id}</text></g>'
    ).format(
        state=rung.state,
        kind=rung.kind,
        whole=visible(f"{rung.name} {rung.item_id}" if shown_id else name),
        says=visible(rung.says),
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
        id=Markup('<tspan class="id" dx="8">{}</tspan>').format(cut(shown_id, left, _MONO, mono=True))
        if shown_id
        else "",
    )


def _chain(ladder: Ladder, left: float, middle: float) -> Markup:
    """From the user through groups to the level that decides."""
    boxes = [("user", ladder.user_name or ladder.user_id, f"{ladder.user_name} {ladder.user_id}".strip())]
    boxes += [("group", one, one) for one in ladder.groups]
    if len(ladder.groups) > _MOST_GROUPS:
        inner = ladder.groups[1:-1]
        boxes[2:-1] = [("groups", f"{len(inner)} more", ", ".join(inner))]
    gap = 40 if len(boxes) < 4 else 28
    width = min(_BOX_WIDTH, (left - _LAST_GAP - gap * (len(boxes) - 1)) / len(boxes))
    parts = []
    for number, (kind, name, whole) in enumerate(boxes):
        x = 1 + number * (width + gap)
        keeps_out = ladder.user_says if not number else ""
        parts.append(
            Markup(
                '<g class="who{state}"><title>{kind} {whole}</title>'
                '<rect x="{x:.0f}" y="{y:.0f}" width="{w:.0f}" height="46" rx="5"/>'
                '<text class="tiny" x="{tx:.0f}" y="{first:.0f}">{label}</text>'
                '<text x="{tx:.0f}" y="{second:.0f}">{shown}</text></g>'
            ).format(
                state=" denies" if keeps_out else "",
                kind=kind,
                label=f"{kind} · {keeps_out}" if keeps_out else kind,
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
            parts.append(_arrow(x - gap, x, middle, "leads" if ladder.allows else "", "in"))
    end = 1 + len(boxes) * (width + gap) - gap
    if ladder.deciding is not None and ladder.leads:
        parts.append(_arrow(end, left, middle, "leads" if ladder.allows else "none", ladder.leads))
    return Markup("").join(parts)


def _arrow(begin: float, end: float, y: float, tone: str, says: str) -> Markup:
    return Markup(
        '<path class="{tone}" d="M{begin:.0f} {y:.0f}H{end:.0f}"/>'
        '<path class="{tone} tip" d="M{tip:.0f} {above_tip:.0f}l6 4-6 4"/>'
        '<text class="tiny {tone}-note" x="{x:.0f}" y="{above:.0f}" text-anchor="middle">{says}</text>'
    ).format(
        tone=tone,
        begin=begin,
        end=end - 1,
        tip=end - 7,
        above_tip=y - 4,
        y=y,
        x=(begin + end) / 2,
        above=y - 7,
        says=says,
    )
