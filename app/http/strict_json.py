"""Strict JSON: the texts that everybody understands in exactly one way.

JSON leaves open what duplicate keys, huge numbers and lone surrogates mean, and readers differ. Here they are
refused, so that what one part of the system has checked is what another part acts upon. `parse` reads with orjson and
proves with a few scans in C that the text holds nothing of the kind; a text for which they prove nothing goes through
`parse_slowly`, which tells what is wrong.

Of a text whose parts are judged one by one, a value that nobody can store must not cost the other parts their answers.
With `odd_values` such values pass, each as something that a check of the value itself refuses: text with NUL or half
of a surrogate pair as it is, a number that is too large as an infinite one. What makes the whole text ambiguous
(duplicate keys) or costly (depth) is refused all the same.
"""

import json
import math
from typing import NoReturn

import orjson

from app.contract.errors import InvalidArgument
from app.foundation.text import quoted

MAX_DEPTH = 32
"""How many arrays and objects a value may lie in. (`data.requests[0].resource.id` lies in five.)"""

MAX_INTEGER = 2**63 - 1
MIN_INTEGER = -(2**63)
"""Integers beyond these fit neither database, and orjson would quietly turn them into floats."""

_BOM = b"\xef\xbb\xbf"
_DIGITS_TO_ZERO = bytes.maketrans(b"0123456789", b"0" * 10)
_PERHAPS_TOO_LARGE = b"0" * 19
_TOO_DEEP = b"\n" + b"  " * (MAX_DEPTH + 1)
_SMALL = 64 * 1024
"""Of texts up to this, nothing that is done with them is large."""


def values(raw: bytes) -> int:
    """About how many values there are; an object counts as three, because it takes as much memory as three others."""
    return raw.count(b",") + raw.count(b"[") + 3 * raw.count(b"{")


def parse(raw: bytes, *, odd_values: bool = False) -> object:
    """The value of a JSON text in UTF-8. Raises `InvalidArgument` saying what is wrong with it."""
    try:
        value = _loads(raw)
    except (ValueError, RecursionError):
        return parse_slowly(raw, odd_values=odd_values)
    if _is_proven(raw, value):
        return value
    # One at a time: it may be large.
    del value
    return parse_slowly(raw, odd_values=odd_values)


def _loads(raw: bytes) -> object:
    """The value of a text that may be ambiguous still; refused is what either reader refuses.

    orjson copies the text and keeps a tree of it beside the value. Of a large text that is nearly twice its size, which
    the reader of the standard library spares for hardly more time, as long as the text takes a byte for a character.
    """
    if len(raw) <= _SMALL or not raw.isascii() or b"\\ud" in raw or b"\\uD" in raw:
        return orjson.loads(raw)
    return json.loads(raw.decode("ascii"), parse_float=_float_or_refused, parse_constant=_float_or_refused)


def _float_or_refused(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(digits)
    return value


def _is_proven(raw: bytes, value: object) -> bool:
    """Whether `value`, as orjson read it from `raw`, is certainly all that `raw` says. False means: look closer.

    Those who read it refuse a byte order mark, invalid UTF-8, lone surrogates, NaN and infinities by themselves.
    """
    if b"\\" in raw and (b"\\u0000" in raw or b"\\u003a" in raw or b"\\u003A" in raw):
        return False
    if _PERHAPS_TOO_LARGE in raw.translate(_DIGITS_TO_ZERO):
        return False
    if len(raw) > _SMALL:
        return _is_shallow_and_has(value, raw.count(b":"))
    try:
        written = orjson.dumps(value, option=orjson.OPT_INDENT_2)
    except TypeError:  # nested deeper than orjson writes
        return False
    # Written back, a value that has lost a duplicate key has lost that key's colon too. (Colons in strings are never
    # escaped by orjson, and a text that escapes them was sorted out above.) Newlines in strings are escaped, so one
    # that is followed by more than 32 steps of indentation stands before a value that lies deeper than that.
    return written.count(b":") == raw.count(b":") and _TOO_DEEP not in written


def _is_shallow_and_has(value: object, colons: int) -> bool:
    """The same of the value itself: a large one, written back, would take its size again, indented 33 times that."""
    level: list[dict[str, object] | list[object]] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        below: list[dict[str, object] | list[object]] = []
        for item in level:
            if isinstance(item, dict):
                colons -= len(item)
                for key in item:
                    if ":" in key:
                        colons -= key.count(":")
            for child in item.values() if isinstance(item, dict) else item:
                if isinstance(child, str):
                    if ":" in child:
                        colons -= child.count(":")
                elif isinstance(child, dict | list):
                    below.append(child)
        level = below
    # What is left lies in as many as may be; it holds nothing that would lie in one more.
    return colons == 0 and not any(level)


def parse_slowly(raw: bytes, *, odd_values: bool = False) -> object:
    """The same as `parse`, one rule after the other."""
    if raw.startswith(_BOM):
        raise InvalidArgument("the body must not begin with a byte order mark")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"the body is not valid UTF-8 (byte {error.start})") from error
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object_without_duplicates,
            parse_int=_integer_or_infinite if odd_values else _integer,
            parse_float=float if odd_values else _finite,
            parse_constant=_refuse_constant,
        )
    except RecursionError as error:
        raise InvalidArgument(_DEPTH_MESSAGE) from error
    except json.JSONDecodeError as error:
        raise InvalidArgument(
            f"the body is not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        ) from error
    _check_text_and_depth(value, odd_values=odd_values)
    return value


_DEPTH_MESSAGE = f"the body must not be nested deeper than {MAX_DEPTH} levels"


def _object_without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InvalidArgument(f"the body has the key {quoted(key)} twice in one object")
            seen.add(key)
    return result


def _integer(digits: str) -> int:
    value = _integer_or_infinite(digits)
    if isinstance(value, float):
        raise InvalidArgument(f"the body holds a whole number beyond 64 bits: {digits[:24]}")
    return value


def _integer_or_infinite(digits: str) -> int | float:
    if len(digits) <= 20:
        value = int(digits)
        if MIN_INTEGER <= value <= MAX_INTEGER:
            return value
    return -math.inf if digits.startswith("-") else math.inf


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise InvalidArgument(f"the body holds a number beyond the range of a double: {digits[:24]}")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidArgument(f"the body is not valid JSON: {name} is no JSON value")


def _check_text_and_depth(value: object, *, odd_values: bool) -> None:
    level = [value]
    for depth in range(MAX_DEPTH + 2):
        if not level:
            return
        if depth > MAX_DEPTH:
            raise InvalidArgument(_DEPTH_MESSAGE)
        below: list[object] = []
        for item in level:
            if isinstance(item, str):
                if not odd_values:
                    _check_text(item)
            elif isinstance(item, dict):
                if not odd_values:
                    for key in item:
                        _check_text(key)
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        level = below


def _check_text(text: str) -> None:
    if "\0" in text:
        raise InvalidArgument(f"the body holds a NUL character in {quoted(text)}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"the body holds half of a surrogate pair in {quoted(text)}") from error
