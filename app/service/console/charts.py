"""Charts as SVG. They use attributes and classes only, because the content security policy forbids inline styles."""

from collections.abc import Sequence
from itertools import groupby

from markupsafe import Markup

_WIDTH, _HEIGHT = 320, 56


def line_chart(values: Sequence[float | None], label: str, *, denied: Sequence[float] = ()) -> Markup:
    """A line through the values, and below it one for the part that was denied. None is a gap in the line."""
    if len(values) < 2:
        return Markup("")
    top = max((value for value in values if value is not None), default=0) or 1
    drawn = Markup("").join(
        Markup('<path class="ground" d="{0} L{2} {3} L{1} {3} Z"/><path d="{0}"/>').format(
            _path(points), points[0][0], points[-1][0], _HEIGHT
        )
        for points in _segments(values, top)
    )
    if any(denied):
        drawn += Markup('<path class="bad" d="{}"/>').format(_path(*_segments(denied, top)))
    return _svg("curve", label, drawn)


def _svg(kind: str, label: str, drawn: Markup) -> Markup:
    return Markup(
        '<svg class="chart {}" role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>'
    ).format(kind, label, _WIDTH, _HEIGHT, drawn)


def _segments(values: Sequence[float | None], top: float) -> list[list[tuple[str, str]]]:
    """The points of each segment without a gap. A single point becomes a line of one step, so that it is visible."""
    step = _WIDTH / (len(values) - 1)
    # Leaves one pixel above and below for the thickness of the line.
    heights = [None if value is None else _HEIGHT - 1 - (_HEIGHT - 2) * value / top for value in values]
    segments = []
    for is_gap, numbered in groupby(enumerate(heights), key=lambda point: point[1] is None):
        points = [] if is_gap else [(number * step, y or 0.0) for number, y in numbered]
        if len(points) == 1:
            ((middle, y),) = points
            points = [(max(middle - step / 2, 0), y), (min(middle + step / 2, _WIDTH), y)]
        if points:
            segments.append([(f"{x:.1f}", f"{y:.1f}") for x, y in points])
    return segments


def _path(points: Sequence[tuple[str, str]]) -> str:
    return "M" + " L".join(f"{x} {y}" for x, y in points)
