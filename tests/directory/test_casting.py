"""JSON objects become records, and records become the same objects again."""

import sys
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.access.kinds import KINDS
from app.access.records import (
    AccessRole,
    AccessType,
    Carrier,
    ContextGrant,
    Document,
    Fill,
    Folder,
    Grant,
    Group,
    GroupMember,
    Membership,
    Organization,
    Record,
    User,
)
from app.directory.casting import object_from_record, plural, record_from_object
from app.directory.fields import (
    MAX_ALIASES,
    MalformedRecordError,
    checked_context_value,
    checked_time,
    folded_alias,
)
from app.directory.file import object_from_line
from app.foundation.ids import MAX_ID_BYTES


class _CaseLoader(yaml.SafeLoader):
    """Builds the long texts of the table."""


def _repeat(loader: _CaseLoader, node: yaml.MappingNode) -> str:
    fields: dict[Any, Any] = loader.construct_mapping(node, deep=True)
    return f"{fields.get('before', '')}{fields['text'] * fields['times']}{fields.get('after', '')}"


_CaseLoader.add_constructor("!repeat", _repeat)
MALFORMED = yaml.load(Path(__file__).with_name("malformed.yaml").read_text("utf-8"), Loader=_CaseLoader)


@pytest.mark.parametrize("case", MALFORMED, ids=lambda case: str(case["name"]))
def test_record_from_object_refuses_naming_the_field(case: dict[str, str]) -> None:
    with pytest.raises(ValueError) as caught:
        record_from_object(object_from_line(case["json"].encode()))
    if case["reason"] == "not JSON":
        assert isinstance(caught.value, orjson.JSONDecodeError)
    else:
        assert isinstance(caught.value, MalformedRecordError)
        assert str(caught.value).startswith(case["reason"])
        assert "\n" not in str(caught.value)


def test_a_time_that_no_float_can_represent_is_malformed() -> None:
    with pytest.raises(MalformedRecordError, match=r"^expiresAt: 1000"):
        checked_time(10**400, "expiresAt")


@pytest.mark.parametrize("value", [2**64, 10**600, float("nan"), True])
def test_a_number_that_no_question_can_have_is_no_context_value(value: object) -> None:
    with pytest.raises(MalformedRecordError, match=r"^value: "):
        checked_context_value(value, "value")


