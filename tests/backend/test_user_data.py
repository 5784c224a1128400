from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text

from app.backend.collaboration.tables import NOTIFICATION
from app.backend.schema import METADATA
from app.commands.bootstrap.databases import BACKEND_MIGRATIONS
from app.foundation.database.engine import open_engine, writing
from app.foundation.database.migrations import upgrade
from tests.foundation.database.first_release import make_at

from .conftest import BackendWorld, Caller
from .test_importing import Importer, write_lines

ORG = {"organizationId": "acme"}
DOC = ORG | {"documentId": "d"}
ADA = {"userId": "ada", "name": "Ada"}
BOB = {"userId": "bob"}
KINDS = ("memberships", "comments", "reactions", "recordings", "notifications")


def pages(tenant: Caller, user: str, organization: str = "acme") -> list[dict[str, list[dict[str, Any]]]]:
    """All pages of a user's data."""
    found: list[dict[str, list[dict[str, Any]]]] = []
    token: dict[str, str] = {}
    while True:
        response = tenant.call("get_all_user_data", organizationId=organization, userId=user, **token)
        result = response.get_json()["result"]
        found.append(result["data"])
        if "nextPageToken" not in result:
            return found
        token = {"pageToken": result["nextPageToken"]}


@pytest.fixture
def importer(world: BackendWorld) -> Importer:
    return Importer(world, world.tenant())


def test_one_token_pages_through_all_kinds(importer: Importer, tmp_path: Path) -> None:
    records: list[dict[str, Any]] = [
        # Bob's comments in ada's threads are included, the one in his own thread is not.
        *(
            {
                "kind": "comment",
                "annotationId": f"t{number // 90}",
                "commentId": f"c{number:04}",
                "commentText": "x",
                "from": BOB if number % 90 else ADA,
                "createdAt": number % 7,
            }
            for number in range(250)
        ),
        {"kind": "comment", "annotationId": "bobs", "commentId": "c", "commentText": "x", "from": BOB},
        *({"kind": "reaction", "reactionId": f"r{n}", "icon": "+", "from": ADA, "createdAt": 1} for n in range(100)),
        *({"kind": "recording", "recordingId": f"v{n}", "from": ADA, "createdAt": n} for n in range(101)),
        {"kind": "recording", "recordingId": "bobs", "from": BOB},
        *({"kind": "notification", "id": f"n{n}", "notifyUsers": [ADA], "timestamp": n} for n in range(30)),
        {"kind": "notification", "id": "bobs", "notifyUsers": [BOB]},
    ]
    importer(write_lines(tmp_path / "data.jsonl", records), create_missing=True)
    tenant = importer.tenant
    documents = [{"documentId": f"d{number:03}"} for number in range(120)]
    tenant("add_documents", **ORG, documents=documents)
    tenant("add_users", **ORG, users=[ADA | {"team": "core"}])
    for document in documents:
        tenant("add_users", **ORG, **document, users=[ADA])
    tenant("add_users_to_groups", **ORG, organizationUserGroupId="g", userIds=["ada"])

    found = pages(tenant, "ada")

    assert [[len(page[kind]) for kind in KINDS] for page in found] == [
        [100, 100, 100, 100, 30],
        [22, 100, 0, 1, 0],
        [0, 50, 0, 0, 0],
    ]
    comments = [item for page in found for item in page["comments"]]
    assert {(item["annotationId"], item["documentId"]) for item in comments} == {("t0", "d"), ("t1", "d"), ("t2", "d")}
    keys = [(item["annotationId"], item["createdAt"], item["commentId"]) for item in comments]
    assert keys == sorted(set(keys))
    memberships = [item for page in found for item in page["memberships"]]
    assert {item["level"] for item in memberships} == {"organization", "document", "group"}
    (own,) = [item for item in memberships if item["level"] == "organization"]
    assert own == {"level": "organization", "name": "Ada", "initial": "A", "team": "core", "accessRole": "editor"}
    assert [item for item in memberships if item["level"] == "group"] == [{"level": "group", "id": "g"}]


