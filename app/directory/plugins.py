"""Finds and runs plug-ins: sources of other packages, named by entry points of the group ``usher.sources``.

A plug-in is imported only if a source has its type. Whatever its connector does, only its own read fails.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import structlog
from pydantic import BaseModel

from app.directory.connector import Connector, DirectoryObject, Objects, ReadError, RequestedFields
from app.directory.source import EVERYTHING, Answered, End, Gone, Malformed, ObjectId, ReadRequest, Remark, Verdict
from app.foundation.text import enumerated, printable, quoted

GROUP = "usher.sources"
"""The group of the entry points. Their names are types of sources."""

MAX_REASON = 1000
"""The maximum length of a reason, in characters."""


@dataclass(frozen=True, slots=True)
class SourcePlugin:
    """What an entry point names."""

    settings: type[BaseModel]
    """A subclass of ``PluginSettings``."""
    connector: Callable[[Any], Connector]
    """Makes the connector from valid settings, for each read. Nothing is opened yet."""


class PluginError(ValueError):
    """A plug-in that cannot be used. The message is one line."""


def plugin_types() -> Sequence[str]:
    """The types of the installed plug-ins."""
    return sorted(entry_points(group=GROUP).names)


@cache
def plugin_of(type_: str) -> SourcePlugin | None:
    """Imports the plug-in of a type; None if there is none. Raises ``PluginError``."""
    found = tuple(entry_points(group=GROUP, name=type_))
    if not found:
        return None
    packages = enumerated(sorted(map(_package, found)))
    if len(found) > 1:
        raise PluginError(f"the packages {packages} have a plug-in of this type; uninstall all but one")
    where = f"the plug-in {found[0].value} of the package {packages}"
    try:
        plugin = found[0].load()
    # A module may raise anything when it is imported.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        raise PluginError(
            f"{where} cannot be imported: {printable(f'{type(error).__name__}: {error}', limit=300)}"
        ) from None
    if not isinstance(plugin, SourcePlugin):
        raise PluginError(f"{where} is no SourcePlugin")
    return plugin


def _package(entry_point: EntryPoint) -> str:
    return entry_point.dist.name if entry_point.dist is not None else "unknown"


class PluginConnector:
    """The connector of a plug-in. Its errors and invalid steps fail the read."""

    def __init__(self, type_: str, settings: object) -> None:
        """``settings``: an instance of the plug-in's settings."""
        self._type = type_
        self._settings = settings

    def read(self, wanted: RequestedFields, request: ReadRequest = EVERYTHING) -> Objects:
        try:
            yield from self._steps(wanted, request)
        except (ReadError, PluginError) as error:
            yield End(
                Verdict.FAILED, printable(str(error), limit=MAX_REASON), answered=getattr(error, "answered", None)
            )
        # The exit of the thread would leave the read without its end.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            structlog.stdlib.get_logger(__name__).exception("plugin_broke", type=self._type)
            reason = f"the plug-in {self._type} raised {type(error).__name__}; the log has the details"
            yield End(Verdict.FAILED, reason)

    def _steps(self, wanted: RequestedFields, request: ReadRequest) -> Objects:
        """The valid steps. Raises whatever the plug-in raises."""
        plugin = plugin_of(self._type)
        if plugin is None:
            raise PluginError(f"the plug-in {self._type} is not installed")
        for step in plugin.connector(self._settings).read(wanted, request):
            if problem := _problem_of(step, wanted):
                raise PluginError(f"the plug-in {self._type} returned {problem}")
            yield step._replace(reason=printable(step.reason, limit=MAX_REASON)) if type(step) is End else step


def _problem_of(step: object, wanted: RequestedFields) -> str:
    """The problem of a step of a plug-in; empty if there is none."""
    name = printable(type(step).__name__, limit=80)
    fields: Any = step  # whatever their types are declared to be
    object_: Any = None
    texts: tuple[Any, ...] = ()
    if type(step) is DirectoryObject:
        if not isinstance(fields.value, Mapping):
            return "an object whose value is no mapping"
        object_, texts = step.id, (step.place, *step.names, *step.members)
    elif type(step) is Gone:
        object_ = step.object
    elif type(step) is Malformed:
        object_, texts = step.object, (step.place, step.reason)
    elif type(step) is Remark:
        texts = (step.place, step.reason)
    elif type(step) is End:
        texts = (step.reason, step.cursor)
        if not isinstance(fields.verdict, Verdict) or not isinstance(fields.answered, Answered | None):
            return "an end without a verdict"
    else:
        return f"{name} instead of a step"
    if not all(isinstance(text, str) for text in texts):
        return f"{name} with values that should be text"
    if object_ is None and type(step) not in (DirectoryObject, Gone):
        return ""
    if not isinstance(object_, ObjectId) or not all(isinstance(part, str) and part for part in object_):
        return f"{name} without an ObjectId"
    return "" if object_.set in wanted.attributes else f"{name} of {quoted(object_.set)}, a set that was not requested"
