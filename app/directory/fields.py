"""Checks the values of a record's fields.

Each check returns the value for the record. It raises ``MalformedRecordError`` for an invalid value, with a message
that begins with the field's name.
"""

import math
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime

from app.foundation.clock import EPOCH, from_epoch_ms
from app.foundation.ids import MAX_ID_BYTES
from app.foundation.text import quoted, value_text

MAX_ALIASES = 100
"""The maximum number of aliases per user."""

MAX_NESTING = 32
"""The maximum nesting of lists and objects in extra fields."""

MAX_INTEGER = 2**63 - 1
"""The largest whole number that both databases and JSON writers represent exactly."""

LATEST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""

Fields = dict[str, object]

ACCESS_FIELDS = ("accessType", "accessRole", "expiresAt", "disabled")
"""Fields that affect access. They must not be null, because a missing one would give the most access."""


class MalformedRecordError(ValueError):
    """An object is not a valid record. The message begins with the name of the field. ``advice`` is for authors of
    files."""

    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(f"{problem}; {advice}" if advice else problem)
        self.problem, self.advice = problem, advice


class RepeatedKeys(dict[str, object]):
    """A JSON object in which a key occurred twice."""

    repeated_key: str


def object_from_pairs(pairs: list[tuple[str, object]]) -> Fields:
    """The ``object_pairs_hook`` of ``json``: an object from its pairs, as ``RepeatedKeys`` if a key occurs twice."""
    fields = dict(pairs)
    if len(fields) == len(pairs):
        return fields
    marked = RepeatedKeys(fields)
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            marked.repeated_key = str(name)
            break
        seen.add(name)
    return marked


def checked_id(value: object, name: str) -> str:
    if type(value) is str and 0 < len(value) <= MAX_ID_BYTES and value.isascii() and "\0" not in value:
        return value
    text = checked_text(value, name)
    if not text:
        raise MalformedRecordError(f"{name}: is empty")
    if len(text.encode()) > MAX_ID_BYTES:
        raise MalformedRecordError(f"{name}: is longer than {MAX_ID_BYTES} bytes")
    return text


