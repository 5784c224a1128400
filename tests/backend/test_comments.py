from collections.abc import Callable
from typing import Any

import orjson
import pytest

from app.backend.collaboration.comments import Reaction, insert_reactions
from app.backend.scope import Scope
from app.foundation.database.engine import writing

from .conftest import Answerer, BackendWorld, Caller, ScriptedProvider, WorldMaker

ORG = {"organizationId": "acme"}
DOC = ORG | {"documentId": "d"}
THREAD = DOC | {"annotationId": "t"}
ADA = {"userId": "ada", "name": "Ada"}
BOB = {"userId": "bob"}


def fill(tenant: Caller) -> Caller:
    tenant("add_documents", **ORG, documents=[{"documentId": "d"}, {"documentId": "e"}], createOrganization=True)
    tenant("add_users", **ORG, users=[ADA, BOB])
    return tenant


@pytest.fixture
def acme(world: BackendWorld) -> Caller:
    """A tenant with two documents and two users."""
    return fill(world.tenant())


def comment(comment_id: str, text: str = "hi", author: dict[str, str] = ADA, **fields: Any) -> dict[str, Any]:
    return {"commentId": comment_id, "commentText": text, "from": author} | fields


def begin(tenant: Caller, annotation_id: str = "t", document: str = "d", **fields: Any) -> Any:
    annotation = {"annotationId": annotation_id, "commentData": [comment("c1")]} | fields
    return tenant(
        "add_comment_annotations", organizationId="acme", documentId=document, commentAnnotations=[annotation]
    )[annotation_id]


def read(tenant: Caller, **filters: Any) -> list[Any]:
    found: list[Any] = tenant("get_comment_annotations", **ORG, **filters)
    return found


def actions(tenant: Caller) -> list[str]:
    """The sorted action types of the activity log."""
    return sorted(item["actionType"] for item in tenant("get_activity_logs", **ORG))


def notified(tenant: Caller, user: str) -> list[str]:
    notifications = tenant("get_notifications", **ORG, userId=user)
    return sorted(item["notificationSourceData"]["eventType"] for item in notifications)


def test_a_thread_is_returned_as_it_was_added(acme: Caller, world: BackendWorld) -> None:
    now = int(world.clock.now.timestamp() * 1000)
    fields: dict[str, Any] = {
        "location": {"id": 7, "name": "page"},
        "status": {"id": "OPEN"},
        "priority": "P1",
        "assignedTo": BOB,
        "context": {"access": {"a": 1}},
        "type": "suggestion",
        "visibility": "public",
        "more": {"kept": True},
    }
    comments = [comment("c1", commentHtml="<b>hi</b>", extra=1), comment("c2", "ho", BOB, agent={"name": "bot"})]

    added = begin(acme, commentData=comments, **fields)

    assert added == {"success": True, "id": "t", "message": "Annotation added.", "commentIds": ["c1", "c2"]}
    times = {"createdAt": now, "lastUpdated": now}
    (thread,) = read(acme)
    assert thread == fields | times | {
        "annotationId": "t",
        "organizationId": "acme",
        "documentId": "d",
        "comments": [item | times for item in comments],
    }
    assert read(acme, locationId="7") == [thread]
    assert read(acme, locationId="8") == []
    assert acme("get_comments", **THREAD) == thread["comments"]


def test_missing_ids_are_generated(acme: Caller) -> None:
    requested = {"commentData": [{"commentText": "x", "from": ADA}]}

    results = acme("add_comment_annotations", **DOC, commentAnnotations=[requested, requested])

    assert len(results) == 2
    assert {item["annotationId"] for item in read(acme)} == set(results)


def test_existing_threads_and_comments_are_not_added_again(acme: Caller) -> None:
    begin(acme)

    assert begin(acme, commentData=[comment("c9")]) == {
        "success": False, "id": "t", "message": "Annotation already exists.",
    }  # fmt: skip
    results = acme("add_comments", **THREAD, commentData=[comment("c1", "again"), comment("c2")])
    assert results == {
        "c1": {"success": False, "id": "c1", "message": "Comment already exists."},
        "c2": {"success": True, "id": "c2", "message": "Comment added."},
    }
    assert [item["commentText"] for item in acme("get_comments", **THREAD)] == ["hi", "hi"]


