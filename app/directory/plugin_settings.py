"""The settings of plug-ins, and their validation."""

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from typing import Any, ClassVar, Self

from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from app.directory.mapping.settings import RuleList
from app.directory.plugins import PluginError, plugin_of, plugin_types
from app.directory.source_settings import SourceBase
from app.directory.spelling import resembling
from app.foundation.configuration.loading import Layer, with_secret_files
from app.foundation.configuration.problems import ConfigurationError
from app.foundation.text import printable


class PluginSettings(SourceBase):
    """The settings of a plug-in's sources. Plug-ins subclass it with further fields."""

    sets: ClassVar[Collection[str]] = ()
    """The sets of its objects."""

    type: str
    """The type of source, which is the name of the plug-in's entry point."""
    name: str = Field(min_length=1, max_length=200)
    """The name of the source in reports and for ``--accept-empty``."""
    map: RuleList
    """The rules, in their order."""

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
        for number, rule in enumerate(self.map, start=1):
            if rule.from_ not in self.sets:
                sets = ", ".join(self.sets)
                raise ValueError(f"map: rule {number} reads from {rule.from_}, but the sets are {sets}")
        return self


def plugin_settings(value: Mapping[str, Any], built_in: Sequence[str]) -> PluginSettings:
    """The settings of a source whose type is not in ``built_in``. Raises ``ValidationError``.

    Errors contain no value, because it may be a secret.
    """
    type_ = value["type"]
    try:
        plugin = plugin_of(type_)
    except PluginError as error:
        raise _invalid(type_, [(("type",), str(error))]) from None
    if plugin is None:
        types = [*built_in, *plugin_types()]
        near = resembling(type_, types)
        problem = f"should be {', '.join(map(repr, types))}{f' (did you mean {near}?)' if near else ''}"
        raise _invalid(type_, [(("type",), problem)], shown=type_)
    model = plugin.settings
    if not (isinstance(model, type) and issubclass(model, PluginSettings) and model.sets):
        raise _invalid(type_, [(("type",), f"the settings of the plug-in {type_} are no PluginSettings with sets")])
    try:
        settings = model.model_validate(value)
        # Its values must be JSON.
        _ = settings.digest
    except ValidationError as error:
        raise _invalid(type_, [(one["loc"], _problem_of(one, model)) for one in error.errors()]) from None
    # A validator of the plug-in may raise anything.
    except Exception as error:  # noqa: BLE001
        problem = f"the plug-in {type_} raised {type(error).__name__} for these settings"
        raise _invalid(type_, [((), problem)]) from None
    return settings


def _problem_of(error: ErrorDetails, model: type[BaseModel]) -> str:
    if error["type"] == "missing":
        return "is missing; add it"
    if error["type"] == "extra_forbidden":
        near = resembling(str(error["loc"][-1]), model.model_fields) if len(error["loc"]) == 1 else None
        return f"not a setting of this type{f'; did you mean {near}?' if near else ''}"
    return printable(error["msg"], limit=300)


def _invalid(
    title: str, problems: Sequence[tuple[tuple[int | str, ...], str]], shown: object = None
) -> ValidationError:
    """The error of these problems: location, message. ``shown``: the value that the message adds."""
    return ValidationError.from_exception_data(
        title,
        [
            {
                "type": PydanticCustomError("value_error", "{text}", {"text": text}),
                "loc": loc,
                "input": {} if shown is None else shown,
            }
            for loc, text in problems
        ],
    )
