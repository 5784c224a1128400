"""Strict JSON: rejected texts, and the equivalence of the fast and the slow parser."""

import json
import math
from functools import partial
from time import thread_time
from timeit import timeit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.contract.errors import InvalidArgument
from app.http.strict_json import MAX_DEPTH, parse, parse_slowly


def nested(levels: int, inner: str = "1") -> bytes:
    return ("[" * levels + inner + "]" * levels).encode()


REFUSED = {
    "duplicate key": (b'{"a":1,"a":1}', "the key 'a' twice"),
    "duplicate key below": (b'[{"x":[{"b":1,"c":2,"b":{}}]}]', "the key 'b' twice"),
    "duplicate through an escape": (rb'{"a":1,"\u0061":2}', "the key 'a' twice"),
    "duplicate hidden by an escaped colon": (rb'{"a":"\u003a","b":1,"b":2}', "the key 'b' twice"),
    "duplicate hidden by an escaped colon, upper case": (rb'{"a":"\u003A","b":1,"b":2}', "the key 'b' twice"),
    "duplicate whose lost value holds colons": (b'{"a":"::","a":""}', "the key 'a' twice"),
    "NUL": (rb'{"a":"x\u0000y"}', "NUL"),
    "NUL in a key": (rb'{"x\u0000":1}', "NUL"),
    "raw NUL": (b'{"a":"x\x00y"}', "not valid JSON"),
    "lone surrogate": (rb'["\ud800"]', "surrogate"),
    "lone low surrogate": (rb'["\udc00x"]', "surrogate"),
    "lone surrogate in a key": (rb'{"\ud800":1}', "surrogate"),
    "NaN": (b'{"a":NaN}', "NaN"),
    "Infinity": (b"[-Infinity]", "Infinity"),
    "beyond a double": (b"[1e999]", "beyond the range of a double"),
    "beyond 64 bits": (b"[9223372036854775808]", "beyond 64 bits"),
    "beyond 64 bits, negative": (b"[-9223372036854775809]", "beyond 64 bits"),
    "thousands of digits": (b"[" + b"7" * 10_000 + b"]", "beyond 64 bits"),
    "byte order mark": (b"\xef\xbb\xbf{}", "byte order mark"),
    "UTF-16": ('{"a":1}'.encode("utf-16"), "UTF-8"),
    "invalid UTF-8": (b'{"a":"\xff"}', "UTF-8"),
    "truncated": (b'{"a":', "not valid JSON"),
    "single quotes": (b"{'a':1}", "not valid JSON"),
    "two values": (b"{} {}", "not valid JSON"),
    "too deep": (nested(MAX_DEPTH + 1), "nested"),
    "too deep for orjson to write": (nested(300), "nested"),
    "too deep for orjson to read": (nested(5_000), "nested"),
    "too deep for Python": (nested(200_000), "nested"),
    "never closed": (b"[" * 200_000, "nested"),
}


