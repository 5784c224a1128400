"""The layers of settings: command line, environment and files."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource

from app.foundation.configuration.problems import ConfigurationError, suggest
from app.foundation.configuration.schema import (
    FILE_SUFFIX,
    PREFIX,
    Nested,
    field_at,
    is_secret,
    is_section,
    lay_over,
    models_in,
    nested,
    of_type,
    types_in,
)
from app.foundation.files import read_small_file

CONFIG_VARIABLE = "USHER_CONFIG"

_FOREIGN_VARIABLES = re.compile(r"USHER_(TEST_\w+|SERVICE_HOST|SERVICE_PORT\w*|PORT(_\w+)?)")
"""Ours without being settings: what the tests read, and what Kubernetes sets in every pod beside a service "usher"."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of settings. ``origins`` contains the origin of each dotted key."""

    values: Nested
    origins: Mapping[str, str]


def layer_from_file(model: type[BaseModel], path: Path) -> Layer:
    """Reads a YAML file. The origin of each key is ``FILE:LINE``."""
    try:
        text = read_small_file(path).decode("utf-8")
    except OSError as error:
        raise ConfigurationError([f"settings file {path}: {error.strerror}; name another with --config"]) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            [f"settings file {path}: not UTF-8 at byte {error.start}; save it as UTF-8"]
        ) from error
    try:
        _refuse_aliases(text, path)
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        lines = dict(_lines(node, path)) if node is not None else {}
        values = loader.construct_document(node) if node is not None else {}
    except yaml.YAMLError as error:
        raise ConfigurationError([f"settings file {path}{_yaml_problem(error)}"]) from error
    except ValueError as error:
        # YAML makes a date of what looks like one.
        raise ConfigurationError(
            [f"settings file {path}: a value looks like a date but is not one ({error})"]
        ) from error
    except RecursionError as error:
        raise ConfigurationError([f"settings file {path}: is nested without end"]) from error
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise ConfigurationError(
            [f"settings file {path}: must hold keys and values, as in 'database_url: sqlite:///…'"]
        )
    origins = {key: f"{path}:{line}" for key, line in lines.items()}
    values = {key: {} if value is None and is_section(model, key) else value for key, value in values.items()}
    return with_secret_files(model, Layer(values, origins))


def _refuse_aliases(text: str, path: Path) -> None:
    """Few of them in one another stand for more values than there is memory."""
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise ConfigurationError(
                [f"settings file {path}:{line}: *{event.anchor} refers to another value; write the value here"]
            )


def _lines(node: yaml.Node, path: Path, prefix: str = "") -> Iterator[tuple[str, int]]:
    if not isinstance(node, yaml.MappingNode):
        return
    seen: dict[str, int] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != "tag:yaml.org,2002:str":
            raise ConfigurationError([f"settings file {path}:{line}: a key must be plain text; put it in quotes"])
        key = prefix + key_node.value
        if key in seen:
            raise ConfigurationError(
                [f"settings file {path}:{line}: {key} stands here and on line {seen[key]}; keep one of the two"]
            )
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
    """pydantic-settings' reader, on variables that are passed in, with lists as JSON or separated by commas."""

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
    """Reads variables such as ``USHER_PROVIDER__PATH``. An unknown name is a problem."""
    given = {name: value for name, value in environment.items() if name.upper().startswith(PREFIX)}
    given = {
        name: value
        for name, value in given.items()
        if name.upper() != CONFIG_VARIABLE and not _FOREIGN_VARIABLES.fullmatch(name.upper())
    }
    names = {name: tuple(name[len(PREFIX) :].lower().split("__")) for name in given}
    problems = [
        f"{name}: not a setting (environment); {suggest(model, path, as_variable=True)}"
        for name, path in sorted(names.items())
        if not _is_known(model, path)
    ]
    if problems:
        raise ConfigurationError(problems)
    origins = {".".join(path): f"environment {name}" for name, path in names.items()}
    # A file that holds a secret is read first, so that the reader sees its content under the secret's own name.
    plain = {name: value for name, value in given.items() if field_at(model, names[name]) is not None}
    values: Nested = _Environment(model, plain)()
    lay_over(values, nested({".".join(names[name]): given[name] for name in given if name not in plain}))
    return with_secret_files(model, Layer(values, origins))


def _is_known(model: type[BaseModel], path: Sequence[str]) -> bool:
    if field_at(model, path) is not None:
        return True
    last = path[-1]
    if not last.endswith(FILE_SUFFIX):
        return False
    field = field_at(model, [*path[:-1], last.removesuffix(FILE_SUFFIX)])
    return field is not None and is_secret(last.removesuffix(FILE_SUFFIX), field)


def with_secret_files(model: type[BaseModel], layer: Layer) -> Layer:
    origins = dict(layer.origins)
    problems: list[str] = []

    def resolve(models: Sequence[type[BaseModel]], values: Nested, prefix: str) -> Nested:
        fields = {name: field for one in models for name, field in one.model_fields.items()}
        resolved: Nested = {}
        for key, value in values.items():
            base = str(key).removesuffix(FILE_SUFFIX)
            field = fields.get(base)
            if base != key and key not in fields and field is not None and is_secret(base, field):
                origin = origins.pop(prefix + key, "")
                if base in values:
                    problems.append(f"{prefix}{base}: given as {base} and as {key} ({origin}); keep one of the two")
                    continue
                try:
                    resolved[base] = _secret_from(value, field)
                except (OSError, UnicodeDecodeError, TypeError) as error:
                    reason = error.strerror if isinstance(error, OSError) else "not the path of a text file"
                    problems.append(f"{prefix}{key}: cannot read {value}: {reason} ({origin}); name a readable file")
                origins[prefix + base] = f"file {value}, named in {origin}"
                continue
            inner = models_in(fields[key].annotation) if key in fields else []
            if inner and isinstance(value, dict):
                resolved[key] = resolve(inner, value, f"{prefix}{key}.")
            elif inner and isinstance(value, list):
                resolved[key] = [
                    resolve(of_type(inner, item), item, f"{prefix}{key}[{index}].") if isinstance(item, dict) else item
                    for index, item in enumerate(value)
                ]
            else:
                resolved[key] = value
        return resolved

    values = resolve([model], layer.values, "")
    if problems:
        raise ConfigurationError(problems)
    return Layer(values, origins)


def _secret_from(path: Any, field: FieldInfo) -> Any:
    if not isinstance(path, str) or not path:
        raise TypeError(path)
    text = read_small_file(Path(path).expanduser()).decode("utf-8").strip()
    if list in types_in(field.annotation):
        return [line.strip() for line in text.splitlines() if line.strip()]
    return text