@pytest.mark.parametrize("kind", ["comments", "reactions", "recordings", "notifications"])
@pytest.mark.parametrize(("count", "sizes"), [(99, [99]), (100, [100]), (101, [100, 1])])
def test_a_page_has_at_most_a_hundred_items_of_a_kind(
    importer: Importer, tmp_path: Path, kind: str, count: int, sizes: list[int]
) -> None:
    of_kinds: dict[str, dict[str, Any]] = {
        "comments": {"annotationId": "t", "commentText": "x", "from": ADA},
        "reactions": {"icon": "+", "from": ADA},
        "recordings": {"from": ADA},
        "notifications": {"notifyUsers": [ADA]},
    }
    fields = of_kinds[kind]
    name = kind.removesuffix("s")
    id_field = "id" if kind == "notifications" else f"{name}Id"
    records = [{"kind": name, id_field: f"x{number:03}", **fields} for number in range(count)]
    importer(write_lines(tmp_path / "data.jsonl", records), create_missing=True)

    found = pages(importer.tenant, "ada")

    assert [len(page[kind]) for page in found] == sizes


def test_a_page_may_end_with_a_thread(importer: Importer, tmp_path: Path) -> None:
    records = [
        {"kind": "comment", "annotationId": f"t{n // 100}", "commentId": f"{n:03}", "commentText": "", "from": ADA}
        for n in range(200)
    ]
    importer(write_lines(tmp_path / "data.jsonl", records), create_missing=True)

    found = pages(importer.tenant, "ada")

    assert [len(page["comments"]) for page in found] == [100, 100]
    assert {item["annotationId"] for item in found[0]["comments"]} == {"t0"}