def test_missing_items_are_named(acme: Caller) -> None:
    begin(acme)
    annotation = {"commentData": [comment("c")]}

    refused = acme.refused("add_comment_annotations", **ORG, documentId="x", commentAnnotations=[annotation])
    assert refused == (404, "NOT_FOUND", "data.documentId: Document does not exist.")
    missing = (404, "NOT_FOUND", "data.annotationId: Annotation does not exist.")
    for thread in (DOC | {"annotationId": "x"}, THREAD | {"documentId": "e"}):
        assert acme.refused("add_comments", **thread, commentData=[comment("c")]) == missing
        assert acme.refused("get_comments", **thread) == missing
        assert acme.refused("update_comments", **thread, commentIds=["c1"], updatedData={}) == missing
        assert acme.refused("delete_comments", **thread) == missing
    results = acme("update_comment_annotations", **ORG, documentId="e", annotationIds=["t"], updatedData={})
    assert results == {"t": {"success": False, "id": "t", "message": "Annotation does not exist."}}
    results = acme("delete_comment_annotations", **ORG, annotationIds=["x"])
    assert results == {"x": {"success": False, "id": "x", "message": "Annotation does not exist."}}
    results = acme("update_comments", **THREAD, commentIds=["x"], updatedData={})
    assert results == {"x": {"success": False, "id": "x", "message": "Comment does not exist."}}
    long = {"location": {"id": "l" * 513}, "commentData": [comment("c")]}
    code, status, message = acme.refused("add_comment_annotations", **DOC, commentAnnotations=[annotation, long])
    assert (code, status) == (400, "INVALID_ARGUMENT")
    assert message.startswith("data.commentAnnotations[1].location.id: ")
    assert len(read(acme)) == 1


def test_threads_are_paged(acme: Caller, world: BackendWorld) -> None:
    for number in range(7):
        begin(acme, f"t{number}", document="de"[number % 2], location={"id": "l"} if number < 4 else {})
        world.clock.move_on(milliseconds=number % 2)

    def ids(**filters: Any) -> list[str]:
        found: list[str] = []
        token: dict[str, str] = {}
        while True:
            result = acme.call("get_comment_annotations", **ORG, **filters, **token, pageSize=2).get_json()["result"]
            found += [item["annotationId"] for item in result["data"]]
            if "nextPageToken" not in result:
                return found
            token = {"pageToken": result["nextPageToken"]}

    assert ids(order="asc") == [f"t{n}" for n in range(7)]
    assert ids() == [f"t{n}" for n in reversed(range(7))]
    assert ids(documentId="e") == ["t5", "t3", "t1"]
    assert ids(documentId="d", locationId="l") == ["t2", "t0"]
    assert ids(annotationIds=["t6", "t1", "x"], order="asc") == ["t1", "t6"]


def test_a_page_ends_early_if_it_is_too_large(acme: Caller) -> None:
    text = "x" * 100_000
    for number in range(3):
        begin(acme, f"t{number}", commentData=[comment(f"c{n}", text) for n in range(50)])

    result = acme.call("get_comment_annotations", **ORG, order="asc").get_json()["result"]

    assert [item["annotationId"] for item in result["data"]] == ["t0"]
    result = acme.call("get_comment_annotations", **ORG, order="asc", pageToken=result["nextPageToken"]).get_json()
    assert [item["annotationId"] for item in result["result"]["data"]] == ["t1"]


def test_comments_keep_the_order_in_which_they_were_written(acme: Caller, world: BackendWorld) -> None:
    begin(acme, commentData=[comment(c) for c in "zay"])
    acme("add_comments", **THREAD, commentData=[comment(c) for c in "kb"])
    world.clock.move_on(seconds=1)
    acme("add_comments", **THREAD, commentData=[comment("c")])

    first = acme.call("get_comments", **THREAD, pageSize=4).get_json()["result"]
    rest = acme.call("get_comments", **THREAD, pageSize=4, pageToken=first["nextPageToken"]).get_json()["result"]

    order = [item["commentId"] for item in first["data"] + rest["data"]]
    assert order == list("zaykbc")
    assert "nextPageToken" not in rest
    assert [item["commentId"] for item in acme("get_comments", **THREAD, commentIds=["y", "z"])] == ["z", "y"]


