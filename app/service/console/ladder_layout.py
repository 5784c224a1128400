"""Computes the positions and texts of a ladder. The template ``ladder.html`` draws it as SVG."""

from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any
from unicodedata import east_asian_width

from markupsafe import Markup

from app.service.console.formatting import visible
from app.service.console.ladder import Ladder, NamedRecord, Rung, UserProblem

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


Words = Callable[..., str]
"""A macro of the template."""


def lay_out(ladder: Ladder, kind: Words, note: Words, link: Words) -> dict[str, Any]:
    """The positions in pixels, and the texts, shortened to the space that they have. ``kind`` and ``note`` return the
    words for a level, ``link`` those for the arrow to the deciding one."""
    left = _WIDTH - _LEVEL_WIDTH - 1
    tops = [_TOP + number * (_LEVEL_HEIGHT + _GAP) for number in range(len(ladder.rungs))]
    deciding = len(ladder.rungs) - 1 if ladder.deciding is None else ladder.deciding
    return {
        "has_groups": bool(ladder.groups),
        "width": _WIDTH,
        "height": tops[-1] + _LEVEL_HEIGHT + 1,
        "left": left,
        "level_width": _LEVEL_WIDTH,
        "level_height": _LEVEL_HEIGHT,
        "gaps": [(above + _LEVEL_HEIGHT, below) for above, below in pairwise(tops)],
        "levels": [
            _level(rung, top, _plain(kind(rung)), _plain(note(rung, ladder)))
            for rung, top in zip(ladder.rungs, tops, strict=True)
        ],
        "middle": tops[deciding] + _LEVEL_HEIGHT // 2,
        **_chain(ladder, left, _plain(link(ladder))),
    }


def _plain(rendered: str) -> str:
    """The text of a macro."""
    return Markup(rendered).unescape().strip()  # noqa: S704 - of a template


def cut(text: str, room: float, size: float, *, mono: bool = False) -> str:
    """Shortens a text with an ellipsis to a width in pixels."""
    shown = visible(text)
    if _measure(shown, size, mono=mono) <= room:
        return shown
    widths = accumulate(_measure(character, size, mono=mono) for character in shown)
    return f"{shown[: sum(width <= room - size for width in widths)]}…"


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


def _level(rung: Rung, top: int, kind: str, note: str) -> dict[str, object]:
    name = rung.name or rung.item_id
    room = _LEVEL_WIDTH - 2 * _PADDING
    shown_id = rung.item_id if rung.name and rung.name != rung.item_id else ""
    # Names may be equal, so the id keeps at least a third of the width.
    shown = cut(name, room * 2 / 3 if shown_id else room, _TEXT, mono=not rung.name)
    return {
        "top": top,
        "state": rung.state,
        "kind": kind,
        "whole": f"{rung.name} {rung.item_id}" if shown_id else name,
        "whole_note": note,
        "note": cut(note, room - _measure(kind, _SMALL) - 16, _SMALL),
        "has_name": bool(rung.name),
        "name": name,
        "item_id": shown_id,
        "shown": shown,
        "shown_id": cut(shown_id, room - _measure(shown, _TEXT) - 8, _MONO, mono=True),
    }


def _chain(ladder: Ladder, left: int, link: str) -> dict[str, object]:
    """The boxes and arrows from the user through groups to the deciding level."""
    chain = [("user", ladder.user), *(("group", group) for group in ladder.groups)]
    if len(ladder.groups) > _MAX_GROUPS:
        inner = [group.name or group.item_id for group in ladder.groups[1:-1]]
        chain[2:-1] = [("groups", NamedRecord(", ".join(inner), f"{len(inner)} more"))]
    gap = 40 if len(chain) < 4 else 28
    width = min(_BOX_WIDTH, (left - _LAST_GAP - gap * (len(chain) - 1)) / len(chain))
    lefts = [1 + number * (width + gap) for number in range(len(chain))]
    boxes = [
        _box(x, width, kind, record, ladder.user_problem if kind == "user" else "")
        for x, (kind, record) in zip(lefts, chain, strict=True)
    ]
    tone = "leads" if ladder.allows else ""
    arrows = [(round(x - gap), round(x), tone, "in") for x in lefts[1:]]
    if ladder.deciding is not None and link:
        arrows.append((round(lefts[-1] + width), left, tone or "none", link))
    return {"boxes": boxes, "box_width": round(width), "arrows": arrows}


def _box(x: float, width: float, kind: str, record: NamedRecord, problem: UserProblem) -> dict[str, object]:
    item_id, name = record
    shows_id = kind != "groups" and name not in {"", item_id}
    id_width = width - 28 - _measure(kind, _SMALL)
    return {
        "x": round(x),
        "kind": kind,
        "problem": problem,
        "whole": f"{name} {item_id}" if shows_id else item_id,
        "name": name if shows_id else "",
        "item_id": item_id,
        "shown": cut(name or item_id, width - 20, _TEXT),
        "shown_id": cut(item_id, id_width, _MONO, mono=True) if shows_id and not problem else "",
    }
