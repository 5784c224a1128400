"""The bound for the size of results is never too low."""

import time
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.directory.mapping.cel import EvaluationError, Variables, language
from app.directory.mapping.expression_tree import tree_of
from app.directory.mapping.result_size import TooLargeError, size_bound, size_of
from tests.choice import examples

BOMBS = [
    "it.a.replace(it.b, it.a).replace(it.b, it.a)",
    "it.a.replace('', it.a).replace('', it.a).size()",
    "it.l.join(it.a).replace('x', it.a)",
    "it.l.map(x, it.a + it.a).join(it.a + it.a)",
    "it.l.map(x, it.l.map(y, it.l)).size()",
    "'%s%s'.format([it.a.replace('', it.a), it.a]).replace('', it.a)",
    "[it.a, it.a].map(x, it.a.replace('', x)).join('').replace('', it.a)",
    "it.a.split('').map(x, it.a).join(it.a)",
    "it.m.k.join(it.a).replace(it.b, it.a)",
    "it[it.which].replace(it.b, it.a).replace(it.b, it.a)",
    "{'k': it.a.replace('', it.a)}.k.replace('', it.a)",
    "it.l.filter(x, it.a.replace('', it.a).replace('', it.a) == x).size()",
    "it.n.map(x, x.map(y, it.a)).size()",
    "it.n[0].map(x, it.n[0].map(y, it.a)).size()",
    "{'k': it.n}.k.map(x, x.join(it.a)).size()",
    f"it.l.map(x, string(b'{'x' * 3900}')).size()",
]


@pytest.mark.parametrize("text", BOMBS)
def test_an_expression_with_a_huge_result_is_not_evaluated(text: str) -> None:
    values = {
        "a": "x" * 1000,
        "b": "x",
        "l": ["x" * 1000] * 300,
        "m": {"k": ["x" * 1000] * 300},
        "n": [["x"] * 1000] * 10,
        "which": "a",
    }
    spoken = language("it")
    expression = spoken.compile(text)
    began = time.monotonic()
    tracemalloc.start()
    with pytest.raises(EvaluationError, match="would make more than 1,000,000 characters or elements"):
        expression.evaluate(Variables(spoken, {"it": values}))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.monotonic() - began < 5
    assert peak < 1_000_000


USUAL = [
    ("it.displayName.replace(' ', '.')", "Ada.Lovelace"),
    ("lower(it.first + '.' + it.last) + '@acme.example'", "ada.lovelace@acme.example"),
    (
        "it.proxyAddresses.filter(a, a.startsWith('SMTP:')).map(a, a.substring(5))",
        [f"u{n}@a.example" for n in range(500)],
    ),
    ("it.proxyAddresses.map(a, lower(a.substring(5))).join(',').size()", 7389),
    ("it.proxyAddresses.exists(a, a == 'SMTP:u7@a.example')", True),
    ("it.memberOf.split(',').filter(x, x.startsWith('CN=')).map(x, x.substring(3)).join(' ')", "g1 g2"),
    ("'%s (%s)'.format([it.displayName, it.last])", "Ada Lovelace (Lovelace)"),
    ("it.photo", "x" * 5_000_000),
    ("has(it.photo) ? it.first + '!' : it.last", "Ada!"),
]


@pytest.mark.parametrize(("text", "value"), USUAL)
def test_usual_expressions_are_evaluated(text: str, value: object) -> None:
    values = {
        "displayName": "Ada Lovelace",
        "first": "Ada",
        "last": "Lovelace",
        "proxyAddresses": [f"SMTP:u{number}@a.example" for number in range(500)],
        "memberOf": "CN=g1,OU=x,CN=g2,DC=corp",
        "photo": "x" * 5_000_000,
    }
    spoken = language("it")
    assert spoken.compile(text).evaluate(Variables(spoken, {"it": values})) == value


PARTS = st.recursive(
    st.sampled_from(
        [
            *("it.a", "it.b", "'xy'", "''", "it['a']", "it.n[0][0]", "upper(it.a)", "strings.quote(it.a)"),
            *("it.l.join(it.b)", "it.l.join('-')", "it.m.k.join(it.a)", "it.n[0].map(v, it.a).join('')"),
        ]
    ),
    lambda part: st.one_of(
        st.builds("({0} + {1})".format, part, part),
        st.builds("{0}.replace({1}, {2})".format, part, part, part),
        st.builds("{0}.replace('xy', {1})".format, part, part),
        st.builds("{0}.split({1}).join({1})".format, part, part),
        st.builds("{0}.split('x').map(v, v + {1}).join(',')".format, part, part),
        st.builds("it.l.filter(v, v != {0}).map(v, v.replace('x', {1})).join('')".format, part, part),
        st.builds("it.l.map(v, v.replace({0}, v + v)).join({1})".format, part, part),
        st.builds("it.n.map(v, v.map(w, w + {0}).join({1})).join('')".format, part, part),
        st.builds("it.n.map(v, it.n[0].map(w, w + v.join({0})).join('')).join('')".format, part),
        st.builds("{{'k': it.n}}.k.map(v, v.join({0})).join('')".format, part),
        st.builds("it.n.map(v, '%s'.format([v])).join({0})".format, part),
        st.builds("it.l.exists(v, v == {0}) ? it.n[0].join({1}) : {1}".format, part, part).map("({})".format),
        st.builds("[{0}, {1}].map(v, v + v).join({0})".format, part, part),
        st.builds("'%s-%s'.format([{0}, {1}])".format, part, part),
        st.builds("(it.a == '' ? {0} : {1})".format, part, part),
        st.builds("string(it.n.map(v, v.size() + {0}.size()).size())".format, part),
        st.builds("upper({0})".format, part),
        st.builds("strings.quote({0})".format, part),
        st.builds("'%x'.format([{0}])".format, part),
    ),
    max_leaves=6,
)
LISTS = st.builds("it.n.map(v, v + [{0}])".format, PARTS) | st.builds(
    "it.l.map(v, {{'k': v, 'l': [{0}, v + {1}]}})".format, PARTS, PARTS
)
# Long enough for every rule to matter, and with the letters that the expressions replace and split by.
TEXTS = st.builds(lambda piece, count: piece * count, st.text("xyß\n\"'-ﬃ😀", max_size=3), st.integers(0, 40))
MANY = st.lists(TEXTS, min_size=3, max_size=12)


@example("upper(it.a) + 'x'", "ﬃ" * 40, "", [], [])
@example("'%x'.format([it.a])", "😀" * 1000, "", [], [])
@example("'%.1000f'.format([-1e308])", "", "", [], [])
@given(PARTS | LISTS, TEXTS, TEXTS, MANY, st.lists(MANY, min_size=1, max_size=4))
@settings(max_examples=examples(500), deadline=None)
def test_the_bound_is_never_too_low(text: str, a: str, b: str, many: list[str], nested: list[list[str]]) -> None:
    values = {"a": a, "b": b, "l": many, "m": {"k": many}, "n": nested}
    spoken = language("it")
    bound = size_bound(tree_of(spoken.environment.compile(text).serialize()))
    if bound is None:
        return
    try:
        most = bound({"it": values})
        made = size_of(spoken.compile(text).evaluate(Variables(spoken, {"it": values})))
    except (TooLargeError, EvaluationError):
        # Also of an index out of bounds.
        return
    assert made.total <= most.total
    assert made.elements <= most.elements
