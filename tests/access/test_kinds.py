"""The kinds: what follows from the classes of records, beside what was meant by them."""

import traceback

import pytest

from app.access.kinds import KINDS, KINDS_BY_REFERENCE, compiled, name_of_attribute
from app.access.records import AccessRole, AccessType, Grant, Membership, Sort
from app.store.record_tables import KIND_TABLES


def test_the_kinds_stand_in_their_order() -> None:
    assert " ".join(KINDS) == "organization user membership group groupMember folder document grant contextGrant"
    told = " ".join(kind.name for kind in KINDS_BY_REFERENCE)
    assert told == "organization user group folder document membership groupMember grant contextGrant"


def test_whatever_a_kind_refers_to_stands_before_it() -> None:
    seen = set()
    for kind in KINDS_BY_REFERENCE:
        seen.add(kind.name)
        assert {field.refers_to for field in kind.references} <= seen


def test_fields_say_what_stands_in_them() -> None:
    grant = KINDS["grant"]
    assert {field.name: field.sort for field in grant.fields} == {
        "organizationId": Sort.ID,
        "folderId": Sort.ID,
        "documentId": Sort.ID,
        "userId": Sort.ID,
        "organizationUserGroupId": Sort.ID,
        "accessRole": Sort.ACCESS_ROLE,
        "expiresAt": Sort.TIME,
    }
    assert [field.name for field in grant.fields if field.is_needed] == ["organizationId"]
    assert grant.by_attribute["access_role"].default is AccessRole.EDITOR
    assert KINDS["organization"].by_attribute["access_type"].default is AccessType.ORGANIZATION_PRIVATE
    assert [[field.name for field in group] for group in grant.alternatives] == [
        ["folderId", "documentId"],
        ["userId", "organizationUserGroupId"],
    ]


def test_an_own_id_is_no_reference() -> None:
    told = {kind.name: [(field.name, field.refers_to) for field in kind.references] for kind in KINDS.values()}
    assert told["user"] == []
    assert told["folder"] == [("organizationId", "organization"), ("parentFolderId", "folder")]
    assert told["groupMember"] == [
        ("organizationId", "organization"),
        ("organizationUserGroupId", "group"),
        ("userId", "user"),
        ("memberGroupId", "group"),
    ]
    assert {kind.name: kind.own_id and kind.own_id.name for kind in KINDS.values() if kind.carries} == {
        "organization": "organizationId",
        "user": "userId",
        "group": "organizationUserGroupId",
        "folder": "folderId",
        "document": "documentId",
    }


def test_what_is_within_an_organization_vouches_for_it() -> None:
    told = {table.kind: " ".join(one.field for one in table.references) for table in KIND_TABLES}
    assert told == {
        "organization": "",
        "user": "",
        "group": "organizationId",
        "folder": "organizationId parentFolderId",
        "document": "organizationId folderId",
        "membership": "organizationId userId",
        "groupMember": "organizationUserGroupId userId memberGroupId",
        "grant": "folderId documentId userId organizationUserGroupId",
        "contextGrant": "organizationId userId organizationUserGroupId documentId",
    }
    groups = [one.columns for one in KIND_TABLES[6].references]
    assert groups == [
        ("organization_id", "organization_user_group_id"),
        ("user_id",),
        ("organization_id", "member_group_id"),
    ]


def test_the_columns_of_a_table_are_the_fields_of_its_kind() -> None:
    for table in KIND_TABLES:
        kind = KINDS[table.kind]
        stored = [field.attribute for field in kind.fields if field.sort is not Sort.TEXT]
        assert list(table.columns) == stored + (["payload", "digest"] if kind.carries else [])
        assert list(table.keys) == [field.attribute for field in kind.keys]


def test_a_key_is_the_kind_and_its_ids() -> None:
    assert Membership(organization_id="o", user_id="u").key == ("membership", "o", "u")
    assert Grant(organization_id="o", document_id="d", user_id="u").key == ("grant", "o", "", "d", "u", "")


def test_names_are_those_of_the_wire() -> None:
    assert name_of_attribute("organization_user_group_id") == "organizationUserGroupId"
    assert name_of_attribute("field") == "field"


def test_a_traceback_shows_what_was_compiled() -> None:
    broken = compiled("broken", ["def broken(value):", "    return value.nowhere"], {}, of="user")
    with pytest.raises(AttributeError) as raised:
        broken(None)
    assert "return value.nowhere" in "".join(traceback.format_exception(raised.value))
