"""Prints tables on terminals of any width. Columns that do not fit are printed below their row."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_GAP = 3
"""Spaces between two columns."""
_EDGES = 2
_MIN_WIDTH = 24
"""About the narrowest width at which a folded column is readable."""
_BELOW = 3
"""Indentation of lines below a row."""
_EMPTY = frozenset({"", "–"})


def print_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, styles: Mapping[str, str], one_line: bool
) -> None:
    """``styles``: the style of a cell, by its text. ``one_line``: see ``app.commands.screen.show_table``."""
    console = Console()
    columns = [[heading, *cells] for heading, *cells in zip(headings, *rows, strict=True)]
    widths = [max(map(cell_len, column)) for column in columns]
    minimum = widths if one_line else [widths[0], *(min(width, _MIN_WIDTH) for width in widths[1:])]
    texts = [[Text(cell, style=styles.get(cell, "")) for cell in row] for row in rows]
    if _EDGES + sum(minimum) + _GAP * (len(minimum) - 1) <= console.width:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for number, heading in enumerate(headings):
            table.add_column(heading, overflow="fold", no_wrap=not number)
        for row in texts:
            table.add_row(*row)
        console.print(table)
        return
    ends = accumulate(width + _GAP for width in widths)
    fitting = max(1, sum(_EDGES + end - _GAP <= console.width for end in ends))
    console.print()
    _print_line(console, [Text(heading, style="bold") for heading in headings[:fitting]], widths)
    console.print(Text(" " + "─" * min(sum(widths[:fitting]) + _GAP * (fitting - 1), console.width - _EDGES)))
    for row in texts:
        _print_line(console, row[:fitting], widths)
        for line in _lines_below(headings[fitting:], row[fitting:], console.width - _BELOW - 1):
            console.print(
                Padding(line, (0, 1, 0, _BELOW)), no_wrap=one_line, overflow="ellipsis" if one_line else "fold"
            )
    console.print()


def _lines_below(headings: Sequence[str], cells: Sequence[Text], width: int) -> list[Text]:
    """The non-empty cells after their headings, as many on each line as fit."""
    lines: list[Text] = []
    for heading, cell in zip(headings, cells, strict=True):
        if cell.plain in _EMPTY:
            continue
        piece = Text.assemble((f"{heading}: ", "dim"), cell)
        if lines and cell_len(lines[-1].plain) + _GAP + cell_len(piece.plain) <= width:
            lines[-1].append(" " * _GAP).append_text(piece)
        else:
            lines.append(piece)
    return lines


def _print_line(console: Console, cells: Sequence[Text], widths: Sequence[int]) -> None:
    line = Text(" ")
    for number, (cell, width) in enumerate(zip(cells, widths, strict=False)):
        line.append_text(cell)
        if number < len(cells) - 1:
            line.append(" " * (width - cell_len(cell.plain) + _GAP))
    console.print(line, soft_wrap=True)
