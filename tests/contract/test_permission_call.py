"""Parsing of permission questions."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.contract import limits
from app.contract.errors import InvalidArgument
from app.contract.permission_call import MalformedQuestion, Question, parse_question, requests_of
from app.foundation.text import value_text

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()), inner, max_size=3),
    max_leaves=8,
)
IDS = st.sampled_from(["ada", "", "🦉", "a\0", "\ud800", "x" * 513, "a/b"]) | ANYTHING
NEARLY = st.fixed_dictionaries(
    {},
    optional={
        "userId": IDS,
        "resource": ANYTHING
        | st.fixed_dictionaries(
            {},
            optional={
                "type": st.sampled_from(["organization", "folder", "document", "context"]) | ANYTHING,
                "id": IDS,
                "organizationId": IDS,
                "source": ANYTHING,
                "parentFolderId": IDS,
                "context": ANYTHING | st.fixed_dictionaries({"access": ANYTHING}),
            },
        ),
    },
)


def item(**resource):
    return {"userId": "ada", "resource": {"type": "document", "id": "roadmap", "organizationId": "acme", **resource}}


def error_of(question):
    parsed = parse_question(question)
    assert isinstance(parsed, MalformedQuestion)
    return parsed.error


@given(ANYTHING | NEARLY)
def test_parse_question_never_raises(question):
    parsed = parse_question(question)
    # The texts can be returned and stored.
    orjson.dumps([*parsed[:4]])
    if isinstance(parsed, Question):
        for text in (parsed.user_id, parsed.resource_id, parsed.organization_id, *parsed.context):
            assert text
            assert "\0" not in text
        orjson.dumps([dict(parsed.context), parsed.source, parsed.parent_folder_id])
        assert parsed.type in {"organization", "folder", "document", "context"}
    else:
        assert parsed.error


def test_parse_question_of_a_document():
    assert parse_question(item(source="setDocuments", parentFolderId="specs", unknown=1)) == Question(
        "ada", "document", "roadmap", "acme", {}, "setDocuments", "specs"
    )


@pytest.mark.parametrize("organization_id", [{}, {"organizationId": None}, {"organizationId": "acme"}])
def test_organization_without_organization_id(organization_id):
    parsed = parse_question({"userId": "ada", "resource": {"type": "organization", "id": "acme", **organization_id}})
    assert parsed == Question("ada", "organization", "acme", "acme")


def test_organization_with_another_organization_id_is_refused():
    assert error_of(item(type="organization", id="acme", organizationId="globex")) == (
        "resource.organizationId: must equal resource.id when type is organization"
    )


@pytest.mark.parametrize("kind", ["folder", "document", "context"])
def test_other_resources_require_an_organization_id(kind):
    assert error_of(item(type=kind, organizationId=None)) == "resource.organizationId: field required"


@pytest.mark.parametrize(
    ("question", "error"),
    [
        (None, "the request must be an object"),
        ([], "the request must be an object"),
        ({"userId": "ada"}, "resource: must be an object"),
        ({"resource": {"type": "document", "id": "d", "organizationId": "o"}}, "userId: field required"),
        ({"userId": 5, "resource": {"type": "document", "id": "d", "organizationId": "o"}}, "userId: must be a string"),
        (
            {"userId": "", "resource": {"type": "document", "id": "d", "organizationId": "o"}},
            "userId: must not be empty",
        ),
        (item(id="a\0"), "resource.id: must be valid text without NUL of at most 512 bytes"),
        (item(id="\ud800"), "resource.id: must be valid text without NUL of at most 512 bytes"),
        (item(id="x" * 513), "resource.id: must be valid text without NUL of at most 512 bytes"),
        (item(type="page"), "resource.type: must be one of organization, folder, document, context"),
        (item(type=None), "resource.type: must be one of organization, folder, document, context"),
        (item(type=["document"]), "resource.type: must be one of organization, folder, document, context"),
        (item(type="context", context=[]), "resource.context: must be an object"),
        (item(type="context", context={"access": []}), "resource.context.access: must be an object"),
        (
            item(type="context", context={"access": {"a": True}}),
            "resource.context.access: each value must be a string, or a number within 64 bits",
        ),
        (
            item(type="context", context={"access": {"a": ["x"]}}),
            "resource.context.access: each value must be a string, or a number within 64 bits",
        ),
        (
            item(type="context", context={"access": {"a": "x\0"}}),
            "resource.context.access: holds text that is empty, too long or not valid",
        ),
    ],
)
def test_parse_question_reports_the_problem(question, error):
    assert error_of(question) == error


def test_entry_error_contains_the_readable_ids():
    parsed = parse_question(item(type="page"))
    assert parsed[:4] == ("ada", "page", "roadmap", "acme")
    assert parse_question(item(id=5))[:4] == ("ada", "document", "", "acme")
    assert parse_question(item(id="\ud800"))[:4] == ("ada", "document", "", "acme")
    assert parse_question({"userId": "ada"})[:4] == ("ada", "", "", "")


@pytest.mark.parametrize("hint", [5, "", None, [], "a\0", "\ud800", "x" * 513])
def test_invalid_hints_are_ignored(hint):
    parsed = parse_question(item(parentFolderId=hint, source=hint))
    assert isinstance(parsed, Question)
    assert parsed.parent_folder_id is None
    assert parsed.source is None


@pytest.mark.parametrize("context", [{}, {"context": None}, {"context": {}}, {"context": {"access": {}}}])
def test_context_may_be_empty(context):
    parsed = parse_question(item(type="context", **context))
    assert isinstance(parsed, Question)
    assert parsed.context == {}


def test_context_values_are_converted_to_text():
    parsed = parse_question(item(type="context", context={"access": {"widgetId": 2, "team": "core", "rate": 1.5}}))
    assert isinstance(parsed, Question)
    assert parsed.context == {"widgetId": "2", "team": "core", "rate": "1.5"}


def test_context_of_other_types_is_ignored():
    assert isinstance(parse_question(item(context="what")), Question)


def test_context_limit():
    def asking(count):
        return item(type="context", context={"access": {f"f{n}": n for n in range(count)}})

    assert isinstance(parse_question(asking(limits.CONTEXT_ITEMS)), Question)
    assert error_of(asking(limits.CONTEXT_ITEMS + 1)) == "resource.context.access: must hold at most 200 items, not 201"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("2", "2"),
        ("2.0", "2.0"),
        ("", ""),
        (2, "2"),
        (2.0, "2"),
        (-0.0, "0"),
        (-7, "-7"),
        (1.5, "1.5"),
        (0.1, "0.1"),
        (1e-7, "1e-07"),
        (1e15, "1000000000000000"),
        (1e300, "1e+300"),
        (2**63, str(2**63)),
        (2**63 + 1, None),
        (True, None),
        (False, None),
        (None, None),
        ([], None),
        (float("nan"), None),
        (float("inf"), None),
    ],
)
def test_value_text(value, text):
    assert value_text(value) == text


def test_value_text_of_huge_numbers():
    assert value_text(10**5000) is None


@given(st.integers(-(2**53), 2**53))
def test_value_text_of_equal_numbers_is_equal(number):
    assert value_text(number) == value_text(float(number)) == str(number)


def test_requests_of_returns_the_entries_unchanged():
    assert requests_of({"data": {"requests": [1, None, {}]}, "more": 1}) == [1, None, {}]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (None, 'the body must be an object of the form {"data": {"requests": [...]}}'),
        ([], 'the body must be an object of the form {"data": {"requests": [...]}}'),
        ({}, 'the body must be an object of the form {"data": {"requests": [...]}}'),
        ({"data": []}, 'the body must be an object of the form {"data": {"requests": [...]}}'),
        ({"data": {}}, "data.requests: field required"),
        ({"data": {"requests": {}}}, "data.requests: must be an array"),
    ],
)
def test_requests_of_refuses_an_invalid_envelope(body, message):
    with pytest.raises(InvalidArgument) as caught:
        requests_of(body)
    assert caught.value.message == message