ids = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
times = st.none() | st.integers(0, 4_102_444_800_000).map(
    lambda ms: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(-1e9, 1e9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
# Such names are neither those of fields, nor near one.
further = st.dictionaries(ids.map(lambda name: f"zzzz {name}"), json_values, max_size=3)


aliases = ids.map(folded_alias).filter(lambda alias: len(alias.encode()) <= MAX_ID_BYTES)


def one_of(*names: str) -> st.SearchStrategy[dict[str, str]]:
    """Exactly one of the ids is given."""
    return st.one_of(*(st.fixed_dictionaries({name: aliases if name == "user_alias" else ids}) for name in names))


def built(record_type: type[Record], *choices: st.SearchStrategy[dict[str, str]], **fields: Any) -> Any:
    return st.tuples(st.fixed_dictionaries(fields), *choices).map(
        lambda parts: record_type(**{name: value for part in parts for name, value in part.items()})
    )


holder = one_of("user_id", "user_alias", "organization_user_group_id")
roles = st.sampled_from(AccessRole)
types = st.none() | st.sampled_from(AccessType)
any_record = st.one_of(
    built(
        Organization,
        organization_id=ids,
        organization_name=texts,
        access_type=st.sampled_from(AccessType),
        disabled=st.booleans(),
        extra_fields=further,
    ),
    built(
        User,
        user_id=ids,
        name=texts,
        email=texts,
        initial=st.none() | texts,
        disabled=st.booleans(),
        aliases=st.lists(aliases, max_size=3, unique=True).map(tuple),
        extra_fields=further,
    ),
    built(Membership, one_of("user_id", "user_alias"), organization_id=ids, access_role=roles, expires_at=times),
    built(Group, organization_id=ids, organization_user_group_id=ids, group_name=texts, extra_fields=further),
    built(
        GroupMember,
        one_of("user_id", "user_alias", "member_group_id"),
        organization_id=ids,
        organization_user_group_id=ids,
    ),
    built(
        Folder,
        organization_id=ids,
        folder_id=ids,
        folder_name=texts,
        parent_folder_id=st.none() | ids,
        access_type=types,
        extra_fields=further,
    ),
    built(
        Document,
        organization_id=ids,
        document_id=ids,
        document_name=texts,
        folder_id=st.none() | ids,
        access_type=types,
        extra_fields=further,
    ),
    built(Grant, one_of("folder_id", "document_id"), holder, organization_id=ids, access_role=roles, expires_at=times),
    built(
        ContextGrant,
        holder,
        organization_id=ids,
        field=ids,
        value=ids,
        document_id=st.none() | ids,
        expires_at=times,
    ),
    built(
        Fill,
        one_of("user_id", "user_alias"),
        name=st.none() | texts,
        email=st.none() | texts,
        initial=st.none() | texts,
        disabled=st.booleans(),
        extra_fields=further,
    ),
)


@given(any_record)
def test_object_from_record_is_read_back_as_the_same_record(record: Record) -> None:
    line = orjson.dumps(object_from_record(record))
    again, remarks = record_from_object(object_from_line(line))
    assert again == record
    assert remarks == () or isinstance(record, Carrier)


def test_record_from_object_takes_the_defaults() -> None:
    record, remarks = record_from_object({"kind": "grant", "organizationId": "o", "folderId": "f", "userId": "u"})
    assert record == Grant(organization_id="o", folder_id="f", user_id="u", access_role=AccessRole.EDITOR)
    assert remarks == ()
    organization, _ = record_from_object({"kind": "organization", "organizationId": "o", "organizationName": "O"})
    assert organization == Organization(
        organization_id="o", organization_name="O", access_type=AccessType.ORGANIZATION_PRIVATE
    )


@pytest.mark.parametrize(
    "given_time",
    ["2030-01-01T00:00:00Z", "2030-01-01T01:00:00+01:00", "20300101T000000Z", 1893456000000, 1893456000000.0],
)
def test_record_from_object_reads_times(given_time: object) -> None:
    fields = {"kind": "membership", "organizationId": "o", "userId": "u", "expiresAt": given_time}
    record, _ = record_from_object(fields)
    assert isinstance(record, Membership)
    assert record.expires_at == datetime(2030, 1, 1, tzinfo=UTC)


def test_record_from_object_rounds_times_down_to_the_millisecond() -> None:
    fields = {"kind": "membership", "organizationId": "o", "userId": "u", "expiresAt": "2030-01-01T00:00:00.123999Z"}
    record, _ = record_from_object(fields)
    assert isinstance(record, Membership)
    assert record.expires_at == datetime(2030, 1, 1, 0, 0, 0, 123_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "text"), [(2, "2"), (2.0, "2"), (2.5, "2.5"), (2.0**63, str(2**63)), ("2", "2"), ("*", "*")]
)
def test_record_from_object_takes_context_values_as_text(value: object, text: str) -> None:
    record, _ = record_from_object(
        {"kind": "contextGrant", "organizationId": "o", "userId": "u", "field": "f", "value": value}
    )
    assert isinstance(record, ContextGrant)
    assert record.value == text


def test_record_from_object_keeps_further_fields_of_kinds_that_carry_them() -> None:
    record, remarks = record_from_object(
        {"kind": "user", "userId": "a", "name": "A", "email": "", "photoUrl": "x", "tags": [1, {"b": None}]}
    )
    assert isinstance(record, User)
    assert record.extra_fields == {"photoUrl": "x", "tags": [1, {"b": None}]}
    assert remarks == ()


LEAST: dict[str, dict[str, object]] = {
    "organization": {"organizationId": "o", "organizationName": "O"},
    "user": {"userId": "u", "name": "U", "email": "u@o.example"},
    "membership": {"organizationId": "o", "userId": "u"},
    "group": {"organizationId": "o", "organizationUserGroupId": "g", "groupName": "G"},
    "groupMember": {"organizationId": "o", "organizationUserGroupId": "g", "userId": "u"},
    "folder": {"organizationId": "o", "folderId": "f", "folderName": "F"},
    "document": {"organizationId": "o", "documentId": "d", "documentName": "D"},
    "grant": {"organizationId": "o", "documentId": "d", "userId": "u"},
    "contextGrant": {"organizationId": "o", "userId": "u", "field": "f", "value": "v"},
    "fill": {"userId": "u"},
}
"""kind → the fields without which there is no record."""

OWN_FIELDS = [
    ("organization", "accessType"), ("organization", "disabled"), ("user", "disabled"), ("user", "email"),
    ("membership", "accessRole"), ("membership", "expiresAt"), ("group", "groupName"),
    ("groupMember", "memberGroupId"), ("folder", "accessType"), ("folder", "parentFolderId"),
    ("document", "accessType"), ("document", "folderId"), ("grant", "expiresAt"), ("grant", "accessRole"),
    ("contextGrant", "expiresAt"), ("contextGrant", "documentId"), ("fill", "userAlias"), ("fill", "disabled"),
    ("membership", "userAlias"), ("grant", "userAlias"), ("user", "aliases"),
]  # fmt: skip


def misspelt(name: str) -> list[str]:
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return [
        name.lower(), name.upper(), name[0].upper() + name[1:], snake, snake.replace("_", "-"), f" {name}", f"{name} ",
        name[:-1], name[1:], name[:3] + name[4:], f"{name}s", name[:2] + "x" + name[2:], "x" + name[1:],
        name[1] + name[0] + name[2:], name[:-2] + name[-1] + name[-2], name.replace("e", "\u0435", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), OWN_FIELDS)
def test_misspelled_fields_are_malformed(kind: str, name: str) -> None:
    for wrong in misspelt(name):
        fields = {"kind": kind, **LEAST[kind], wrong: True}
        if wrong == name:
            continue
        if (
            LEAST[kind].get(name) is not None
            and wrong.strip().replace("_", "").replace("-", "").lower() != name.lower()
        ):
            # Its right name is there: a list of emails beside the email is a field of its own.
            assert record_from_object(fields)[1] == ()
            continue
        with pytest.raises(MalformedRecordError) as caught:
            record_from_object(fields)
        assert str(caught.value).endswith(f"; did you mean {name}?"), wrong


@given(st.sampled_from(OWN_FIELDS), st.data())
def test_every_misspelling_by_one_letter_is_malformed(own: tuple[str, str], data: st.DataObject) -> None:
    kind, name = own
    place = data.draw(st.integers(0, len(name)))
    letter = data.draw(st.sampled_from("abcdefghijklmnopqrstuvwxyzABCXYZ019_- "))
    wrong = data.draw(
        st.sampled_from([
            name[:place] + letter + name[place:], name[:place] + name[place + 1 :],
            name[:place] + letter + name[place + 1 :], name[:place] + name[place : place + 2][::-1] + name[place + 2 :],
        ])
    )  # fmt: skip
    fields = {"kind": kind, **{key: value for key, value in LEAST[kind].items() if key != name}}
    if wrong in KNOWN_NAMES or wrong.startswith("x-"):
        return
    with pytest.raises(MalformedRecordError, match=f"did you mean {name}"):
        record_from_object({**fields, wrong: True})


KNOWN_NAMES = {name for fields in LEAST.values() for name in fields} | {name for _, name in OWN_FIELDS} | {"kind"}


@pytest.mark.parametrize("kind", ["membership", "groupMember", "grant", "contextGrant"])
def test_kinds_that_decide_about_access_reject_unknown_fields(kind: str) -> None:
    with pytest.raises(MalformedRecordError, match=r"'validUntil': is not a field of a .* and would be ignored"):
        record_from_object({"kind": kind, **LEAST[kind], "validUntil": "2020-01-01"})
    assert record_from_object({"kind": kind, **LEAST[kind], "x-note": "until she is back"})[1] == ()


def test_record_from_object_remarks_on_possible_misspellings() -> None:
    folder = {"kind": "folder", **LEAST["folder"], "acesType": "restricted", "disabled": True, "colour": "red"}
    record, remarks = record_from_object(folder)
    assert isinstance(record, Folder)
    assert record.extra_fields == {"acesType": "restricted", "disabled": True, "colour": "red"}
    assert remarks == (
        "'acesType' is not a field of a folder; did you mean accessType?",
        "'disabled' decides nothing about a folder: it travels to the backend like any other field",
    )


def test_a_field_beside_the_one_it_resembles_gets_no_remark() -> None:
    user = {"kind": "user", "userId": "a", "name": "A", "names": ["A"], "email": "", "initial": "A", "initials": "AB"}
    assert record_from_object(user)[1] == ()
    with pytest.raises(MalformedRecordError, match="'UserId': is not a field of a user; did you mean userId"):
        record_from_object({**user, "UserId": "b"})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"kind": "group_member"}, "; did you mean groupMember?"),
        ({"kind": "Documents"}, "; did you mean document?"),
        ({"kind": "xyz"}, ", contextGrant, fill"),
        ({"Kind": "user"}, "kind: is missing; 'Kind' is not it"),
    ],
)
def test_an_unknown_kind_gets_the_nearest_as_hint(value: dict[str, object], reason: str) -> None:
    with pytest.raises(MalformedRecordError) as caught:
        record_from_object(value)
    assert str(caught.value).endswith(reason)


