"""Prints results: text, JSON and tables. Tables are tab-separated lines unless standard output is a terminal.

Text from a directory, a backend or a database is passed through ``printable`` and never interpreted as markup.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

import click
import orjson

from app.foundation.text import printable

_STYLES: Mapping[str, str] = {
    **dict.fromkeys(("allowed", "done", "add"), "green"),
    **dict.fromkeys(("update", "held", "partial", "skipped", "waiting"), "yellow"),
    **dict.fromkeys(("denied", "delete", "failed", "parked"), "red"),
    **dict.fromkeys(("cancelled", "discarded", "default"), "dim"),
}


def on_terminal() -> bool:
    """Whether standard output is a terminal."""
    # Python sets a closed output to None.
    return sys.stdout is not None and sys.stdout.isatty()


def print_result(text: str = "") -> None:
    """Prints a line on standard output."""
    click.echo(text)


def print_note(text: str) -> None:
    """Prints a line on standard error."""
    click.echo(printable(text), err=True)


def show_json(value: object) -> None:
    click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def show_json_lists(
    head: Mapping[str, object], lists: Mapping[str, Iterable[object]], tail: Callable[[], Mapping[str, object]] = dict
) -> None:
    """Prints ``head`` as JSON with further fields that are lists, one item per line. The items may exceed the memory.
    ``tail`` is called after the last item, and returns the last fields."""
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

    print_table(headings, [[printable(cell) for cell in row] for row in rows], styles=_STYLES, one_line=one_line)


def coloured(text: str, style_of: str) -> str:
    """The text in the colour of a status or an outcome, if standard output is a terminal."""
    colour = _STYLES.get(style_of, "")
    return click.style(text, fg=colour) if colour and colour != "dim" and on_terminal() else text
