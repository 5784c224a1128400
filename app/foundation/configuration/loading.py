"""Loads the effective settings and their origins, and explains errors.

Layers, strongest first: command line, environment (``USHER_<SECTION>__<KEY>``), file, defaults. They are merged key by
key (a list is one value) and then validated. In the environment and the file, a secret can come from another file:
``<key>_file: PATH`` (for lists, one value per line).

Errors raise ``ConfigurationError``, with one line for each problem: the key, the error, the origin and advice. It never
contains the value of a secret.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings

from app.foundation.configuration.layers import CONFIG_VARIABLE, Layer, layer_from_environment, layer_from_file
from app.foundation.configuration.problems import ConfigurationError, problems_of
from app.foundation.configuration.schema import Nested, merge, nested

DEFAULT_FILE = Path("config/usher.yaml")
"""Read if no file is named and it exists; relative to the working directory."""

S = TypeVar("S", bound=BaseSettings)


@dataclass(frozen=True, slots=True)
class Configuration(Generic[S]):
    """The effective settings, and the origin of each dotted key that has no default value."""

    settings: S
    origins: Mapping[str, str]
    file: Path | None = None
    """The settings file, if there is one."""


def load(
    model: type[S],
    *,
    environment: Mapping[str, str],
    file: Path | None = None,
    command_line: Mapping[str, Any] | None = None,
) -> Configuration[S]:
    """The effective settings; ``command_line`` maps dotted keys to values. Raises ``ConfigurationError``."""
    named = environment.get(CONFIG_VARIABLE, "")
    path = file or (Path(named) if named else DEFAULT_FILE if DEFAULT_FILE.is_file() else None)
    options = {key: value for key, value in (command_line or {}).items() if value is not None}
    layers = [layer_from_file(model, path)] if path is not None else []
    layers.append(layer_from_environment(model, environment))
    layers.append(Layer(nested(options), dict.fromkeys(options, "command line")))

    values: Nested = {}
    origins: dict[str, str] = {}
    for layer in layers:
        merge(values, layer.values)
        origins |= layer.origins
    try:
        return Configuration(model.model_validate(values), origins, path)
    except ValidationError as error:
        raise ConfigurationError(list(problems_of(model, values, origins, error))) from None