def test_plural_returns_the_names_of_lists() -> None:
    assert [plural(kind) for kind in KINDS] == [
        "organizations",
        "users",
        "memberships",
        "groups",
        "groupMembers",
        "folders",
        "documents",
        "grants",
        "contextGrants",
        "fills",
    ]


def test_users_are_named_by_aliases_in_any_case() -> None:
    user = {"userId": "u", "name": "U", "email": "U@o.example", "aliases": ["U@O.Example", "STRASSE", "straße", "u"]}
    assert record_from_object(user, "user")[0] == User(
        user_id="u", name="U", email="U@o.example", aliases=("u@o.example", "strasse", "straße", "u")
    )
    member = {"organizationId": "o", "userAlias": "U@O.Example"}
    assert record_from_object(member, "membership")[0] == Membership(organization_id="o", user_alias="u@o.example")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("ann@FAß.example", "ANN@faß.example", True),
        ("ann@faß.example", "ann@fass.example", False),
        ("ann@faẞ.example", "ann@fass.example", False),
        ("\N{KELVIN SIGN}im", "kim", False),
        ("\N{KELVIN SIGN}im", "Kim", False),
        ("\N{LATIN SMALL LETTER LONG S}am", "sam", False),
        ("\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}da", "ida", False),
        ("\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}da", "I\N{COMBINING DOT ABOVE}da", True),
        ("\N{LATIN SMALL LETTER DOTLESS I}da", "ida", False),
        ("\N{LATIN SMALL LIGATURE FI}n", "fin", False),
        ("\N{FULLWIDTH LATIN SMALL LETTER A}nn", "ann", False),
        ("ÅSA", "a\N{COMBINING RING ABOVE}sa", True),
        ("J\N{COMBINING CARON}an", "ǰan", True),
    ],
)
def test_aliases_are_the_same_only_by_case_and_encoded_accents(one: str, other: str, same: bool) -> None:
    assert (folded_alias(one) == folded_alias(other)) is same


