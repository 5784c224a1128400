"""The charts: SVG by attributes and classes alone, as the content security policy demands."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

_WIDTH, _HEIGHT = 320, 56


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: how high, in which tone, and what it says."""

    size: int
    tone: str
    says: str


def bars(found: Sequence[Bar], says: str) -> Markup:
    """A bar for each, its height by the logarithm: a run of ten items is to be seen beside one of a million. Nothing is
    a stub. The last one stands at the right, however few there are."""
    if not found:
        return Markup("")
    top = math.log1p(max(bar.size for bar in found)) or 1
    slots = max(len(found), 48)
    step = _WIDTH / slots
    drawn = Markup("").join(
        Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>').format(
            bar.tone, number * step, _HEIGHT - height, max(step - 1, 1), height, bar.says
        )
        for number, bar in enumerate(found, slots - len(found))
        for height in [_HEIGHT if bar.tone == "bad" else max(2, _HEIGHT * math.log1p(bar.size) / top)]
    )
    return Markup(
        '<svg class="chart bars" role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>'
    ).format(says, _WIDTH, _HEIGHT, drawn)


def curve(values: Sequence[float | None], says: str, *, denied: Sequence[float] = ()) -> Markup:
    """A line through the values, on soft ground, and below it, in bad, the part of them that was denied. None is a gap:
    there is no value, which is not the same as nothing."""
    if len(values) < 2:
        return Markup("")
    top = max((value for value in values if value is not None), default=0) or 1
    drawn = Markup("").join(
        Markup('<path class="ground" d="{0} L{2} {3} L{1} {3} Z"/><path d="{0}"/>').format(
            _line(points), points[0][0], points[-1][0], _HEIGHT
        )
        for points in _stretches(values, top)
    )
    if any(denied):
        drawn += Markup('<path class="bad" d="{}"/>').format(_line(*_stretches(denied, top)))
    return Markup(
        '<svg class="chart curve" role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>'
    ).format(says, _WIDTH, _HEIGHT, drawn)


def _stretches(values: Sequence[float | None], top: float) -> list[list[tuple[str, str]]]:
    """The points of each stretch without a gap. One that stands alone is as wide as a step, so that it is seen."""
    step = _WIDTH / (len(values) - 1)
    # A pixel is left above and below: the line is as thick as that.
    high = [None if value is None else _HEIGHT - 1 - (_HEIGHT - 2) * value / top for value in values]
    found = []
    for is_gap, numbered in groupby(enumerate(high), key=lambda one: one[1] is None):
        points = [] if is_gap else [(number * step, at or 0.0) for number, at in numbered]
        if len(points) == 1:
            ((middle, at),) = points
            points = [(max(middle - step / 2, 0), at), (min(middle + step / 2, _WIDTH), at)]
        if points:
            found.append([(f"{across:.1f}", f"{at:.1f}") for across, at in points])
    return found


def _line(points: Sequence[tuple[str, str]]) -> str:
    return "M" + " L".join(f"{across} {at}" for across, at in points)
