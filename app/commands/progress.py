"""Shows the progress of a command on standard error: bars on a terminal, lines elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from app.commands.screen import print_note
from app.foundation.text import printable

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class LineProgress:
    """Prints one line on standard error for each phase."""

    def phase(self, name: str, total: int | None) -> None:
        """Prints the name of a phase, and the number of its steps if it is known."""
        print_note(f"{name} ({total})" if total is not None else name)

    def advance(self, n: int) -> None:
        """Prints nothing, because printed lines cannot be removed."""

    def note(self, text: str) -> None:
        print_note(text)


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
