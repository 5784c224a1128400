"""The reader of JSON and YAML documents with a list per kind, for directories that people write by hand.

The document is in memory, so that its size is limited. A syntax error fails the read. An invalid record is malformed.
Top-level entries whose names begin with ``x-`` are skipped. They can contain YAML anchors.

YAML tags cannot create objects, times stay text as in JSON, and the expansion of aliases is limited.
"""

import json
from collections.abc import Mapping, Sequence
from typing import IO, Any

import yaml

from app.directory.casting import KINDS_BY_PLURAL, record_from_object
from app.directory.fields import MalformedRecordError, RepeatedKeys, marked_if_repeated, object_from_pairs
from app.directory.source import End, Found, Malformed, MalformedTally, Reading, Remark, Verdict
from app.directory.spelling import resembling
from app.foundation.text import quoted

MAX_DOCUMENT_BYTES = 32 * 1024 * 1024
"""The maximum size of an unpacked document. Larger directories belong in JSON Lines."""

MAX_NODES = 4_000_000
"""The maximum of values in a YAML document after the expansion of aliases."""

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
        if isinstance(list_name, str) and list_name.startswith("x-"):
            continue
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


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, object]:
    loader.flatten_mapping(node)
    # Keys from merge keys may be overridden, so that only written keys are compared.
    written = [loader.construct_object(key, deep=True) for key in getattr(node, "own_keys", ())]
    fields: dict[Any, object] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        try:
            fields[key] = loader.construct_object(value_node, deep=True)
        except TypeError as error:
            raise yaml.constructor.ConstructorError(None, None, "a key is not text", key_node.start_mark) from error
    return marked_if_repeated(fields, written)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def _parse_yaml(text: str) -> tuple[object, Mapping[str, Sequence[int]]]:
    """The document, and list → the first line of each of its entries."""
    try:
        _check_depth(text)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None, {}
            _check_expansion(node)
            # Before the resolution of merge keys, which changes the nodes.
            lines = _lines_in(node)
            return loader.construct_document(node), lines
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise _UnusableError(f"{where}not YAML: {getattr(error, 'problem', None) or 'unreadable'}") from error
    except ValueError as error:
        if isinstance(error, _UnusableError):
            raise
        raise _UnusableError(f"not YAML that can be used: {error}") from error


def _lines_in(root: yaml.Node) -> Mapping[str, Sequence[int]]:
    """Line numbers are from 1. The line of an alias is that of its anchor."""
    return {
        key.value: [entry.start_mark.line + 1 for entry in value.value]
        for key, value in (root.value if isinstance(root, yaml.MappingNode) else ())
        if isinstance(key, yaml.ScalarNode) and isinstance(value, yaml.SequenceNode)
    }


def _check_depth(text: str) -> None:
    """Limits the nesting before recursive functions process the document."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise _UnusableError(f"nested more than {MAX_DEPTH} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _check_expansion(root: yaml.Node) -> None:
    """Limits the number of values. Aliases share their node, so that the size of each node is computed once.

    Also stores the written keys of each mapping in its node, because merge keys change the list of keys.
    """
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size_of(node: yaml.Node) -> int:
        known = sizes.get(id(node))
        if known is not None:
            return known
        if id(node) in open_nodes:
            raise _UnusableError(f"line {node.start_mark.line + 1}: a value contains itself")
        open_nodes.add(id(node))
        size = 1
        if isinstance(node, yaml.MappingNode):
            node.own_keys = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]  # type: ignore[attr-defined] # for _mapping
            size += sum(size_of(key) + size_of(value) for key, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            size += sum(size_of(child) for child in node.value)
        if size > MAX_NODES:
            raise _UnusableError(f"has more than {MAX_NODES:,} values after the expansion of aliases")
        open_nodes.discard(id(node))
        sizes[id(node)] = size
        return size

    size_of(root)
