"""Prints results and progress: tables and bars on a terminal, tab-separated lines elsewhere.

Text from a directory, a backend or a database is passed through ``printable`` and never interpreted as markup.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import orjson

from app.foundation.text import printable

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

STYLES: Mapping[str, str] = {
    "allowed": "green",
    "denied": "red",
    "done": "green",
    "add": "green",
    "update": "yellow",
    "delete": "red",
    "failed": "red",
    "held": "yellow",
    "partial": "yellow",
    "parked": "red",
    "skipped": "yellow",
    "waiting": "yellow",
    "cancelled": "dim",
    "discarded": "dim",
    "default": "dim",
}


def without_colours() -> bool:
    """Whether the environment disables colours."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def on_terminal() -> bool:
    """Whether standard output is a terminal. It is None if it is closed."""
    return sys.stdout is not None and sys.stdout.isatty()


def say(text: str = "") -> None:
    """Prints a line of the result."""
    click.echo(text)


def note(text: str) -> None:
    """Prints a line on standard error."""
    click.echo(printable(text), err=True)


def show_json(value: object) -> None:
    """Prints the result as JSON."""
    click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def show_json_lists(
    head: Mapping[str, object],
    lists: Mapping[str, Iterable[object]],
    tail: Callable[[], Mapping[str, object]] = dict,
) -> None:
    """Prints ``head`` with further fields that are lists, one item per line. The items may exceed the memory. ``tail``
    returns fields that are known after the last item."""
    click.echo(orjson.dumps(head, option=orjson.OPT_INDENT_2).decode().removesuffix("\n}"), nl=False)
    for name, items in lists.items():
        click.echo(f',\n  "{name}": [', nl=False)
        separator = "\n    "
        for item in items:
            click.echo(separator + orjson.dumps(item).decode(), nl=False)
            separator = ",\n    "
        click.echo("\n  ]", nl=False)
    last = "".join(f',\n  "{field}": {orjson.dumps(value).decode()}' for field, value in tail().items())
    click.echo(f"{last}\n}}")


def show_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, one_line: bool = False) -> None:
    """Prints rows of text: a table on a terminal, otherwise one line per row with tabs and without headings.

    The first column is never cut or folded, so that it can be copied. Columns that do not fit are printed below their
    row. ``one_line``: text below a row ends in an ellipsis at the end of the line, and no other column is folded.
    """
    if not on_terminal():
        for row in rows:
            click.echo("\t".join(printable(cell) for cell in row))
        return
    from app.commands.table import print_table

    print_table(headings, [[printable(cell) for cell in row] for row in rows], styles=STYLES, one_line=one_line)


def coloured(text: str, style_of: str) -> str:
    """The text in the colour of a status or an outcome, if standard output is a terminal."""
    colour = STYLES.get(style_of, "")
    return click.style(text, fg=colour) if colour and colour != "dim" and on_terminal() else text


class LineProgress:
    """Prints one line on standard error for each phase."""

    def phase(self, name: str, total: int | None) -> None:
        note(f"{name} ({total})" if total is not None else name)

    def advance(self, n: int) -> None:
        """Prints nothing, because printed lines cannot be removed."""

    def note(self, text: str) -> None:
        note(text)


class BarProgress:
    """Shows a bar on standard error for each phase."""

    def __init__(self, bars: "RichProgress") -> None:
        self._bars = bars
        self._task: TaskID | None = None

    def phase(self, name: str, total: int | None) -> None:
        """Adds a bar and fills the previous one."""
        self.finish()
        self._task = self._bars.add_task(printable(name), total=total)

    def advance(self, n: int) -> None:
        if self._task is not None:
            self._bars.advance(self._task, n)

    def note(self, text: str) -> None:
        """Prints a line above the bars."""
        from rich.text import Text

        self._bars.console.print(Text(printable(text)))

    def finish(self) -> None:
        """Fills the last bar."""
        if self._task is not None:
            task = self._bars.tasks[self._task]
            total = task.total if task.total is not None else max(task.completed, 1)
            self._bars.update(self._task, total=total, completed=total)


@contextmanager
def progress() -> Iterator[LineProgress | BarProgress]:
    """Shows progress on standard error: bars on a terminal, lines elsewhere."""
    if not sys.stderr.isatty():
        yield LineProgress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns: tuple[Any, ...] = (
        TextColumn("{task.description:<20}", markup=False),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        bar = BarProgress(bars)
        try:
            yield bar
        finally:
            bar.finish()