def checked_aliases(value: object, name: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise MalformedRecordError(f"{name}: must be a list of texts, but is {name_of_type(value)}")
    if len(value) > MAX_ALIASES:
        raise MalformedRecordError(f"{name}: has {len(value):,} entries; the maximum is {MAX_ALIASES}")
    return tuple(dict.fromkeys(checked_alias(alias, f"{name}[{number}]") for number, alias in enumerate(value)))


def usable_aliases(value: object) -> tuple[list[object], tuple[str, ...]]:
    """The usable aliases of a list, and the errors of the others. Elements that are not text stay in the list.

    Users can often edit their aliases, so an unusable alias must not make the user malformed.
    """
    usable: list[object] = []
    left_out: list[str] = []
    for number, alias in enumerate(value if isinstance(value, list) else ()):
        try:
            if isinstance(alias, str):
                checked_alias(alias, f"aliases[{number}]")
            usable.append(alias)
        except MalformedRecordError as error:
            left_out.append(f"{error}; it is left out")
    return usable, tuple(left_out)


def checked_alias(value: object, name: str) -> str:
    """The folded alias. Folding can increase its size, so that its size is checked, too."""
    return checked_id(folded_alias(checked_id(value, name)), name)


def folded_alias(text: str) -> str:
    """The form in which aliases are stored and compared: NFC, in lower case.

    Aliases have the same form only if they differ in case, letter by letter, or in the encoding of accents. Full case
    folding would make ``faß`` and ``fass`` equal, and the Kelvin sign a ``k``, so that a similar mailbox would get the
    access of another.
    """
    if text.isascii():
        return text.lower()
    return _composed("".join(map(_lowered, _composed(text))))


def _lowered(letter: str) -> str:
    """The lower case of a letter, if it is one letter whose upper case is the original."""
    lower = letter.lower()
    return lower if len(lower) == 1 and lower.upper() == letter else letter


def _composed(text: str) -> str:
    """NFC, except for single characters that it would replace, such as the Kelvin sign by a K."""
    parts, start = [], 0
    for at, letter in enumerate(text):
        if _is_replaced(letter):
            parts += [unicodedata.normalize("NFC", text[start:at]), letter]
            start = at + 1
    return "".join([*parts, unicodedata.normalize("NFC", text[start:])])


def _is_replaced(letter: str) -> bool:
    meaning = unicodedata.decomposition(letter)
    return meaning != "" and meaning[0] != "<" and " " not in meaning


def checked_text(value: object, name: str) -> str:
    if not isinstance(value, str):
        advice = "put it in quotes" if isinstance(value, bool | int | float) else ""
        raise MalformedRecordError(f"{name}: must be text, but is {name_of_type(value)}", advice)
    if "\0" in value:
        raise MalformedRecordError(f"{name}: contains a NUL character")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise MalformedRecordError(f"{name}: contains half of a surrogate pair") from None
    return value


def checked_flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise MalformedRecordError(f"{name}: must be true or false, but is {name_of_type(value)}")
    return value


def checked_member(value: object, name: str, members: Mapping[str, object]) -> object:
    if not isinstance(value, str) or value not in members:
        raise MalformedRecordError(f"{name}: {quoted(value)} is not one of {', '.join(members)}")
    return members[value]


def checked_context_value(value: object, name: str) -> str:
    """The value as text. Numbers are converted, because values are compared as text."""
    text = value_text(value)
    return checked_id(value if text is None else text, name)


def _is_finite(number: float) -> bool:
    # math.isfinite converts an int to float, and raises OverflowError for the largest.
    return isinstance(number, int) or math.isfinite(number)


def checked_time(value: object, name: str) -> datetime:
    """The time in UTC, rounded down to milliseconds."""
    if isinstance(value, str):
        return _time_from_text(value, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value) or value != int(value):
        raise MalformedRecordError(f"{name}: must be an ISO 8601 time with a zone, or epoch milliseconds")
    if not 0 <= value <= LATEST_MS:
        raise MalformedRecordError(f"{name}: {quoted(value)} is out of range for epoch milliseconds")
    return from_epoch_ms(int(value))


def _time_from_text(text: str, name: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise MalformedRecordError(f"{name}: {quoted(text)} is not an ISO 8601 time") from None
    if time.utcoffset() is None:
        raise MalformedRecordError(f"{name}: {quoted(text)} has no time zone; write 2030-12-31T18:00:00Z or +01:00")
    try:
        time = time.astimezone(UTC)
    except OverflowError:
        raise MalformedRecordError(f"{name}: {quoted(text)} is out of range") from None
    if time < EPOCH:
        raise MalformedRecordError(f"{name}: {quoted(text)} is before 1970")
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


def checked_extra_fields(fields: Fields) -> Mapping[str, object]:
    for name, value in fields.items():
        checked_text(name, "field name")
        check_json(value, name)
    return fields


def check_json(value: object, name: str, depth: int = MAX_NESTING) -> None:
    """Raises ``MalformedRecordError`` for a value that JSON cannot represent. YAML can contain such values."""
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        checked_text(value, name)
    elif isinstance(value, int | float):
        if not _is_finite(value):
            raise MalformedRecordError(f"{name}: is not a finite number")
        if abs(value) > MAX_INTEGER:
            raise MalformedRecordError(f"{name}: the magnitude of the number is more than 2^63 - 1")
    elif depth == 0:
        raise MalformedRecordError(f"{name}: is nested more than {MAX_NESTING} deep")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            check_json(inner, f"{name}[{number}]", depth - 1)
    elif isinstance(value, RepeatedKeys):
        raise MalformedRecordError(f"{name}.{value.repeated_key}: this key occurs twice in one object")
    elif isinstance(value, dict):
        for key, inner in value.items():
            checked_text(key, f"{name}, a key in it")
            check_json(inner, f"{name}.{key}", depth - 1)
    else:
        raise MalformedRecordError(f"{name}: {name_of_type(value)} cannot be sent as JSON")


def name_of_type(value: object) -> str:
    names = {
        type(None): "null",
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "an object",
        RepeatedKeys: "an object",
    }
    return names.get(type(value), type(value).__name__)
