"""Casters: many rows with the same fields become what each of them would become by itself, or are left to that."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.access.kinds import KINDS
from app.directory.casters import caster
from app.directory.casting import object_from_record, record_from_object
from app.directory.fields import MalformedRecordError
from tests.directory.test_casting import any_record

ODD = st.sampled_from([
    None, True, False, 0, 7, -1, 1.5, float("nan"), 2**63, "", " ", "x" * 128, "x" * 129, "ä" * 128, "ä" * 400,
    "İ" * 128, "a\0b", "\ud800", "viewer", "editor", "public", "2027-01-31T18:00:00Z", "2027-01-31",
    "1969-01-01T00:00:00Z", "0001-01-01T00:00:00+01:00", 1_800_000_000_000, b"bytes", [], ["a", "A", 1], {},
    {"a": ["\0"]}, [[]] * 2, {1: 2}, object(),
])  # fmt: skip
"""What may stand in a field, and mostly must not."""
NAMES = ["department", "x-note", "emails", "expires_at", "accesType", "disabled", "kind"]


@st.composite
def rows(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A kind and the fields of an object that is one, or nearly."""
    fields = object_from_record(draw(any_record))
    kind = str(fields.pop("kind"))
    for name in draw(st.lists(st.sampled_from([*KINDS[kind].field_names, *NAMES]), max_size=2)):
        fields[name] = draw(ODD)
    return kind, fields


@given(rows(), st.booleans())
@example(("user", {"userId": "a", "name": "A", "email": "", "department": None}), True)
@example(("user", {"userId": "a", "name": "A", "email": "", "department": None}), False)
@example(("contextGrant", {"organizationId": "o", "userId": "u", "field": "f", "value": 7}), True)
def test_a_caster_makes_the_record_that_the_object_is_or_none(row: tuple[str, dict[str, Any]], null: bool) -> None:
    kind, fields = row
    cast = caster(kind, list(fields), null_travels=null)
    made = cast(*fields.values()) if cast else None
    expected, remarks = by_itself(kind, fields, null=null)
    if made is not None:
        assert (made, remarks) == (expected, ())
        assert list(getattr(made, "further", ())) == list(getattr(expected, "further", ()))
        with pytest.raises(AttributeError):
            made.__setattr__(KINDS[kind].fields[0].attribute, "other")
    elif cast is not None:
        assert expected is None, "left to others, though nothing is wrong with it"
    else:
        assert expected is None or remarks or fields.keys() & set(NAMES)


def by_itself(kind: str, fields: Mapping[str, Any], *, null: bool) -> tuple[Any, tuple[str, ...]]:
    known = KINDS[kind].field_names
    kept = {name: value for name, value in fields.items() if null or name in known or value is not None}
    try:
        return record_from_object(kept, kind)
    except MalformedRecordError:
        return None, ()


@pytest.mark.parametrize("kind", KINDS)
def test_what_nearly_all_rows_are_needs_no_second_look(kind: str) -> None:
    described = KINDS[kind]
    chosen = {group[0].name for group in described.alternatives}
    others = {field.name for group in described.alternatives for field in group} - chosen
    needed = {field.name for field in described.fields if field.is_needed}
    fields = {name: "acme" for name in described.field_names if name not in others and name in chosen | needed}
    cast = caster(kind, list(fields))
    assert cast is not None
    assert cast(*fields.values()) == record_from_object(fields, kind)[0]


def test_values_that_are_no_texts_are_converted_first() -> None:
    names = ["organizationId", "documentId", "documentName", "size"]
    cast = caster("document", names, {"documentId": str, "size": str})
    assert cast is not None
    document: Any = cast("o", 7, "D", 12)
    assert (document.document_id, document.further) == ("7", {"size": "12"})
    assert cast("o", 7, 8, 9) is None
