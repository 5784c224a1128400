"""Expressions: their names, values and errors, and hostile input."""

import re
import string
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.directory.connector import ALL_ATTRIBUTES
from app.directory.fields import MalformedRecordError
from app.directory.mapping.cel import IT, MEMBER, EvaluationError, ExpressionError, Variables, language
from app.directory.mapping.rules import MAX_ELEMENTS, check_values
from tests.choice import examples

USER = {
    "mail": "Ärne@Corp.Example",
    "cn": "org-acme",
    "userAccountControl": 514,
    "groups": ["org-a", "b"],
    "manager": {"id": "m1"},
    "active": True,
    "nothing": None,
}


def value_of(text: str, it: dict[str, object] | None = None, member: dict[str, object] | None = None) -> object:
    spoken = language(IT, MEMBER)
    return spoken.compile(text).evaluate(Variables(spoken, {IT: USER if it is None else it, MEMBER: member or {}}))


SIMPLE = ["it.mail", "has(it.mail)", "lower(it.mail)", "upper(member.mail)", "has(member.mail)", '"viewer"', '""']
ODD_VALUES = ["Ärne@Corp.Example", "", None, True, 7, ["A"], {"a": "b"}, "missing"]


@pytest.mark.parametrize("text", SIMPLE)
@pytest.mark.parametrize("value", ODD_VALUES, ids=repr)
def test_shortcuts_return_the_values_of_the_library(text: str, value: object) -> None:
    thing = {} if value == "missing" else {"mail": value}

    def given(text: str) -> tuple[object, str]:
        try:
            return value_of(text, thing, thing), ""
        except EvaluationError as error:
            return None, str(error)

    assert given(text) == given(f"[{text}][0]")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("it.mail", "Ärne@Corp.Example"),
        ('it["mail"]', "Ärne@Corp.Example"),
        ("lower(it.mail)", "ärne@corp.example"),
        ('upper("ß")', "SS"),
        ("it.cn.substring(4)", "acme"),
        ('it.cn.startsWith("org-")', True),
        ("math.bitAnd(it.userAccountControl, 2) != 0", True),
        ('it.groups.exists(one, one.startsWith("org-"))', True),
        ('it.groups.filter(one, one.startsWith("org-"))', ["org-a"]),
        ("it.manager.id", "m1"),
        ('"viewer"', "viewer"),
        ('{"a": "x", "org-acme": "y"}[it.cn]', "y"),
        ('it.cn.matches("^org-[a-z]+$")', True),
        ('timestamp("2027-01-31T18:00:00Z")', "2027-01-31T18:00:00.000Z"),
        ("it.nothing", None),
        # A missing attribute makes a value missing, wherever it stands; who asks first has one.
        ("it.absent", None),
        ("lower(it.absent)", None),
        ("it.absent.further", None),
        ("it.manager.absent", None),
        ('it.absent + "x"', None),
        ("it.absent == 3", None),
        ("has(it.absent)", False),
        ('it.?absent.orValue("none")', "none"),
        ('it.absent == 3 || it.cn == "org-acme"', True),
    ],
)
def test_values(text: str, value: object) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("it.cn.substring(40)", "greater than <string>.size()"),
        ("it.mail + 1", "+ does not support values of these types; the types here are (string, int)"),
        ("it.userAccountControl / 0", "divide by zero"),
        ('it.cn.matches(it.cn + "(")', "invalid regular expression"),
        ('{"a": "viewer"}[it.cn]', "its table has no 'org-acme'"),
        ('duration("3s")', "results in a duration, which a record cannot contain"),
        ('b"abc"', "results in bytes"),
        ("type(it)", "results in a type"),
        ("lower(it.userAccountControl)", "lower does not support values of these types"),
        ("it.mail.further", "Applying SELECT"),
    ],
)
def test_evaluation_errors_are_one_line(text: str, reason: str) -> None:
    with pytest.raises(EvaluationError, match=r"^[^\n]+$") as caught:
        value_of(text)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("mail", "there is no name mail; did you mean it.mail?"),
        ("lowercase(it.mail)", "there is no function lowercase; did you mean lower?"),
        ("it.mail.lower()", "lower is called as lower(it.mail)"),
        ("math.median(1, 2)", "math has"),
        ("it.mail ==", "is not an expression: Syntax error"),
        ("it.", "is not an expression: Syntax error"),
        ('true ? "a" : 1', "no matching overload"),
        ("lower(3)", "no matching overload"),
        ("it.?mail", "may have no value: end it in .orValue"),
        ("(" * 40 + "1" + ")" * 40, "recursion limit"),
        ("it" + ".a" * 100, "recursion depth"),
        ("1" * 5_000, "is longer than 4,000 characters"),
        ('"\0"', "NUL"),
        ('"\\ud800"', "is not an expression"),
    ],
)
def test_invalid_expressions_are_rejected_by_the_compiler(text: str, reason: str) -> None:
    with pytest.raises(ExpressionError, match=r"^[^\n]+$") as caught:
        language(IT).compile(text)
    assert reason in str(caught.value)


