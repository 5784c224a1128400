"""The kinds that are derived from the classes of records."""

from app.access.kinds import KINDS, KINDS_BY_REFERENCE
from app.access.record_tables import KIND_TABLES
from app.access.records import FieldType, Grant, Membership
from app.access.source_tables import SOURCE_TABLES, object_of_origin, origin_text, source_keys
from app.access.tables import access_keys


def test_order_of_the_kinds() -> None:
    assert " ".join(KINDS) == "organization user membership group groupMember folder document grant contextGrant fill"
    actual = " ".join(kind.name for kind in KINDS_BY_REFERENCE)
    assert actual == "organization user group folder document fill membership groupMember grant contextGrant"


def test_referred_to_kinds_come_first() -> None:
    seen = set()
    for kind in KINDS_BY_REFERENCE:
        seen.add(kind.name)
        assert {field.refers_to for field in kind.fields} - {""} <= seen


def test_types_of_fields() -> None:
    grant = KINDS["grant"]
    assert {field.name: field.type for field in grant.fields} == {
        "organizationId": FieldType.ID,
        "folderId": FieldType.ID,
        "documentId": FieldType.ID,
        "userId": FieldType.ID,
        "userAlias": FieldType.ALIAS,
        "organizationUserGroupId": FieldType.ID,
        "accessRole": FieldType.ACCESS_ROLE,
        "expiresAt": FieldType.TIME,
    }
    assert [field.name for field in grant.fields if field.is_needed] == ["organizationId"]
    assert [[field.name for field in group] for group in grant.alternatives] == [
        ["folderId", "documentId"],
        ["userId", "userAlias", "organizationUserGroupId"],
    ]


def test_own_id_is_no_reference() -> None:
    actual = {
        kind.name: [(field.name, field.refers_to) for field in kind.fields if field.refers_to]
        for kind in KINDS.values()
    }
    assert actual["user"] == []
    assert actual["folder"] == [("organizationId", "organization"), ("parentFolderId", "folder")]
    assert actual["groupMember"] == [
        ("organizationId", "organization"),
        ("organizationUserGroupId", "group"),
        ("userId", "user"),
        ("memberGroupId", "group"),
    ]
    assert {kind.name: kind.own_id and kind.own_id.name for kind in KINDS.values() if kind.own_id} == {
        "organization": "organizationId",
        "user": "userId",
        "group": "organizationUserGroupId",
        "folder": "folderId",
        "document": "documentId",
    }


def test_columns_of_a_table_are_the_fields_of_its_kind() -> None:
    for table in KIND_TABLES:
        kind = KINDS[table.kind]
        apart = {FieldType.TEXT, FieldType.ALIAS, FieldType.ALIASES}
        stored = [field.attribute for field in kind.fields if field.type not in apart]
        *columns, owner = table.columns
        assert columns == stored + (["payload", "digest"] if kind.has_extra_fields else [])
        assert owner == "source_id"
        assert table.keys == access_keys(kind)
        of_sources = [column.name for column in SOURCE_TABLES[kind.name].columns]
        assert [name for name in of_sources if name in columns] == columns
        assert {*of_sources} - {*columns} - {"user_alias", "aliases"} == {"source_id", "origin", "rule", "place"}


def test_key_of_source_tables_begins_with_that_of_the_model() -> None:
    for name, table in SOURCE_TABLES.items():
        key = [column.name for column in table.primary_key.columns]
        assert key == list(source_keys(KINDS[name]))
        assert key[: len(access_keys(KINDS[name]))] == list(access_keys(KINDS[name]))
        assert key[-3:] == ["source_id", "origin", "rule"]


def test_key_is_the_kind_and_its_ids() -> None:
    assert Membership(organization_id="o", user_id="u").key == ("membership", "o", "u")
    assert Membership(organization_id="o", user_alias="a").key == ("membership", "o", "", "a")
    assert Grant(organization_id="o", document_id="d", user_id="u").key == ("grant", "o", "", "d", "u", "")


def test_names_are_in_camel_case() -> None:
    assert KINDS["group"].by_attribute["organization_user_group_id"].name == "organizationUserGroupId"
    assert KINDS["contextGrant"].by_attribute["field"].name == "field"


def test_long_origins_differ() -> None:
    assert object_of_origin(origin_text("users", "u1")) == ("users", "u1")
    long = [origin_text("users", f"CN={'x' * 500},{number}") for number in range(3)]
    assert len(set(long)) == 3
    assert {len(origin.encode()) <= 64 for origin in long} == {True}
    assert object_of_origin(long[0])[0] == "users"
    assert object_of_origin(long[0])[1].startswith("#")
    assert object_of_origin("") == ("", "")
    for odd in ("ä" * 300, "\0", "\ud800"):
        assert len(origin_text(odd, "x").encode()) <= 64
        assert "\0" not in origin_text("s", odd)