def test_threads_are_updated_by_merging(acme: Caller, world: BackendWorld) -> None:
    begin(acme, status={"id": "OPEN"}, priority="P1", location={"id": "l"})
    begin(acme, "u")
    world.clock.move_on(seconds=1)

    results = acme(
        "update_comment_annotations",
        **ORG,
        annotationIds=["t", "u"],
        updatedData={"priority": "P0", "location": {"id": "m"}, "custom": 1},
    )

    assert [result["message"] for result in results.values()] == ["Annotation updated."] * 2
    threads = {item["annotationId"]: item for item in read(acme)}
    assert threads["t"]["status"] == {"id": "OPEN"}
    assert (threads["t"]["priority"], threads["t"]["custom"]) == ("P0", 1)
    assert threads["t"]["lastUpdated"] == threads["t"]["createdAt"] + 1000
    assert len(read(acme, locationId="m")) == 2
    assert read(acme, locationId="l") == []


def test_comments_are_updated_and_deleted(acme: Caller, world: BackendWorld) -> None:
    begin(acme, commentData=[comment("c1"), comment("c2"), comment("c3")])
    world.clock.move_on(seconds=1)
    updated = acme("update_comments", **THREAD, commentIds=["c1", "c2"], updatedData={"commentText": "new", "x": 1})
    assert updated["c2"] == {"success": True, "id": "c2", "message": "Comment updated."}
    comments = acme("get_comments", **THREAD)
    assert [(item["commentText"], item.get("x"), item["from"]) for item in comments] == [
        ("new", 1, ADA), ("new", 1, ADA), ("hi", None, ADA),
    ]  # fmt: skip

    deleted = acme("delete_comments", **THREAD, commentIds=["c1", "x"])
    assert deleted["c1"] == {"success": True, "id": "c1", "message": "Comment deleted."}
    assert deleted["x"]["success"] is False
    assert [item["commentId"] for item in acme("get_comments", **THREAD)] == ["c2", "c3"]

    assert set(acme("delete_comments", **THREAD)) == {"c2", "c3"}
    assert read(acme) == []


def test_threads_are_deleted(acme: Caller) -> None:
    for annotation_id in ("t", "u"):
        begin(acme, annotation_id)
    begin(acme, "v", document="e")
    reactions = [{"icon": "+1", "from": BOB}]
    acme("update_comments", **THREAD, commentIds=["c1"], updatedData={"reactions": reactions})

    results = acme("delete_comment_annotations", **DOC, annotationIds=["t", "v"])
    assert {item: result["success"] for item, result in results.items()} == {"t": True, "v": False}
    # A new thread with the same id starts empty.
    begin(acme)
    assert "reactions" not in acme("get_comments", **THREAD)[0]

    assert set(acme("delete_comment_annotations", **DOC)) == {"t", "u"}
    assert [item["annotationId"] for item in read(acme)] == ["v"]
    assert acme.refused("delete_comment_annotations", **ORG)[:2] == (400, "INVALID_ARGUMENT")


def test_reactions_are_added_and_removed_with_a_comment(acme: Caller) -> None:
    begin(acme, commentData=[comment("c1", reactions=[{"reactionId": "r", "icon": "+1", "from": BOB, "x": 1}])])
    (shown,) = acme("get_comments", **THREAD)[0]["reactions"]
    assert {key: shown[key] for key in ("reactionId", "icon", "from", "x")} == {
        "reactionId": "r", "icon": "+1", "from": BOB, "x": 1,
    }  # fmt: skip
    assert read(acme)[0]["comments"][0]["reactions"] == [shown]

    def react(*reactions: dict[str, Any]) -> list[str]:
        acme("update_comments", **THREAD, commentIds=["c1"], updatedData={"reactions": list(reactions)})
        shown = acme("get_comments", **THREAD)[0].get("reactions", [])
        return sorted(item["icon"] for item in shown)

    assert react({"reactionId": "r", "icon": "+1", "from": BOB}, {"icon": "-1", "from": ADA}) == ["+1", "-1"]
    assert react({"icon": "eyes", "from": BOB}) == ["eyes"]
    assert react() == []
    assert actions(acme) == ["comment.reaction_add"] * 3 + ["comment.reaction_delete"] * 3 + ["comment_annotation.add"]
    # A reaction notifies the author of the comment, except of their own reactions.
    assert notified(acme, "ada") == ["comment.reaction_add"] * 2

    begin(acme, "u", commentData=[comment("c1", reactions=[{"reactionId": "r", "icon": "+1", "from": BOB}])])
    existing = {"reactions": [{"reactionId": "r", "icon": "x", "from": BOB}]}
    refused = acme.refused("update_comments", **THREAD, commentIds=["c1"], updatedData=existing)
    assert refused[:2] == (409, "ALREADY_EXISTS")
    refused = acme.refused("update_comments", **THREAD, commentIds=["c1", "c2"], updatedData=existing)
    assert refused[:2] == (400, "INVALID_ARGUMENT")