def test_member_exists_only_in_its_language() -> None:
    with pytest.raises(ExpressionError, match="member exists only in rules with each: members"):
        language(IT).compile("member.userId")
    assert value_of('member.userId + "@" + it.cn', member={"userId": "u1"}) == "u1@org-acme"


@pytest.mark.parametrize(
    ("text", "it", "member"),
    [
        ("it.mail", {"mail"}, set()),
        ("has(it.mail)", {"mail"}, set()),
        ('it["mail"]', {"mail"}, set()),
        ("it.`not-a-name`", {"not-a-name"}, set()),
        ('it.?mail.orValue("")', {"mail"}, set()),
        ("it.?a.?b.orValue(1)", {"a"}, set()),
        ("it.a.b.c", {"a"}, set()),
        ('it.a == "x" || (it.b ? it.c : member.d)', {"a", "b", "c"}, {"d"}),
        ("it.groups.exists(one, one.cn == it.cn)", {"groups", "cn"}, set()),
        ("it.groups.exists(it, it.cn == member.cn)", {"groups"}, {"cn"}),
        ('{"k": it.a}[it.b]', {"a", "b"}, set()),
        ('[it.a, it.b].join("-")', {"a", "b"}, set()),
        ("it[it.which]", {"which", ALL_ATTRIBUTES}, set()),
        ("it", {ALL_ATTRIBUTES}, set()),
        ('"mail" in it', {ALL_ATTRIBUTES}, set()),
        ("it.exists(name, name == 'x')", {ALL_ATTRIBUTES}, set()),
        ('"viewer"', set(), set()),
    ],
)
def test_the_names_of_an_expression_are_found(text: str, it: set[str], member: set[str]) -> None:
    names = language(IT, MEMBER).compile(text).names
    assert (names.get(IT, frozenset()), names.get(MEMBER, frozenset())) == (it, member)


_names = st.sampled_from(["a", "b", "c", "d"])
_texts = st.recursive(
    _names.map(lambda name: f"it.{name}")
    | st.sampled_from(['"x"', '"y"', 'it["d"]'])
    | _names.map(lambda name: f'it.?{name}.orValue("o")'),
    lambda inner: st.one_of(
        inner.map(lambda one: f"lower({one})"),
        st.tuples(inner, inner).map(lambda two: f"({two[0]} + {two[1]})"),
        st.tuples(_names, inner, inner).map(lambda three: f"(has(it.{three[0]}) ? {three[1]} : {three[2]})"),
        st.tuples(inner, inner).map(lambda two: f"[{two[0]}].map(e, e + {two[1]})[0]"),
    ),
    max_leaves=6,
)


@settings(max_examples=examples(200), deadline=None)
@given(text=_texts, values=st.dictionaries(_names, st.text(string.ascii_letters, max_size=3)))
def test_other_attributes_do_not_affect_an_expression(text: str, values: dict[str, object]) -> None:
    try:
        names = language(IT).compile(text).names.get(IT, frozenset())
    except ExpressionError as error:
        assert "recursion" in str(error)  # noqa: PT017 - the only possible reason
        return
    assert value_of(text, values) == value_of(text, {name: values[name] for name in values if name in names})


_plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@settings(max_examples=examples(200), deadline=None)
@given(value=_plain)
def test_plain_attributes_equal_the_values_of_the_library(value: object) -> None:
    it = {"a": value}
    try:
        check_values(it)
    except MalformedRecordError:
        return
    # Spelt as ``it.a`` it is taken from the object, in brackets it goes through the library.
    assert value_of("it.a", it) == value_of('it["a"]', it)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("a\0b", "mail: contains a NUL character"),
        ("a\ud800b", "mail: contains half of a surrogate pair"),
        (["x", "a\0b"], "mail[1]: contains a NUL character"),
        ({"a\0": 1}, "mail, a key in it: contains a NUL character"),
        ({1: 2}, "mail, a key in it: must be text, but is a number; put it in quotes"),
        (["x", ["y", 2**63]], "mail[1][1]: the magnitude of the number is more than 2^63 - 1"),
        (-(2**63), "mail: the magnitude of the number is more than 2^63 - 1"),
        (10**400, "mail: the magnitude of the number is more than 2^63 - 1"),
        (float("nan"), "mail: is not a finite number"),
        (float("-inf"), "mail: is not a finite number"),
        ((1, 2), "mail: tuple cannot be sent as JSON"),
        (b"x", "mail: bytes cannot be sent as JSON"),
    ],
)
def test_unusable_values_are_rejected(value: object, reason: str) -> None:
    with pytest.raises(MalformedRecordError, match=f"^{re.escape(reason)}$"):
        check_values({"cn": "x", "mail": value})


def test_deeply_nested_values_are_rejected_before_they_crash_the_library() -> None:
    deep: object = "x"
    for depth in range(1, 100_000):
        deep = [deep]
        if depth == 32:
            check_values({"a": deep})
            assert value_of("it.a == it.a", {"a": deep}) is True
    with pytest.raises(MalformedRecordError, match=r"^a(\[0\]){32}: is nested more than 32 deep"):
        check_values({"a": deep})
    while isinstance(deep, list):
        # Taken apart by hand: the interpreter does it recursively.
        deep = deep.pop()


def test_loops_end() -> None:
    check_values({"groups": ["x"] * (MAX_ELEMENTS + 1)})
    with pytest.raises(MalformedRecordError, match="groups: has 2,001 values; expressions go through 2,000 at most"):
        check_values({"groups": ["x"] * (MAX_ELEMENTS + 1)}, with_loops=True)
    assert language(IT).compile("it.groups.exists(g, g == it.cn)").loops
    assert not language(IT).compile("it.groups[0]").loops
    with pytest.raises(EvaluationError, match="Iteration budget exceeded"):
        value_of("it.g.exists(a, it.g.exists(b, a + b == 'y'))", {"g": ["x"] * 500})


def test_regular_expressions_take_linear_time() -> None:
    assert value_of('it.a.matches("^(a+)+$")', {"a": "a" * 50_000 + "b"}) is False


@pytest.mark.process
def test_without_the_library_the_extra_is_named_once() -> None:
    program = (
        "import sys; sys.modules['cel_expr_python'] = None\n"
        "from pydantic import TypeAdapter, ValidationError\n"
        "from app.directory.mapping.settings import RuleList\n"
        "user = dict.fromkeys(['userId', 'name', 'email'], 'it.a')\n"
        "rule = {'from': 'a', 'when': 'it.a', 'each': 'members', 'user': user}\n"
        "try: TypeAdapter(RuleList).validate_python([rule, rule])\n"
        "except ValidationError as error: print([one['msg'] for one in error.errors()])\n"
        # A source without rules needs none of it.
        "from app.directory.mapping.rules import Rules\n"
        "assert not Rules(()).all\n"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "rules need the package cel-expr-python: pip install 'usher[mapping]'" in process.stdout
    assert process.stdout.count("Value error") == 1
