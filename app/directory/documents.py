"""Reads JSON and YAML documents with a list per kind, for directories that people write by hand.

The document is in memory, so that its size is limited. A syntax error fails the read. An invalid record is malformed.

YAML tags cannot create objects, times stay text as in JSON, and aliases are refused.
"""

import json
from collections.abc import Mapping, Sequence
from typing import IO

import yaml

from app.directory.casting import KINDS_BY_PLURAL, record_from_object
from app.directory.fields import MalformedRecordError, RepeatedKeys, object_from_pairs
from app.directory.source import End, Found, Malformed, MalformedTally, Reading, Remark, Verdict
from app.directory.spelling import resembling
from app.foundation.text import quoted

MAX_DOCUMENT_BYTES = 32 * 1024 * 1024
"""The maximum size of an unpacked document. Larger directories belong in JSON Lines."""

MAX_VALUES = 4_000_000
"""The maximum of values in a YAML document. Each takes hundreds of bytes."""

MAX_DEPTH = 100
"""The maximum nesting of a YAML document."""


class _UnusableError(ValueError):
    """The document cannot be used."""


def read_document(stream: IO[bytes], file_name: str, *, is_yaml: bool) -> Reading:
    """The records of a JSON or YAML document. Raises the errors of the stream."""
    try:
        text = _text_of(stream)
        document, lines = _parse_yaml(text) if is_yaml else (_parse_json(text), {})
        lists = _lists_of(document)
    except _UnusableError as error:
        yield End(Verdict.FAILED, f"{file_name}: {error}")
        return
    tally = MalformedTally()
    for list_name, values in lists.items():
        for index, value in enumerate(values):
            line = lines.get(list_name)
            place = f"{file_name}:{line[index] if line else f'{list_name}[{index}]'}"
            yield from tally.counted(_steps(value, KINDS_BY_PLURAL[list_name], place))
    yield tally.end("malformed record")


def _steps(value: object, kind: str, place: str) -> Sequence[Found | Malformed | Remark]:
    try:
        record, remarks = record_from_object(value, kind)
    except MalformedRecordError as error:
        return [Malformed(place, str(error))]
    return [Found(record, place), *(Remark(place, remark) for remark in remarks)]


def _text_of(stream: IO[bytes]) -> str:
    content = stream.read(MAX_DOCUMENT_BYTES + 1)
    if len(content) > MAX_DOCUMENT_BYTES:
        raise _UnusableError(f"is larger than {MAX_DOCUMENT_BYTES:,} bytes; write it as JSON Lines (.jsonl)")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _UnusableError(f"the bytes at {error.start} are not UTF-8") from error


def _parse_json(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=object_from_pairs) if text.strip() else {}
    except json.JSONDecodeError as error:
        raise _UnusableError(f"line {error.lineno}: not JSON: {error.msg}") from error
    except RecursionError as error:
        raise _UnusableError("nested too deep") from error
    except ValueError as error:
        # Python does not convert numbers with thousands of digits.
        raise _UnusableError(f"not JSON that can be used: {error}") from error


def _lists_of(document: object) -> dict[str, list[object]]:
    """The lists by name. Any other entry is an error, because a misspelled ``memberships`` would remove all members."""
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise _UnusableError(f"must be an object with the lists {', '.join(KINDS_BY_PLURAL)}")
    if isinstance(document, RepeatedKeys):
        raise _UnusableError(f"{document.repeated_key}: this key occurs twice")
    lists: dict[str, list[object]] = {}
    for list_name, values in document.items():
        if list_name not in KINDS_BY_PLURAL:
            near = resembling(str(list_name), KINDS_BY_PLURAL)
            hint = f"; did you mean {near}?" if near else ""
            raise _UnusableError(f"{quoted(list_name)} is not one of the lists {', '.join(KINDS_BY_PLURAL)}{hint}")
        if values is not None and not isinstance(values, list):
            raise _UnusableError(f"{list_name}: must be a list")
        lists[list_name] = values or []
    return lists


# YAML.


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # libyaml's loader, if available
    """Loads plain data, with times as text and mappings with repeated keys as ``RepeatedKeys``."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, object]:
    pairs = [tuple(loader.construct_object(part, deep=True) for part in pair) for pair in node.value]
    try:
        return object_from_pairs(pairs)
    except TypeError as error:
        raise yaml.constructor.ConstructorError(None, None, "a key is not text", node.start_mark) from error


_TEXT_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("timestamp", "value")}
"""The tags of times and of ``=``, which are text here."""
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _TEXT_TAGS]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def _parse_yaml(text: str) -> tuple[object, Mapping[str, Sequence[int]]]:
    """The document, and ``_lines_in`` it."""
    try:
        _check_events(text)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            return (None, {}) if node is None else (loader.construct_document(node), _lines_in(node))
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise _UnusableError(f"{where}not YAML: {getattr(error, 'problem', None) or 'unreadable'}") from error
    except _UnusableError:
        raise
    except ValueError as error:
        raise _UnusableError(f"not YAML that can be used: {error}") from error


def _lines_in(root: yaml.Node) -> Mapping[str, Sequence[int]]:
    """List → the first line of each of its entries, from 1."""
    return {
        key.value: [entry.start_mark.line + 1 for entry in value.value]
        for key, value in (root.value if isinstance(root, yaml.MappingNode) else ())
        if isinstance(key, yaml.ScalarNode) and isinstance(value, yaml.SequenceNode)
    }


def _check_events(text: str) -> None:
    """Refuses aliases, and limits values and nesting, before the document is in memory as a whole."""
    depth = values = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise _UnusableError(f"line {line}: *{event.anchor} refers to another value; write the value here")
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.NodeEvent):
            values += 1
            depth += isinstance(event, yaml.CollectionStartEvent)
        if depth > MAX_DEPTH:
            raise _UnusableError(f"nested more than {MAX_DEPTH} deep")
        if values > MAX_VALUES:
            raise _UnusableError(f"has more than {MAX_VALUES:,} values; write it as JSON Lines (.jsonl)")