def differ_by_case_alone(one: str, other: str) -> bool:
    """By Unicode's data: letter by letter, each the other's only lower or upper case; accents decomposed."""
    apart = [unicodedata.normalize("NFD", text) for text in (one, other)]
    return len(apart[0]) == len(apart[1]) and all(
        a == b or (a.swapcase(), b.swapcase()) == (b, a) for a, b in zip(*apart, strict=True)
    )


def test_of_all_letters_only_pairs_of_lower_and_upper_case_are_the_same() -> None:
    same: dict[str, list[str]] = {}
    for letter in map(chr, range(sys.maxunicode + 1)):
        if unicodedata.category(letter) not in {"Cn", "Cs", "Co"}:
            same.setdefault(folded_alias(letter), []).append(letter)
    found = [letters for letters in same.values() if len(letters) > 1]
    assert len(found) > 1_000
    assert [letters for letters in found if len(letters) > 2 or not differ_by_case_alone(*letters)] == []
    crossing = [letters for letters in found if len({letter.isascii() for letter in letters}) > 1]
    assert crossing == []


odd_letters = st.sampled_from(
    "kKsSiIfFaAjJÅßẞſıİǰΣςσΩϴǅﬁＡ\N{KELVIN SIGN}\N{ANGSTROM SIGN}\N{OHM SIGN}\u0307\u030a\u030c\u0340\u0345"
)
respelt: Sequence[Callable[[str], str]] = (
    str,
    str.lower,
    str.upper,
    str.swapcase,
    str.casefold,
    *(partial(unicodedata.normalize, form) for form in ("NFC", "NFD", "NFKC", "NFKD")),
)