@pytest.mark.parametrize(("raw", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_parse_refuses(raw: bytes, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        parse(raw)
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 200


ACCEPTED = {
    "colons in strings": b'{"a:b":"c:d:","e":["::"]}',
    "same key in different objects": b'[{"a":1},{"a":{"a":2}}]',
    "escaped backslash before u0000": rb'["\\u0000"]',
    "emoji by escape": rb'["\ud83d\ude00"]',
    "largest integers": b"[9223372036854775807,-9223372036854775808]",
    "long digits in text": b'{"id":"12345678901234567890123"}',
    "as deep as allowed": nested(MAX_DEPTH),
    "empty as deep as allowed": nested(MAX_DEPTH, "[]"),
    "newlines and spaces in text": ('{"a":"\\n' + " " * 100 + 'x"}').encode(),
    "minus zero": b"[-0,-0.0]",
    "scalar": b'"x"',
    "white space around": b' \r\n\t{"a" : 1} ',
}


@pytest.mark.parametrize("raw", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_parse_accepts(raw: bytes) -> None:
    assert parse(raw) == json.loads(raw)


ODD_VALUES = {
    "NUL": (rb'{"a":"x\u0000y"}', {"a": "x\0y"}),
    "NUL in a key": (rb'{"x\u0000":1}', {"x\0": 1}),
    "lone surrogate": (rb'["\ud800"]', ["\ud800"]),
    "lone low surrogate": (rb'["\udc00x"]', ["\udc00x"]),
    "lone surrogate in a key": (rb'{"\ud800":1}', {"\ud800": 1}),
    "beyond a double": (b"[1e999]", [math.inf]),
    "beyond 64 bits": (b"[9223372036854775808]", [math.inf]),
    "beyond 64 bits, negative": (b"[-9223372036854775809]", [-math.inf]),
    "thousands of digits": (b"[" + b"7" * 10_000 + b"]", [math.inf]),
}


@pytest.mark.parametrize(("raw", "value"), ODD_VALUES.values(), ids=ODD_VALUES.keys())
def test_parse_returns_odd_values_on_request(raw: bytes, value: object) -> None:
    assert parse(raw, odd_values=True) == value


@pytest.mark.parametrize("case", sorted(REFUSED.keys() - ODD_VALUES.keys()))
def test_parse_with_odd_values_refuses_everything_else(case: str) -> None:
    raw, message = REFUSED[case]
    with pytest.raises(InvalidArgument, match=message):
        parse(raw, odd_values=True)


@pytest.mark.parametrize("raw", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_parse_with_odd_values_reads_the_rest_alike(raw: bytes) -> None:
    assert parse(raw, odd_values=True) == parse(raw)


KEYS = st.sampled_from(["a", "b", ":", "a:", "\\u003a", "é", "\\u0061", "\\n"])
STRINGS = st.one_of(
    KEYS,
    st.text(max_size=6).map(lambda text: json.dumps(text)[1:-1]),
    st.sampled_from(["\\u0000", "\\ud800", "\\ud83d\\ude00", "\\u003A", "{", "[", "\\\\u0000", "\x00", "\x7f"]),
)
NUMBERS = st.one_of(
    st.integers().map(str),
    st.integers(-(2**65), 2**65).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["1e999", "-0", "-0.0", "1E400", "01", "NaN", "1.", "9223372036854775808", "0e99999"]),
)
SCALARS = st.one_of(NUMBERS, STRINGS.map(lambda text: f'"{text}"'), st.sampled_from(["true", "false", "null", "nul"]))


def containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Arrays, objects that may repeat a key, and towers of arrays around the depth limit."""
    member = st.tuples(KEYS | STRINGS, inner).map(lambda pair: f'"{pair[0]}": {pair[1]}')
    return st.one_of(
        st.lists(inner, max_size=4).map(lambda items: f"[{','.join(items)}]"),
        st.lists(member, max_size=4).map(lambda items: f"{{{' ,'.join(items)}}}"),
        st.tuples(st.integers(25, 40), inner).map(lambda pair: "[" * pair[0] + pair[1] + "]" * pair[0]),
    )


TEXTS = st.recursive(SCALARS, containers, max_leaves=12).map(lambda text: text.encode("utf-8", "surrogatepass"))


def outcome(reader: object, raw: bytes) -> str:
    try:
        return repr(reader(raw))  # type: ignore[operator] # one of the two readers
    except InvalidArgument as error:
        return f"refused: {error.message}"


@settings(deadline=None)
@given(TEXTS | st.binary(max_size=40))
def test_parse_equals_the_slow_reader(raw: bytes) -> None:
    assert outcome(parse, raw) == outcome(parse_slowly, raw)
    assert outcome(partial(parse, odd_values=True), raw) == outcome(partial(parse_slowly, odd_values=True), raw)


LARGE = b" " * 70_000
"""Before a text: it is then read in the way that spares memory."""


@pytest.mark.parametrize("raw", [*(raw for raw, _ in REFUSED.values()), *ACCEPTED.values()])
@pytest.mark.parametrize("odd_values", [False, True])
def test_large_texts_are_read_alike(raw: bytes, odd_values: bool) -> None:
    large = LARGE + raw
    assert outcome(partial(parse, odd_values=odd_values), large) == outcome(
        partial(parse_slowly, odd_values=odd_values), large
    )


@settings(deadline=None)
@given(TEXTS | st.binary(max_size=40))
def test_large_texts_equal_the_slow_reader(raw: bytes) -> None:
    large = LARGE + raw
    assert outcome(parse, large) == outcome(parse_slowly, large)


def test_parse_is_fast_on_a_permission_call() -> None:
    resource = {"type": "document", "id": "document-1234", "organizationId": "acme", "source": "setDocuments"}
    question = {"userId": "user-1234", "resource": {**resource, "parentFolderId": "folder-1234"}}
    raw = json.dumps({"data": {"requests": [question] * 20}}).encode()
    # In seconds of the processor that this thread took, and the best of many, side by side: the machine may be busy.
    took = partial(timeit, number=100, timer=thread_time)
    best, slow = map(
        min, zip(*((took(lambda: parse(raw)), took(lambda: parse_slowly(raw))) for _ in range(15)), strict=True)
    )
    assert best < slow / 2