class CountedId(str):
    """An id that counts how often it is compared with another one."""

    __slots__ = ()
    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedId.comparisons += 1
        return str.__eq__(self, other)


def test_the_time_to_insert_reactions_is_linear_in_their_number(acme: Caller, world: BackendWorld) -> None:
    number = 500
    begin(acme)
    reactions = [Reaction(CountedId(i), "d", "t", "c1", "bob", {"icon": "+1"}, 0) for i in range(number)]
    with writing(world.engine) as connection:
        insert_reactions(connection, Scope(acme.ids["api_key"], "acme"), reactions)
    assert len(acme("get_comments", **THREAD)[0]["reactions"]) == number
    assert CountedId.comparisons < 10 * number


def test_a_reaction_id_may_occur_once_per_request(acme: Caller) -> None:
    twice = [{"reactionId": "r", "icon": icon, "from": BOB} for icon in ("+1", "-1")]
    thread = {"annotationId": "t", "commentData": [comment("c1", reactions=twice)]}
    refused = acme.refused("add_comment_annotations", **DOC, commentAnnotations=[thread])
    assert refused == (409, "ALREADY_EXISTS", "reactionId: Reaction already exists (r).")


def test_every_change_writes_activities_and_notifications(acme: Caller, world: BackendWorld) -> None:
    begin(acme, commentData=[comment("c1"), comment("c2", author=BOB)], assignedTo={"userId": "cyd"})
    assert actions(acme) == ["comment.add", "comment_annotation.add"]
    assert [notified(acme, user) for user in ("ada", "bob", "cyd")] == [
        ["comment.add"], [], ["comment.add", "comment_annotation.add"],
    ]  # fmt: skip

    world.clock.move_on(seconds=1)
    changed = {"status": "DONE", "priority": "P0", "assignedTo": BOB}
    acme("update_comment_annotations", **ORG, annotationIds=["t"], updatedData=changed, actionUser=ADA)
    newest = acme("get_activity_logs", **ORG, pageSize=3)
    assert sorted(item["actionType"] for item in newest) == [
        "comment_annotation.assign", "comment_annotation.priority_change", "comment_annotation.status_change",
    ]  # fmt: skip
    assert {item["actionUser"]["userId"] for item in newest} == {"ada"}
    assert {(item["targetEntityId"], item["featureType"]) for item in newest} == {("t", "comment")}
    assert notified(acme, "bob") == ["comment_annotation.assign", "comment_annotation.status_change"]
    # No longer assigned, so cyd is not a participant.
    assert notified(acme, "cyd") == ["comment.add", "comment_annotation.add"]

    # An update without a change is not an event.
    acme("update_comment_annotations", **ORG, annotationIds=["t"], updatedData=changed)
    acme("update_comments", **THREAD, commentIds=["c1"], updatedData={"commentText": "hi"})
    acme("update_comments", **THREAD, commentIds=["c1"], updatedData={"commentText": "ho"}, actionUser=ADA)
    acme("delete_comments", **THREAD, commentIds=["c1"])
    acme("delete_comment_annotations", **DOC)
    assert actions(acme) == sorted(
        ["comment.add", "comment.update", "comment_annotation.add", *["comment.delete"] * 2]
        + [f"comment_annotation.{item}" for item in ("assign", "priority_change", "status_change")]
    )


def test_many_comments_in_one_request_create_one_notification(acme: Caller) -> None:
    begin(acme)
    requested = [comment(f"n{number}", author={"userId": f"u{number}"}) for number in range(300)]

    acme("add_comments", **THREAD, commentData=requested)

    (notification,) = acme("get_notifications", **ORG, userId="ada")
    assert notification["notificationSourceData"] == {
        "eventType": "comment.add",
        "annotationId": "t",
        "commentId": "n299",
    }
    assert len(acme("get_notifications", **ORG, userId="u7")) == 1
    assert acme("get_notifications", **ORG, userId="u299") == []
    assert actions(acme).count("comment.add") == 300