def test_notifications_about_a_users_actions_are_included(importer: Importer, tmp_path: Path) -> None:
    def notification(number: int, **fields: Any) -> dict[str, Any]:
        return {"kind": "notification", "id": f"n{number:03}", "timestamp": number // 3, **fields}

    records = [
        # In turn for ada, about ada's actions, and both. The last ones do not involve ada.
        *(notification(n, notifyUsers=[ADA], actionUser=BOB) for n in range(0, 240, 3)),
        *(notification(n, notifyUsers=[BOB], actionUser=ADA) for n in range(1, 240, 3)),
        *(notification(n, notifyUsers=[ADA], actionUser=ADA) for n in range(2, 240, 3)),
        *(notification(n, notifyUsers=[BOB], actionUser=BOB) for n in range(240, 250)),
        *(notification(n, notifyUsers=[BOB]) for n in range(250, 260)),
    ]
    importer(write_lines(tmp_path / "data.jsonl", records), create_missing=True)

    found = [[item["id"] for item in page["notifications"]] for page in pages(importer.tenant, "ada")]

    assert [len(page) for page in found] == [100, 100, 40]
    assert [item for page in found for item in page] == [f"n{number:03}" for number in range(240)]


def test_notifications_contain_the_read_mark_of_the_user_only(importer: Importer) -> None:
    tenant = importer.tenant
    tenant("add_documents", **ORG, documents=[{"documentId": "d"}], createOrganization=True)
    for name in ("read", "kept", "unread", "read by bob"):
        tenant("add_notifications", **DOC, actionUser={"userId": "zoe"}, notificationId=name, notifyUsers=[ADA, BOB])
    tenant("add_notifications", **DOC, actionUser=ADA, notificationId="caused", notifyUsers=[BOB])
    readings: list[dict[str, Any]] = [
        {"id": "read", "readByUserIds": ["ada", "bob"]},
        {"id": "kept", "readByUserIds": ["ada"], "persistReadForUsers": True},
        {"id": "read by bob", "readByUserIds": ["bob"], "persistReadForUsers": True},
        {"id": "caused", "readByUserIds": ["bob"]},
    ]
    tenant("update_notifications", **ORG, notifications=readings)

    (data,) = pages(tenant, "ada")

    found = [(item["id"], item["readByUserIds"], item["persistReadForUserIds"]) for item in data["notifications"]]
    assert sorted(found) == [
        ("caused", [], []),
        ("kept", ["ada"], ["ada"]),
        ("read", ["ada"], []),
        ("read by bob", [], []),
        ("unread", [], []),
    ]


def test_the_acting_user_of_a_notification_can_be_updated(importer: Importer) -> None:
    tenant = importer.tenant
    tenant("add_documents", **ORG, documents=[{"documentId": "d"}], createOrganization=True)
    tenant("add_notifications", **DOC, actionUser=ADA, notificationId="n", notifyUsers=[{"userId": "zoe"}])

    def caused(user: str) -> list[dict[str, Any]]:
        (data,) = pages(tenant, user)
        return data["notifications"]

    assert [item["id"] for item in caused("ada")] == ["n"]
    tenant("update_notifications", **ORG, notifications=[{"id": "n", "displayBodyMessage": "still ada"}])
    assert [item["displayBodyMessage"] for item in caused("ada")] == ["still ada"]
    tenant("update_notifications", **ORG, notifications=[{"id": "n", "actionUser": BOB}])
    assert caused("ada") == []
    assert [item["id"] for item in caused("bob")] == ["n"]


def test_a_migration_fills_in_the_acting_users_of_notifications(database_url: str, tmp_path: Path) -> None:
    engine = open_engine(database_url)
    make_at(engine, BACKEND_MIGRATIONS, "0002", tmp_path)
    payloads = {
        "caused": '{"actionUser":{"userId":"a\\"d\\u0001a"},"displayBodyMessage":"x"}',
        "nobody's": '{"displayBodyMessage":"{\\"actionUser\\":{\\"userId\\":\\"x\\"}}"}',
    }
    with writing(engine) as connection:
        for notification_id, payload in payloads.items():
            connection.execute(
                text(
                    "INSERT INTO notification (api_key_id, organization_id, notification_id, document_id, location_id,"
                    " readers, payload, created_at, updated_at) VALUES ('k', 'acme', :id, 'd', '', 0, :payload, 1, 1)"
                ),
                {"id": notification_id, "payload": payload},
            )

    upgrade(engine, BACKEND_MIGRATIONS)

    with engine.connect() as connection:
        found = connection.execute(select(NOTIFICATION.c.notification_id, NOTIFICATION.c.action_user_id))
        assert {row[0]: row[1] for row in found} == {"caused": 'a"d\x01a', "nobody's": ""}
    engine.dispose()


def test_an_unknown_user_has_no_data(importer: Importer) -> None:
    assert pages(importer.tenant, "nobody") == [{kind: [] for kind in KINDS}]


def test_a_page_token_is_bound_to_its_user(importer: Importer, tmp_path: Path) -> None:
    records = [{"kind": "recording", "recordingId": f"v{n}", "from": ADA} for n in range(101)]
    importer(write_lines(tmp_path / "data.jsonl", records), create_missing=True)
    answer = importer.tenant.call("get_all_user_data", **ORG, userId="ada").get_json()["result"]

    refused = importer.tenant.refused("get_all_user_data", **ORG, userId="bob", pageToken=answer["nextPageToken"])

    assert refused == (400, "INVALID_ARGUMENT", "data.pageToken: is not a token of this query")


FULL: list[dict[str, Any]] = [
    {"kind": "comment", "annotationId": "t", "commentId": "c", "commentText": "x", "from": ADA},
    {"kind": "reaction", "reactionId": "r", "icon": "+", "from": ADA, "annotationId": "t", "commentId": "c"},
    {"kind": "recording", "recordingId": "v", "from": ADA},
    {"kind": "notification", "id": "n", "notifyUsers": [ADA, BOB]},
    {"kind": "activity", "id": "a", "featureType": "custom", "actionType": "x", "actionUser": ADA},
]


def of(records: list[dict[str, Any]], document: str, suffix: str) -> list[dict[str, Any]]:
    """The records in another document, under other ids."""
    ids = ("annotationId", "reactionId", "recordingId", "id")
    return [
        record | {"documentId": document} | {key: record[key] + suffix for key in ids if key in record}
        for record in records
    ]


def there(tenant: Caller, organization: str = "acme") -> list[int]:
    """The number of threads, comments, reactions, recordings, notifications and activities."""
    (data,) = pages(tenant, "ada", organization)
    counts = [len(data[kind]) for kind in ("comments", "reactions", "recordings", "notifications")]
    readers = ("get_comment_annotations", "get_notifications", "get_activity_logs")
    return counts + [len(tenant(name, organizationId=organization)) for name in readers]


def rows_left(world: BackendWorld) -> int:
    """The total number of rows of feature data."""
    names = "comment comment_annotation thread_user reaction recording notification notification_user activity"
    with world.engine.connect() as connection:
        return sum(len(connection.execute(METADATA.tables[name].select()).all()) for name in names.split())


@pytest.mark.parametrize("how", ["delete_documents", "delete_folder", "delete_organizations"])
def test_data_is_deleted_with_its_document_folder_or_organization(importer: Importer, tmp_path: Path, how: str) -> None:
    tenant = importer.tenant
    tenant("add_folder", **ORG, folders=[{"folderId": "f"}], createOrganization=True)
    tenant("add_documents", **ORG, folderId="f", documents=[{"documentId": "d"}])
    importer(write_lines(tmp_path / "data.jsonl", FULL + of(FULL, "e", "2")), create_missing=True)
    other = [record | {"organizationId": "other"} for record in FULL]
    importer(write_lines(tmp_path / "other.jsonl", other), create_missing=True)
    assert there(tenant) == [2] * 7
    before = rows_left(importer.world)

    if how == "delete_organizations":
        tenant(how, organizationIds=["acme"])
    elif how == "delete_folder":
        tenant(how, **ORG, folderId="f")
    else:
        tenant(how, **ORG, documentIds=["d"])

    left = 0 if how == "delete_organizations" else 1
    assert there(tenant) == [left] * 7
    assert there(tenant, "other") == [1] * 7
    # No rows remain that no operation returns.
    assert rows_left(importer.world) == before // 3 * (left + 1)


def test_removing_a_user_deletes_their_notifications_only(importer: Importer, tmp_path: Path) -> None:
    tenant = importer.tenant
    importer(write_lines(tmp_path / "data.jsonl", FULL + of(FULL, "e", "2")), create_missing=True)
    tenant("add_users", **ORG, users=[ADA])
    tenant("add_users", **DOC, users=[ADA])

    tenant("delete_users", **DOC, userIds=["ada"])
    assert [item["id"] for item in tenant("get_notifications", **ORG, userId="ada")] == ["n2"]

    tenant("delete_users", **ORG, userIds=["ada"])
    assert there(tenant) == [2, 2, 2, 0, 2, 2, 2]
    assert len(tenant("get_notifications", **ORG, userId="bob")) == 2


@pytest.mark.parametrize("letter", ["a", "\\", "\x01", "😀"])
def test_page_tokens_work_with_long_and_unusual_ids(importer: Importer, tmp_path: Path, letter: str) -> None:
    def long_id(number: int) -> str:
        return letter * ((512 - 4) // len(letter.encode())) + f"{number:04}"

    records: list[dict[str, Any]] = []
    for n in range(101):
        thread = {"annotationId": long_id(0), "commentId": long_id(n), "commentText": ""}
        records += [
            {"kind": "comment", "from": ADA, **thread},
            {"kind": "reaction", "reactionId": long_id(n), "from": ADA},
            {"kind": "recording", "recordingId": long_id(n), "from": ADA},
            {"kind": "notification", "id": long_id(n), "notifyUsers": [ADA]},
        ]
    importer(write_lines(tmp_path / "data.jsonl", records), create_missing=True)
    documents = [{"documentId": long_id(n)} for n in range(101)]
    importer.tenant("add_documents", **ORG, documents=documents)
    permissions = {"resources": [ORG | {"type": "document", "id": item["documentId"]} for item in documents]}
    importer.tenant("add_permissions", user={"userId": "ada"}, permissions=permissions)

    assert [[len(page[kind]) for kind in KINDS] for page in pages(importer.tenant, "ada")] == [[100] * 5, [1] * 5]
