"""Strict JSON: accepts only texts that every JSON parser reads in the same way.

Parsers differ in duplicate keys, huge numbers and lone surrogates. Rejecting those guarantees that all parts of the
system act on what was checked. ``parse`` is fast: it reads with orjson and proves with a few scans in C that the text
contains none of them. If the proof fails, or the text is large, ``parse_slowly`` decides, and reports the problem.

``odd_values`` is for a text whose parts are judged separately, so that one value that cannot be stored does not reject
the others. Text with NUL or lone surrogates is then returned unchanged, and a number that is too large as infinity: the
check of the value itself rejects both. Duplicate keys and deep nesting are rejected in any case.
"""

import json
import math
from contextlib import suppress
from typing import NoReturn

import orjson

from app.contract.errors import InvalidArgument
from app.foundation.json_keys import repeats_no_key
from app.foundation.text import quoted

MAX_DEPTH = 32
"""The maximum nesting of arrays and objects. ``data.requests[0].resource.id`` has five levels."""

MAX_INTEGER = 2**63 - 1
"""The largest integer of the databases. orjson turns integers beyond 64 bits into floats."""
MIN_INTEGER = -(2**63)
"""The smallest integer of the databases."""

_BOM = b"\xef\xbb\xbf"
_DIGITS_TO_ZERO = bytes.maketrans(b"0123456789", b"0" * 10)
_MAYBE_TOO_LARGE = b"0" * 19
_TOO_DEEP = b"\n" + b"  " * (MAX_DEPTH + 1)
_SMALL = 256 * 1024
"""Maximum size of a text that orjson parses, in bytes. ``_is_proven`` copies the text several times."""


def count_values(raw: bytes) -> int:
    """An estimate of the number of values. An object counts as three, because it takes the memory of three values."""
    return raw.count(b",") + raw.count(b"[") + 3 * raw.count(b"{")


def parse(raw: bytes, *, odd_values: bool = False, noun: str = "the body") -> object:
    """The value of a JSON text in UTF-8. Raises ``InvalidArgument`` with the problem, in which ``noun`` is the text."""
    if len(raw) <= _SMALL:
        with suppress(orjson.JSONDecodeError):
            value = orjson.loads(raw)
            if _is_proven(raw, value):
                return value
    return parse_slowly(raw, odd_values=odd_values, noun=noun)


def _is_proven(raw: bytes, value: object) -> bool:
    """Whether ``value`` certainly is the only reading of ``raw``.

    orjson rejects a byte order mark, invalid UTF-8, lone surrogates, NaN and infinities itself.
    """
    if (b"\\" in raw and b"\\u0000" in raw) or _MAYBE_TOO_LARGE in raw.translate(_DIGITS_TO_ZERO):
        return False
    try:
        written = orjson.dumps(value, option=orjson.OPT_INDENT_2)
    except TypeError:  # nested deeper than orjson writes
        return False
    # Newlines in strings are escaped, so a newline before more than 32 steps of indentation shows a deeper value.
    return repeats_no_key(raw, written) and _TOO_DEEP not in written


def parse_slowly(raw: bytes, *, odd_values: bool = False, noun: str = "the body") -> object:
    """Parses like ``parse``, with one check for each rule."""
    try:
        return _parse_slowly(raw, odd_values=odd_values)
    except _NotStrictError as error:
        raise InvalidArgument(f"{noun} {error}") from error


class _NotStrictError(Exception):
    """The problem of the text, as the predicate of a sentence about it."""


def _parse_slowly(raw: bytes, *, odd_values: bool) -> object:
    if raw.startswith(_BOM):
        raise _NotStrictError("must not begin with a byte order mark")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise _NotStrictError(f"is not valid UTF-8 (byte {error.start})") from error
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object_without_duplicates,
            parse_int=_integer_or_infinity if odd_values else _integer,
            parse_float=float if odd_values else _float,
            parse_constant=_refuse_constant,
        )
    except RecursionError as error:
        raise _NotStrictError(_DEPTH_MESSAGE) from error
    except json.JSONDecodeError as error:
        raise _NotStrictError(f"is not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})") from error
    _check_text_and_depth(value, odd_values=odd_values)
    return value


_DEPTH_MESSAGE = f"must not be nested deeper than {MAX_DEPTH} levels"


def _object_without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _NotStrictError(f"has the key {quoted(key)} twice in one object")
            seen.add(key)
    return result


def _integer(digits: str) -> int:
    value = _integer_or_infinity(digits)
    if isinstance(value, float):
        raise _NotStrictError(f"holds a whole number beyond 64 bits: {digits[:24]}")
    return value


def _integer_or_infinity(digits: str) -> int | float:
    if len(digits) <= 20:
        value = int(digits)
        if MIN_INTEGER <= value <= MAX_INTEGER:
            return value
    return -math.inf if digits.startswith("-") else math.inf


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise _NotStrictError(f"contains a number beyond the range of a double: {digits[:24]}")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise _NotStrictError(f"is not valid JSON: {name} is not a JSON value")


def _check_text_and_depth(value: object, *, odd_values: bool) -> None:
    level = [value]
    for depth in range(MAX_DEPTH + 2):
        if not level:
            return
        if depth > MAX_DEPTH:
            raise _NotStrictError(_DEPTH_MESSAGE)
        below: list[object] = []
        for item in level:
            texts: list[str] = [item] if isinstance(item, str) else list(item) if isinstance(item, dict) else []
            if not odd_values:
                for text in texts:
                    _check_text(text)
            if isinstance(item, dict | list):
                below.extend(item.values() if isinstance(item, dict) else item)
        level = below


def _check_text(text: str) -> None:
    if "\0" in text:
        raise _NotStrictError(f"holds a NUL character in {quoted(text)}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise _NotStrictError(f"holds half of a surrogate pair in {quoted(text)}") from error
