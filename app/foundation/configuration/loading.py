"""Loads the effective settings and their origins, and explains errors.

Layers, strongest first: command line, environment (``USHER_<SECTION>__<KEY>``), file, defaults. They are merged key by
key (a list is one value) and then validated. In the environment and the file, a secret can come from another file:
``<key>_file: PATH`` (for lists, one value per line).

Errors raise ``ConfigurationError``, with one line for each problem: the key, the error, the origin and advice. It never
contains the value of a secret.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource

from app.foundation.configuration.problems import ConfigurationError, problems_of, suggest
from app.foundation.configuration.schema import (
    FILE_SUFFIX,
    PREFIX,
    Nested,
    fields_at,
    merge,
    nested,
    secret_set_by_file,
    types_in,
)
from app.foundation.files import read_small_file

CONFIG_VARIABLE = "USHER_CONFIG"

_FOREIGN_VARIABLES = re.compile(r"USHER_(TEST_\w+|SERVICE_HOST|SERVICE_PORT\w*|PORT(_\w+)?)")
"""Variables with the prefix that are not settings: of the tests, and of Kubernetes for a service named "usher"."""

DEFAULT_FILE = Path("config/usher.yaml")
"""The file that is read if none is named and it exists. It is relative to the working directory."""

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
    """The effective settings. ``command_line`` maps dotted keys to values. Raises ``ConfigurationError``."""
    variable = environment.get(CONFIG_VARIABLE, "")
    path = file or (Path(variable) if variable else DEFAULT_FILE if DEFAULT_FILE.is_file() else None)
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


# Layers.


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of settings. ``origins`` contains the origin of each dotted key."""

    values: Nested
    origins: Mapping[str, str]


def layer_from_file(model: type[BaseModel], path: Path) -> Layer:
    """Reads a YAML file. The origin of each key is ``FILE:LINE``."""
    try:
        text = read_small_file(path).decode("utf-8")
        _refuse_aliases(text, path)
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        lines = {} if node is None else dict(_lines(node, path))
        values = {} if node is None else loader.construct_document(node)
    except OSError as error:
        raise _file_error(path, f": {error.strerror}; name another with --config") from error
    except UnicodeDecodeError as error:
        raise _file_error(path, f": not UTF-8 at byte {error.start}; save it as UTF-8") from error
    except yaml.YAMLError as error:
        raise _file_error(path, _yaml_problem(error)) from error
    except ValueError as error:
        # YAML converts dates.
        raise _file_error(path, f": a value looks like a date but is not one ({error})") from error
    except RecursionError as error:
        raise _file_error(path, ": is nested without end") from error
    values = {} if values is None else values
    if not isinstance(values, dict):
        raise _file_error(path, ": must hold keys and values, as in 'database_url: sqlite:///…'")
    for key, value in values.items():
        # A section whose keys are all commented out is empty.
        if value is None and any(_is_section(field) for field in fields_at(model, [key])):
            values[key] = {}
    return with_secret_files(model, Layer(values, {key: f"{path}:{line}" for key, line in lines.items()}))