@pytest.mark.parametrize(
    ("status", "decision"),
    [({"id": "ACCEPTED"}, "approve"), ("rejected", "reject"), ({"id": "OPEN"}, None), ({"type": 1}, None)],
)
def test_a_decided_suggestion_writes_a_judgment(acme: Caller, status: Any, decision: str | None) -> None:
    begin(acme, type="suggestion", commentData=[comment("c1", "use fewer words")])
    begin(acme, "u")
    for _ in range(2):
        acme(
            "update_comment_annotations",
            **ORG,
            annotationIds=["t", "u"],
            updatedData={"status": status},
            actionUser=BOB,
            reasoning="short is good",
        )

    judgments = acme("query_judgments", **ORG)

    accept_or_reject = [item for item in actions(acme) if "suggestion" in item]
    if decision is None:
        assert (judgments, accept_or_reject) == ([], [])
        return
    (judgment,) = judgments
    assert judgment["decision"] == decision
    assert judgment["reasoning"] == "short is good"
    assert (judgment["annotationId"], judgment["documentId"], judgment["reviewerId"]) == ("t", "d", "bob")
    assert judgment["content"] == "use fewer words"
    assert len(accept_or_reject) == 1
    found = acme("query_judgments", **ORG, filters={"contentType": "suggestion"})
    assert len(found) == 1


def test_only_authors_with_access_are_accepted(acme: Caller) -> None:
    stranger = {"userId": "stranger"}
    requested = [
        {"annotationId": "t", "commentData": [comment("c1"), comment("c2", author=BOB)]},
        {"annotationId": "u", "commentData": [comment("c1"), comment("c2", author=stranger)]},
    ]
    results = acme("add_comment_annotations", **DOC, commentAnnotations=requested, verifyUserPermissions=True)
    assert results["t"]["success"] is True
    refusal = "User does not have access to the document."
    assert results["u"] == {"success": False, "id": "u", "message": refusal}

    comments = [comment("c3", author=stranger), comment("c4")]
    results = acme("add_comments", **THREAD, commentData=comments, verifyUserPermissions=True)
    assert results["c3"] == {"success": False, "id": "c3", "message": refusal}
    assert [item["commentId"] for item in acme("get_comments", **THREAD)] == ["c1", "c2", "c4"]
    assert acme("add_comments", **THREAD, commentData=comments)["c3"]["success"] is True


def test_the_permission_provider_verifies_access(
    make_world: WorldMaker, make_provider: Callable[[Answerer], ScriptedProvider]
) -> None:
    def answer(body: dict[str, Any], _: dict[str, str]) -> tuple[int, bytes]:
        # Another request adds a comment during the call to the provider.
        if body["data"]["requests"][0]["userId"] == "stranger":
            acme("add_comments", **THREAD, commentData=[comment("meanwhile")])
        results = [
            {"userId": item["userId"], "resourceId": "d", "type": "document", "hasAccess": item["userId"] == "stranger"}
            for item in body["data"]["requests"]
        ]
        return 200, orjson.dumps({"data": results, "success": True, "statusCode": 200})

    provider = make_provider(answer)
    acme = fill(make_world(allow_private_urls=True).tenant())
    acme(
        "update_permission_provider_config",
        usePermissionProvider=True,
        permissionProviderConfig={"permissionProviderUrl": provider.url},
    )
    begin(acme)

    comments = [comment("c2", author={"userId": "stranger"}), comment("c3")]
    results = acme("add_comments", **THREAD, commentData=comments, verifyUserPermissions=True)

    assert {item: result["success"] for item, result in results.items()} == {"c2": True, "c3": False}
    assert {item["commentId"] for item in acme("get_comments", **THREAD)} == {"c1", "meanwhile", "c2"}
    assert [item["userId"] for item in provider.asked[0]] == ["stranger", "ada"]
    provider.close()
    results = acme("add_comments", **THREAD, commentData=[comment("c5")], verifyUserPermissions=True)
    assert results["c5"]["success"] is False


@pytest.mark.parametrize(("count", "code"), [(999, 200), (1000, 200), (1001, 400)])
def test_batches_are_limited(acme: Caller, count: int, code: int) -> None:
    begin(acme)
    requested = [comment(f"n{number}") for number in range(count)]

    assert acme.call("add_comments", **THREAD, commentData=requested).status_code == code
    assert len(acme("get_comments", **THREAD, pageSize=1000)) == (
        1000 if count == 1000 else count + 1 if code == 200 else 1
    )


@pytest.mark.parametrize(("length", "code"), [(99_999, 200), (100_000, 200), (100_001, 400)])
def test_texts_are_limited(acme: Caller, length: int, code: int) -> None:
    begin(acme)

    assert acme.call("add_comments", **THREAD, commentData=[comment("c", "ä" * length)]).status_code == code
