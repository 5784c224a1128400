"""The bound for the size of results is never too low."""

import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.directory.mapping.cel import EvaluationError, Variables, language
from app.directory.mapping.expression_tree import tree_of
from app.directory.mapping.result_size import TooLargeError, size_bound, size_of

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
]


@pytest.mark.parametrize("text", BOMBS)
def test_an_expression_with_a_huge_result_is_not_evaluated(text: str) -> None:
    values = {"a": "x" * 1000, "b": "x", "l": ["x" * 1000] * 300, "m": {"k": ["x" * 1000] * 300}, "which": "a"}
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
        ["it.a", "it.b", "'xy'", "''", "it.l.join(it.b)", "it.l.join('-')", "it.m.k.join(it.a)", "it['a']"]
    ),
    lambda part: st.one_of(
        st.tuples(part, part).map(lambda two: f"({two[0]} + {two[1]})"),
        st.tuples(part, part, part).map(lambda three: f"{three[0]}.replace({three[1]}, {three[2]})"),
        st.tuples(part, part).map(lambda two: f"{two[0]}.split({two[1]}).join({two[1]})"),
        st.tuples(part, part).map(lambda two: f"{two[0]}.split('x').map(v, v + {two[1]}).join(',')"),
        st.tuples(part, part).map(
            lambda two: f"it.l.filter(v, v != {two[0]}).map(v, v.replace('x', {two[1]})).join('')"
        ),
        st.tuples(part, part).map(lambda two: f"[{two[0]}, {two[1]}].map(v, v + v).join({two[0]})"),
        st.tuples(part, part).map(lambda two: f"'%s-%s'.format([{two[0]}, {two[1]}])"),
        st.tuples(part, part).map(lambda two: f"(it.a == '' ? {two[0]} : {two[1]})"),
        part.map(lambda one: f"upper({one})"),
        part.map(lambda one: f"strings.quote({one})"),
    ),
    max_leaves=6,
)
TEXTS = st.text("xyß\n\"'-ﬃ", max_size=12)


@given(PARTS, TEXTS, TEXTS, st.lists(TEXTS, max_size=5))
@settings(max_examples=300, deadline=None)
def test_the_bound_is_never_too_low(text: str, a: str, b: str, many: list[str]) -> None:
    values = {"a": a, "b": b, "l": many, "m": {"k": many}}
    spoken = language("it")
    bound = size_bound(tree_of(spoken.environment.compile(text).serialize()))
    if bound is None:
        return
    try:
        most = bound({"it": values})
    except TooLargeError:
        return
    made = spoken.compile(text).evaluate(Variables(spoken, {"it": values}))
    assert size_of(made).total <= most.total
    assert size_of(made).largest <= most.largest
