"""The template environment of the console, and the files in ``static`` that its pages load."""

import re
from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from app.foundation.clock import from_epoch_ms
from app.foundation.text import counted
from app.service.console import formatting
from app.service.console.charts import line_chart
from app.service.console.ladder_layout import lay_out

_HERE = Path(str(files(__package__)))
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

_CELL = re.compile(r"<(tr|td|th)\b")


class Assets:
    """The files in ``static``. Each name contains a hash of the content, so that browsers may cache it forever."""

    def __init__(self) -> None:
        self._contents: dict[str, tuple[bytes, str]] = {}
        self._names: dict[str, str] = {}
        for file in (_HERE / "static").iterdir():
            content = file.read_bytes()
            name = f"{file.stem}-{sha256(content).hexdigest()[:12]}{file.suffix}"
            self._contents[name] = (content, _TYPES[file.suffix])
            self._names[file.name] = name

    def name(self, file: str) -> str:
        """The name under which a file is served."""
        return self._names[file]

    def find(self, name: str) -> tuple[bytes, str] | None:
        """The content and its type. None: no file is served under this name."""
        return self._contents.get(name)


def make_environment(names: Mapping[str, object]) -> Environment:
    """The environment of the templates. It escapes everything, and a name that is missing is an error.

    ``names`` are available in all templates. If a page passes ``now``, times of that year are shown without the year.
    """
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        number="{:,}".format,
        rate=formatting.rate,
        latency=formatting.latency,
        duration=formatting.duration,
        when=_when,
        id=formatting.id_tag,
        name=formatting.name_tag,
        place=formatting.place_tag,
        run=_run,
        browser=formatting.browser_tag,
        state=formatting.state,
        pill=formatting.pill,
        visible=formatting.visible,
        sentence=formatting.sentence,
        without_status=formatting.without_status,
        visible_lines=formatting.visible_lines,
        labelled=_labelled,
        state_word=formatting.state_word,
        moment=from_epoch_ms,
    )
    environment.globals.update(
        counted=counted,
        percent=formatting.percent,
        line_chart=line_chart,
        lay_out=lay_out,
        pairs=lambda values: [(value, value) for value in values],
        **names,
    )
    return environment


@pass_context
def _when(context: Context, moment: datetime | int | None, since: datetime | None = None) -> Markup:
    """The time, or with ``since`` the time that has passed until then. An integer is epoch milliseconds."""
    if isinstance(moment, int):
        moment = from_epoch_ms(moment)
    if since is not None:
        return formatting.time_tag(moment, since, is_ago=True)
    return formatting.time_tag(moment, context.get("now"))


@pass_context
def _run(context: Context, run_id: str) -> Markup:
    return formatting.run_tag(run_id, context.get("now"))


def _labelled(rows: Markup, columns: Sequence[str], hidden: Container[str]) -> Markup:
    """The rows of a table, each cell with its column as ``data-label``, which cards on small screens show."""
    number = 0

    def label(tag: re.Match[str]) -> str:
        nonlocal number
        number = 0 if tag[1] == "tr" else number + 1
        column = columns[number - 1] if tag[1] == "td" else ""
        return tag[0] if not column or column in hidden else f'{tag[0]} data-label="{escape(column)}"'

    return Markup(_CELL.sub(label, rows))  # noqa: S704 - the rows are markup already, and the label is escaped
