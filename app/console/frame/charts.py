"""The charts: SVG by attributes and classes alone, as the content security policy demands."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
    a stub."""
    if not found:
        return Markup("")
    top = math.log1p(max(bar.size for bar in found)) or 1
    step = _WIDTH / max(len(found), 48)
    drawn = Markup("").join(
        Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>').format(
            bar.tone, number * step, _HEIGHT - height, max(step - 1, 1), height, bar.says
        )
        for number, bar in enumerate(found)
        for height in [_HEIGHT if bar.tone == "bad" else max(2, _HEIGHT * math.log1p(bar.size) / top)]
    )
    return Markup(
        '<svg class="chart bars" role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>'
    ).format(says, _WIDTH, _HEIGHT, drawn)


def curve(values: Sequence[float], says: str, *, denied: Sequence[float] = ()) -> Markup:
    """A line through the values, on soft ground, and below it, in bad, the part of them that was denied."""
    if len(values) < 2:
        return Markup("")
    top = max(values) or 1
    line = _line(values, top)
    drawn = Markup('<path class="ground" d="{0} L{1} {2} L0 {2} Z"/><path d="{0}"/>').format(line, _WIDTH, _HEIGHT)
    if any(denied):
        drawn += Markup('<path class="bad" d="{}"/>').format(_line(denied, top))
    return Markup(
        '<svg class="chart curve" role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>'
    ).format(says, _WIDTH, _HEIGHT, drawn)


def _line(values: Sequence[float], top: float) -> str:
    step = _WIDTH / (len(values) - 1)
    # A pixel is left above and below: the line is as thick as that.
    points = [f"{n * step:.1f} {_HEIGHT - 1 - (_HEIGHT - 2) * value / top:.1f}" for n, value in enumerate(values)]
    return "M" + " L".join(points)
