"""The rendering of templates: everything is escaped, and a name that is missing is an error."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from importlib.resources import files
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from app.foundation.clock import from_epoch_ms
from app.service.console.frame import words
from app.service.console.frame.charts import bars, curve

_HERE = Path(str(files(__package__)))


def make_environment(templates: Path, names: Mapping[str, object]) -> Environment:
    """An environment for the templates in this folder, on top of the frame's own; ``names`` are known to all.

    ``frame.html`` needs of them ``asset`` and ``page`` (addresses of a file, and of a page by its name), ``home`` and
    ``brand_name``; and with each page ``look``, ``operator``, ``token`` (that of forms), ``here``, ``menu`` (headings
    with their links) and ``current``. With ``search`` (``href``, ``says``, ``text``) a field for it stands at the top.
    With ``now`` times of its year are told without the year.
    """
    environment = Environment(
        loader=ChoiceLoader([FileSystemLoader(templates), FileSystemLoader(_HERE / "templates")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        number=words.number,
        duration=words.duration,
        when=_when,
        id=words.id_tag,
        name=words.name_tag,
        state=words.state,
        pill=words.pill,
        visible=words.visible,
        visible_lines=words.visible_lines,
        moment=from_epoch_ms,
    )
    environment.globals.update(counted=words.counted, percent=words.percent, bars=bars, curve=curve, pairs=_pairs)
    environment.globals.update(names)
    return environment


@pass_context
def _when(context: Context, moment: datetime | None, since: datetime | None = None) -> Markup:
    """When it was, or with ``since`` how long before that; without the year where it is that of the page's ``now``."""
    if since is not None:
        return words.time_tag(moment, since, is_ago=True)
    now = context.get("now")
    return words.time_tag(moment, now if isinstance(now, datetime) else None)


def _pairs(values: Iterable[str]) -> list[tuple[str, str]]:
    """The options of a choice whose values speak for themselves."""
    return [(value, value) for value in values]
