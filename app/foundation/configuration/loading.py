"""Loads the effective settings and their origins, and explains errors.

Layers, strongest first: command line, environment (``USHER_<SECTION>__<KEY>``), file, defaults. They are merged key by
key (a list is one value) and then validated. In every layer, a secret can come from a file: ``<key>_file: PATH`` (for
lists, one value per line).

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
from app.foundation.configuration.schema import Nested, lay_over, nested

DEFAULT_FILE = Path("config/usher.yaml")
"""Read when no file is named and this one is there, seen from where the command runs."""

S = TypeVar("S", bound=BaseSettings)


@dataclass(frozen=True, slots=True)
class Configuration(Generic[S]):
    """The settings in force and, by dotted key, where each that is no default was given."""

    settings: S
    origins: Mapping[str, str]
    file: Path | None = None
    """The settings file that was read, if any was."""


def load(
    model: type[S],
    *,
    environment: Mapping[str, str],
    file: Path | None = None,
    command_line: Mapping[str, Any] | None = None,
) -> Configuration[S]:
    """The settings in force; ``command_line`` maps dotted keys to values. Raises ``ConfigurationError``."""
    layers = []
    path = file or _file_to_read(environment)
    if path is not None:
        layers.append(layer_from_file(model, path))
    layers.append(layer_from_environment(model, environment))
    given = {key: value for key, value in (command_line or {}).items() if value is not None}
    layers.append(Layer(nested(given), dict.fromkeys(given, "command line")))

    values: Nested = {}
    origins: dict[str, str] = {}
    for layer in layers:
        lay_over(values, layer.values)
        origins |= layer.origins
    try:
        return Configuration(model.model_validate(values), origins, path)
    except ValidationError as error:
        raise ConfigurationError(list(problems_of(model, values, origins, error))) from None


def _file_to_read(environment: Mapping[str, str]) -> Path | None:
    named = environment.get(CONFIG_VARIABLE, "")
    if named:
        return Path(named)
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None
