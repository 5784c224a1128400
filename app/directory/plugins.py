"""Plug-ins: sources of other packages, found by their entry points (``testing/README.md``).

A plug-in is imported only if a source has its type. Whatever its connector does, only its own read fails.
"""

from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from types import UnionType
from typing import Any, ClassVar, Self, get_origin, get_type_hints

import structlog
from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from app.directory.connector import Connector, DirectoryObject, Objects, ReadError, RequestedFields
from app.directory.fields import MalformedRecordError, checked_text
from app.directory.mapping.settings import RuleList, check_rule_sets
from app.directory.source import EVERYTHING, End, Gone, Malformed, ObjectId, ReadRequest, Remark, Verdict
from app.directory.source_settings import SourceBase
from app.directory.spelling import resembling
from app.foundation.configuration.loading import Layer, with_secret_files
from app.foundation.configuration.problems import ConfigurationError
from app.foundation.text import enumerated, printable

_log = structlog.stdlib.get_logger(__name__)

GROUP = "usher.sources"
"""The group of the entry points. Their names are types of sources."""

_MAX_TEXT = 1000
"""The maximum length of a place or a reason, in characters."""


class PluginSettings(SourceBase):
    """The settings of a plug-in's sources. Plug-ins subclass it with further fields."""

    sets: ClassVar[Collection[str]] = ()
    """The sets of its objects."""

    type: str
    """The type of source, which is the name of the plug-in's entry point."""
    name: str = Field(min_length=1, max_length=200)
    map: RuleList

    @model_validator(mode="before")
    @classmethod
    def _reads_secret_files(cls, values: Any) -> Any:
        # For all other settings, this is done before they are validated.
        try:
            return with_secret_files(cls, Layer(deepcopy(values), dict.fromkeys(values, "settings"))).values
        except ConfigurationError as error:
            raise ValueError(error.problems[0]) from None

    @model_validator(mode="after")
    def _rules_fit(self) -> Self:
        check_rule_sets(self.map, self.sets)
        return self


@dataclass(frozen=True, slots=True)
class SourcePlugin:
    """A plug-in, which its entry point names."""

    settings: type[PluginSettings]
    connector: Callable[[Any], Connector]
    """Makes the connector of a read from valid settings. It opens nothing yet."""


class PluginError(ValueError):
    """A plug-in that cannot be used. The message is one line."""


@cache
def plugin_of(type_: str) -> SourcePlugin | None:
    """Imports the plug-in of a type. None if there is none. Raises ``PluginError``."""
    candidates = tuple(entry_points(group=GROUP, name=type_))
    if not candidates:
        if near := resembling(type_, entry_points(group=GROUP).names):
            raise PluginError(f"no source has the type {printable(type_, limit=80)}; did you mean {near}?")
        return None
    packages = enumerated(sorted(point.dist.name for point in candidates if point.dist is not None))
    if len(candidates) > 1:
        raise PluginError(f"the packages {packages} have a plug-in of the type {type_}; uninstall all but one")
    where = f"the plug-in {candidates[0].value} of the package {packages}"
    try:
        plugin = candidates[0].load()
    except KeyboardInterrupt:
        raise
    # A module may raise anything when it is imported.
    except BaseException as error:  # noqa: BLE001
        reason = printable(f"{type(error).__name__}: {error}", limit=300)
        raise PluginError(f"{where} cannot be imported: {reason}") from None
    if not isinstance(plugin, SourcePlugin):
        raise PluginError(f"{where} is no SourcePlugin")
    model: Any = plugin.settings
    if not (isinstance(model, type) and issubclass(model, PluginSettings) and model.sets):
        raise PluginError(f"{where} has no PluginSettings with sets")
    return plugin


def plugin_settings(plugin: SourcePlugin, value: Mapping[str, Any]) -> PluginSettings:
    """The settings of a plug-in's source. Raises ``ValueError`` without the value, which may be a secret."""
    try:
        settings = plugin.settings.model_validate(value)
        # Its values must be JSON.
        _ = settings.digest
    except ValidationError as error:
        problems = [
            InitErrorDetails(
                type=PydanticCustomError("value_error", "{text}", {"text": _describe(problem, plugin.settings)}),
                loc=problem["loc"],
                input={},
            )
            for problem in error.errors()
        ]
        raise ValidationError.from_exception_data(value["type"], problems) from None
    # A validator of the plug-in may raise anything.
    except Exception as error:  # noqa: BLE001
        raise PluginError(f"the plug-in {value['type']} raised {type(error).__name__} for these settings") from None
    return settings


def _describe(error: ErrorDetails, model: type[BaseModel]) -> str:
    if error["type"] == "missing":
        return "is missing; add it"
    if error["type"] == "extra_forbidden":
        near = resembling(str(error["loc"][-1]), model.model_fields) if len(error["loc"]) == 1 else None
        return f"not a setting of this type{f'; did you mean {near}?' if near else ''}"
    return printable(error["msg"], limit=300)


class PluginConnector:
    """The connector of a plug-in. Its errors and unusable steps fail the read."""

    def __init__(self, settings: PluginSettings) -> None:
        self._settings = settings

    def read(self, wanted: RequestedFields, request: ReadRequest = EVERYTHING) -> Objects:
        type_ = self._settings.type
        try:
            plugin = plugin_of(type_)
            if plugin is None:
                # The settings were valid, so its package was removed since.
                yield End(Verdict.FAILED, f"the plug-in {type_} is not installed any more")
                return
            for step in plugin.connector(self._settings).read(wanted, request):
                yield _checked(step, wanted)
        except ReadError as error:
            yield error.end._replace(reason=printable(str(error), limit=_MAX_TEXT))
        except PluginError as error:
            yield End(Verdict.FAILED, str(error))
        # The exit of the thread would leave the read without its end.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            _log.exception("plugin_broke", type=type_)
            yield End(Verdict.FAILED, f"the plug-in {type_} raised {type(error).__name__}; the log has the details")


_FIELD_TYPES: Mapping[type, Mapping[str, Any]] = {
    step: {
        name: hint if isinstance(hint, type | UnionType) else get_origin(hint)
        for name, hint in get_type_hints(step).items()
    }
    for step in (DirectoryObject, Gone, Malformed, Remark, End)
}


def _checked(step: Any, wanted: RequestedFields) -> Any:
    """The step, with places and reasons that can be stored. Raises ``PluginError`` if it is unusable."""
    name = printable(type(step).__name__, limit=80)
    if type(step) not in _FIELD_TYPES:
        raise PluginError(f"the plug-in returned {name} instead of a step")
    texts: dict[str, Any] = {}
    for field, type_ in _FIELD_TYPES[type(step)].items():
        value = getattr(step, field)
        is_usable = isinstance(value, type_)
        if isinstance(value, ObjectId):
            is_usable = value.set in wanted.attributes and _is_id(value.id)
        elif is_usable and field == "cursor":
            # A cursor is sent back, so it is not shortened.
            is_usable = value.isprintable()
        elif is_usable and isinstance(value, str) and not (value.isprintable() and len(value) <= _MAX_TEXT):
            texts[field] = printable(value, limit=_MAX_TEXT)
        if not is_usable:
            raise PluginError(f"the plug-in returned {name} with an unusable {field}")
    return step._replace(**texts) if texts else step


def _is_id(value: object) -> bool:
    try:
        return bool(checked_text(value, "id"))
    except MalformedRecordError:
        return False
