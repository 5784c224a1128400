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