def _is_section(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def _file_error(path: Path, text: str) -> ConfigurationError:
    return ConfigurationError([f"settings file {path}{text}"])


def _refuse_aliases(text: str, path: Path) -> None:
    """A few nested aliases can expand to more values than fit in memory."""
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise _file_error(path, f":{line}: *{event.anchor} refers to another value; write the value here")


def _lines(node: yaml.Node, path: Path, prefix: str = "") -> Iterator[tuple[str, int]]:
    """The line of each dotted key."""
    if not isinstance(node, yaml.MappingNode):
        return
    seen: dict[str, int] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != "tag:yaml.org,2002:str":
            raise _file_error(path, f":{line}: a key must be plain text; put it in quotes")
        key = prefix + key_node.value
        if key in seen:
            raise _file_error(path, f":{line}: {key} is also set on line {seen[key]}; keep one of the two")
        seen[key] = line
        yield key, line
        yield from _lines(value_node, path, key + ".")
        if isinstance(value_node, yaml.SequenceNode):
            for index, item in enumerate(value_node.value):
                yield from _lines(item, path, f"{key}[{index}].")


def _yaml_problem(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f":{mark.line + 1}: not YAML: {error.problem} (column {mark.column + 1})"
    return f": not YAML: {' '.join(str(error).split())}"


class _Environment(EnvSettingsSource):
    """pydantic-settings' parser, on variables that are passed in. Lists are JSON, or separated by commas."""

    def __init__(self, model: type[BaseSettings], variables: Mapping[str, str]) -> None:
        super().__init__(model, env_prefix=PREFIX, env_nested_delimiter="__", case_sensitive=False)
        self.env_vars = {name.lower(): value for name, value in variables.items()}

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            if not isinstance(value, str) or value.lstrip().startswith(("{", "[")):
                return value
            return [item.strip() for item in value.split(",") if item.strip()]


def layer_from_environment(model: type[BaseSettings], environment: Mapping[str, str]) -> Layer:
    """Reads variables such as ``USHER_PROVIDER__PATH``. An unknown name is an error."""
    variables = {
        name: value
        for name, value in environment.items()
        if name.upper().startswith(PREFIX)
        and name.upper() != CONFIG_VARIABLE
        and not _FOREIGN_VARIABLES.fullmatch(name.upper())
    }
    paths = {name: tuple(name[len(PREFIX) :].lower().split("__")) for name in variables}
    settings = {name: value for name, value in variables.items() if fields_at(model, paths[name])}
    secret_files = {name for name in variables.keys() - settings.keys() if secret_set_by_file(model, paths[name])}
    problems = [
        f"{name}: not a setting (environment); {suggest(model, paths[name], as_variable=True)}"
        for name in sorted(variables.keys() - settings.keys() - secret_files)
    ]
    if problems:
        raise ConfigurationError(problems)
    origins = {".".join(path): f"environment {name}" for name, path in paths.items()}
    values: Nested = _Environment(model, settings)()
    merge(values, nested({".".join(paths[name]): variables[name] for name in secret_files}))
    return with_secret_files(model, Layer(values, origins))


def with_secret_files(model: type[BaseModel], layer: Layer) -> Layer:
    """Replaces, in the layer's values, each ``<key>_file`` of a secret by ``<key>`` with the content of the file."""
    origins = dict(layer.origins)
    problems: list[str] = []
    for values, path, prefix in _sections(layer.values, (), ""):
        for key, value in list(values.items()):
            field = secret_set_by_file(model, [*path, key])
            if field is None:
                continue
            base = key.removesuffix(FILE_SUFFIX)
            origin = origins.pop(prefix + key, "")
            del values[key]
            if base in values:
                problems.append(f"{prefix}{base}: given as {base} and as {key} ({origin}); keep one of the two")
                continue
            try:
                values[base] = _secret_from(value, field)
            except (OSError, UnicodeDecodeError, TypeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "not the path of a text file"
                problems.append(f"{prefix}{key}: cannot read {value}: {reason} ({origin}); name a readable file")
            origins[prefix + base] = f"file {value}, named in {origin}"
    if problems:
        raise ConfigurationError(problems)
    return Layer(layer.values, origins)


def _sections(values: Nested, path: tuple[str, ...], prefix: str) -> Iterator[tuple[Nested, tuple[str, ...], str]]:
    """The section and all sections in it, also the items of lists: the values, the path, and the prefix of keys."""
    yield values, path, prefix
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _sections(value, (*path, key), f"{prefix}{key}.")
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, dict):
                    yield from _sections(item, (*path, key), f"{prefix}{key}[{index}].")


def _secret_from(path: Any, field: FieldInfo) -> Any:
    if not isinstance(path, str) or not path:
        raise TypeError(path)
    text = read_small_file(Path(path).expanduser()).decode("utf-8").strip()
    if list in types_in(field.annotation):
        return [line.strip() for line in text.splitlines() if line.strip()]
    return text
