from typing import Any

import pytest
from sqlalchemy import select

from app.backend.editor import editor_data
from app.backend.editor.tables import EDITOR_DATA

from .conftest import BackendWorld, Caller

EDITOR = {"organizationId": "acme", "documentId": "plan", "editorId": "main"}
CONTENT: list[tuple[str, Any, Any]] = [
    ("text", "Grüße 😀", "Grüße, alle 😀"),
    ("map", {"a": [1, {"b": None}], "gone": 1}, {"a": [1, {"b": True}], "new": "😀"}),
    ("array", [1, 2.5, {"a": "b"}], [1, {"a": "b"}, None]),
    ("xml", '<p class="x">one <b>two</b></p>', '<p class="y">one <b>2</b></p><hr/>'),
]


@pytest.mark.parametrize(("kind", "first", "second"), CONTENT)
def test_editor_data_is_added_read_and_replaced(
    world: BackendWorld, tenant: Caller, kind: str, first: Any, second: Any
) -> None:
    response = tenant.call("add_crdt_data", **EDITOR, data=first, type=kind)
    assert response.json == {"result": {"status": "success", "message": "CRDT data added."}}
    added = int(world.clock().timestamp() * 1000)
    record = EDITOR | {"data": first, "type": kind, "contentKey": "content", "lastUpdated": added}
    assert tenant("get_crdt_data", **EDITOR) == [record]

    world.clock.move_on(minutes=1)
    response = tenant.call("update_crdt_data", **EDITOR, data=second, type=kind)

    assert response.json == {"result": {"status": "success", "message": "CRDT data updated."}}
    (editor,) = tenant("get_crdt_data", organizationId="acme", documentId="plan")
    assert editor == record | {"data": second, "lastUpdated": added + 60_000}


def test_add_twice_is_refused_and_changes_nothing(tenant: Caller) -> None:
    tenant("add_crdt_data", **EDITOR, data="first", type="text")

    refused = tenant.refused("add_crdt_data", **EDITOR, data={}, type="map")

    assert refused == (409, "ALREADY_EXISTS", "data.editorId: Editor data already exists.")
    assert tenant("get_crdt_data", **EDITOR)[0]["data"] == "first"
    # The same editor id on another document or in another organization is another editor.
    tenant("add_crdt_data", **EDITOR | {"documentId": "other"}, data="", type="text")
    tenant("add_crdt_data", **EDITOR | {"organizationId": "other"}, data="", type="text")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"editorId": None}, "data.editorId: field required"),
        ({"editorId": ""}, "data.editorId: must not be empty"),
        ({"data": None}, "data.data: field required"),
        ({"data": 5}, "data.data: must be a string or must be an object or must be an array"),
        ({"data": {}}, "data: data must be of type string when type is text"),
        ({"type": "array"}, "data: data must be of type array when type is array"),
        ({"type": "xml", "data": "<p>"}, "data.data: is not well-formed XML: mismatched tag, line 1"),
        ({"type": "tree"}, "data.type: must be 'text', 'map', 'array' or 'xml'"),
        ({"type": "map", "data": {"a\0": 1}}, "the body holds a NUL character in 'a\\x00'"),
        ({"type": "array", "data": ["\0"]}, "the body holds a NUL character in '\\x00'"),
        ({"contentKey": ""}, "data.contentKey: must not be empty"),
        ({"documentId": None}, "data.documentId: field required"),
    ],
)
def test_invalid_editor_data_is_refused(tenant: Caller, change: dict[str, Any], message: str) -> None:
    data = EDITOR | {"data": "x", "type": "text"} | change

    assert tenant.refused("add_crdt_data", **data) == (400, "INVALID_ARGUMENT", message)

    assert tenant("get_organizations_v1") == []
    tenant("add_crdt_data", **EDITOR, data="kept", type="text")
    assert tenant.refused("update_crdt_data", **data)[:2] == (400, "INVALID_ARGUMENT")
    assert tenant("get_crdt_data", **EDITOR)[0]["data"] == "kept"