@given(st.text(odd_letters | st.characters(exclude_categories=["Cs"]), max_size=8), st.data())
def test_respelled_aliases_are_equal_only_by_case_and_encoded_accents(alias: str, data: st.DataObject) -> None:
    other = data.draw(st.sampled_from(respelt))(data.draw(st.sampled_from(respelt))(alias))
    assert folded_alias(folded_alias(alias)) == folded_alias(alias)
    if folded_alias(alias) == folded_alias(other):
        assert differ_by_case_alone(alias, other)


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        ("membership", {"organizationId": "o"}, "userId, userAlias: neither is given; exactly one is needed"),
        ("fill", {"userId": "u", "userAlias": "a"}, "userId, userAlias: both are given; exactly one is needed"),
        (
            "grant",
            {"organizationId": "o", "folderId": "f", "userId": "u", "userAlias": "a"},
            "userId, userAlias, organizationUserGroupId: several are given; exactly one is needed",
        ),
        ("grant", {"organizationId": "o", "folderId": "f", "userAlias": 7}, "userAlias: must be text, but is a number"),
        (
            "grant",
            {"organizationId": "o", "folderId": "f", "userAlias": "Ⱥ" * 256},
            "userAlias: is longer than 512 bytes",
        ),
        ("user", {**LEAST["user"], "aliases": "a@b.example"}, "aliases: must be a list of texts, but is text"),
        ("user", {**LEAST["user"], "aliases": ["a", None]}, "aliases[1]: must be text, but is null"),
        (
            "user",
            {**LEAST["user"], "aliases": [*map(str, range(101))]},
            "aliases: has 101 entries; the maximum is 100",
        ),
        ("fill", {"userId": "u", "disabled": "yes"}, "disabled: must be true or false, but is text"),
        ("fill", {"userId": "u", "Disabled": True}, "'Disabled': is not a field of a fill; did you mean disabled?"),
        ("fill", {"userId": "u", "aliases": ["a@b.example"]}, "'aliases': is set by the user's own record only"),
        ("fill", {"userId": "u", "Aliases": None}, "'Aliases': is set by the user's own record only"),
    ],
)
def test_aliases_and_fills_are_read_as_strictly(kind: str, fields: dict[str, object], reason: str) -> None:
    with pytest.raises(MalformedRecordError) as caught:
        record_from_object(fields, kind)
    assert str(caught.value).startswith(reason)


def test_the_maximum_of_aliases_is_read() -> None:
    user, _ = record_from_object({**LEAST["user"], "aliases": list(map(str, range(MAX_ALIASES)))}, "user")
    assert isinstance(user, User)
    assert len(user.aliases) == MAX_ALIASES


def test_fills_have_extra_fields() -> None:
    fill, remarks = record_from_object({"userAlias": "A@b.example", "costCenter": 7, "disabled": True}, "fill")
    assert fill == Fill(user_alias="a@b.example", disabled=True, extra_fields={"costCenter": 7})
    assert remarks == ()


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (name, field.name)
        for name, kind in KINDS.items()
        for field in kind.fields
        if field.name in {"disabled", "accessRole", "accessType", "expiresAt"}
    ],
)
def test_null_is_malformed_in_a_field_that_decides_about_access(kind: str, field: str) -> None:
    described = KINDS[kind]
    chosen = {group[0].name for group in described.alternatives}
    fields: dict[str, object] = {one.name: "acme" for one in described.fields if one.is_needed or one.name in chosen}
    record_from_object(fields, kind)
    with pytest.raises(MalformedRecordError, match=f"^{field}: is null"):
        record_from_object(fields | {field: None}, kind)


@pytest.mark.parametrize("alias", ["", "x" * 600, "a\0b", "\ud800"])
def test_an_alias_that_cannot_be_used_is_left_out_with_a_remark(alias: str) -> None:
    fields = {**LEAST["user"], "aliases": ["a", alias], "department": "R"}
    for value, kind in ((fields, "user"), ({**fields, "kind": "user"}, None)):
        record, remarks = record_from_object(value, kind)
        assert isinstance(record, User)
        assert (record.aliases, dict(record.extra_fields)) == (("a",), {"department": "R"})
        assert [remark.startswith("aliases[1]: ") for remark in remarks] == [True]
        # A push is refused.
        with pytest.raises(MalformedRecordError, match=r"^aliases\[1\]: "):
            record_from_object(value, kind, every_alias=True)