def test_update_keeps_type_and_content_key(tenant: Caller) -> None:
    tenant("add_crdt_data", **EDITOR, data="<p/>", type="xml", contentKey="default")

    assert tenant.refused("update_crdt_data", **EDITOR, data="text", type="text") == (
        400,
        "INVALID_ARGUMENT",
        "data.type: the editor holds data of type xml",
    )
    assert tenant.refused("update_crdt_data", **EDITOR, data="<q/>", type="xml", contentKey="content") == (
        400,
        "INVALID_ARGUMENT",
        "data.contentKey: the editor holds its data under another content key",
    )
    tenant("update_crdt_data", **EDITOR, data="<q/>", type="xml", contentKey="default")
    tenant("update_crdt_data", **EDITOR, data="<r/>", type="xml")
    (found,) = tenant("get_crdt_data", **EDITOR)
    assert (found["data"], found["contentKey"]) == ("<r/>", "default")


def test_unknown_editors_are_not_found(tenant: Caller) -> None:
    tenant("add_crdt_data", **EDITOR, data="x", type="text")
    for change in ({"editorId": "e"}, {"documentId": "d"}, {"organizationId": "o"}):
        unknown = EDITOR | change
        message = "data.editorId: Editor data does not exist."
        assert tenant.refused("update_crdt_data", **unknown, data="x", type="text") == (404, "NOT_FOUND", message)
        assert tenant.refused("get_crdt_data", **unknown) == (404, "NOT_FOUND", message)
    assert tenant("get_crdt_data", organizationId="acme", documentId="nothing") == []


def test_an_update_builds_on_the_stored_document(world: BackendWorld, tenant: Caller) -> None:
    """A client with the older state can merge the newer one, which is an edit of it and not another document."""
    tenant("add_crdt_data", **EDITOR, data="one two", type="text", contentKey="body")
    with world.engine.connect() as connection:
        older = connection.scalar(select(EDITOR_DATA.c.state))
    tenant("update_crdt_data", **EDITOR, data="one, two", type="text")
    with world.engine.connect() as connection:
        newer = connection.scalar(select(EDITOR_DATA.c.state))
    assert older is not None
    assert newer is not None

    from pycrdt import merge_updates

    assert editor_data.value_of(older, "text", "body") == "one two"
    assert editor_data.value_of(merge_updates(newer, older), "text", "body") == "one, two"


def test_api_keys_have_separate_editors(world: BackendWorld, tenant: Caller) -> None:
    other = world.tenant()
    tenant("add_crdt_data", **EDITOR, data="mine", type="text")

    assert other("get_crdt_data", organizationId="acme", documentId="plan") == []
    assert other.refused("get_crdt_data", **EDITOR)[1] == "NOT_FOUND"
    assert other.refused("update_crdt_data", **EDITOR, data="theirs", type="text")[1] == "NOT_FOUND"
    other("add_crdt_data", **EDITOR, data="theirs", type="text")
    assert tenant("get_crdt_data", **EDITOR)[0]["data"] == "mine"


def test_editors_are_sorted_by_id(tenant: Caller) -> None:
    for editor in ("b", "a", "ä", "c/😀"):
        tenant("add_crdt_data", **EDITOR | {"editorId": editor}, data=editor, type="text")

    editors = tenant("get_crdt_data", organizationId="acme", documentId="plan")

    assert {record["editorId"]: record["data"] for record in editors} == {e: e for e in ("b", "a", "ä", "c/😀")}
    assert tenant("get_documents", organizationId="acme")[0]["id"] == "plan"


def test_ids_and_nesting_are_limited(tenant: Caller) -> None:
    for field in ("organizationId", "documentId", "editorId", "contentKey"):
        for size, fits in ((511, True), (512, True), (513, False)):
            data = EDITOR | {"data": "x", "type": "text"} | {field: "ä" * (size // 2) + "a" * (size % 2)}
            if fits:
                tenant(
                    "add_crdt_data", **data | {"editorId": data["editorId"] if field == "editorId" else f"{size}"[:9]}
                )
                continue
            assert tenant.refused("add_crdt_data", **data) == (
                400,
                "INVALID_ARGUMENT",
                f"data.{field}: must be at most 512 bytes long in UTF-8",
            )
        tenant("delete_organizations", organizationIds=["acme"])
    for levels, fits in ((30, True), (31, True), (32, False)):
        value: list[Any] = []
        for _ in range(levels - 1):
            value = [value]
        editor = EDITOR | {"editorId": f"nested{levels}"}
        if fits:
            tenant("add_crdt_data", **editor, data=value, type="array")
            assert tenant("get_crdt_data", **editor)[0]["data"] == value
        else:
            message = tenant.refused("add_crdt_data", **editor, data=value, type="array")[2]
            assert message == "the body must not be nested deeper than 32 levels"
