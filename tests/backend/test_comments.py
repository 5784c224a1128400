from collections.abc import Callable
from typing import Any

import orjson
import pytest

from .conftest import Answerer, Caller, ScriptedProvider, World, WorldMaker

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
def acme(world: World) -> Caller:
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
    """What the activity log says, oldest first within one moment or not."""
    return sorted(one["actionType"] for one in tenant("get_activity_logs", **ORG))


def notified(tenant: Caller, user: str) -> list[str]:
    found = tenant("get_notifications", **ORG, userId=user)
    return sorted(one["notificationSourceData"]["eventType"] for one in found)


def test_a_thread_is_told_as_it_was_added(acme: Caller, world: World) -> None:
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
    (told,) = read(acme)
    assert told == fields | times | {
        "annotationId": "t",
        "organizationId": "acme",
        "documentId": "d",
        "comments": [one | times for one in comments],
    }
    assert read(acme, locationId="7") == [told]
    assert read(acme, locationId="8") == []
    assert acme("get_comments", **THREAD) == told["comments"]


def test_ids_are_given_where_none_is(acme: Caller) -> None:
    given = {"commentData": [{"commentText": "x", "from": ADA}]}

    results = acme("add_comment_annotations", **DOC, commentAnnotations=[given, given])

    assert len(results) == 2
    assert {one["annotationId"] for one in read(acme)} == set(results)


def test_what_exists_is_not_added_again(acme: Caller) -> None:
    begin(acme)

    assert begin(acme, commentData=[comment("c9")]) == {
        "success": False, "id": "t", "message": "Annotation already exists.",
    }  # fmt: skip
    results = acme("add_comments", **THREAD, commentData=[comment("c1", "again"), comment("c2")])
    assert results == {
        "c1": {"success": False, "id": "c1", "message": "Comment already exists."},
        "c2": {"success": True, "id": "c2", "message": "Comment added."},
    }
    assert [one["commentText"] for one in acme("get_comments", **THREAD)] == ["hi", "hi"]


def test_what_is_missing_is_named(acme: Caller) -> None:
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


def test_threads_are_read_by_page(acme: Caller, world: World) -> None:
    for number in range(7):
        begin(acme, f"t{number}", document="de"[number % 2], location={"id": "l"} if number < 4 else {})
        world.clock.move_on(milliseconds=number % 2)

    def ids(**filters: Any) -> list[str]:
        found: list[str] = []
        token: dict[str, str] = {}
        while True:
            result = acme.call("get_comment_annotations", **ORG, **filters, **token, pageSize=2).get_json()["result"]
            found += [one["annotationId"] for one in result["data"]]
            if "nextPageToken" not in result:
                return found
            token = {"pageToken": result["nextPageToken"]}

    assert ids(order="asc") == [f"t{n}" for n in range(7)]
    assert ids() == [f"t{n}" for n in reversed(range(7))]
    assert ids(documentId="e") == ["t5", "t3", "t1"]
    assert ids(documentId="d", locationId="l") == ["t2", "t0"]
    assert ids(annotationIds=["t6", "t1", "x"], order="asc") == ["t1", "t6"]


def test_a_page_ends_early_where_it_weighs_too_much(acme: Caller) -> None:
    text = "x" * 100_000
    for number in range(3):
        begin(acme, f"t{number}", commentData=[comment(f"c{n}", text) for n in range(50)])

    result = acme.call("get_comment_annotations", **ORG, order="asc").get_json()["result"]

    assert [one["annotationId"] for one in result["data"]] == ["t0"]
    result = acme.call("get_comment_annotations", **ORG, order="asc", pageToken=result["nextPageToken"]).get_json()
    assert [one["annotationId"] for one in result["result"]["data"]] == ["t1"]


def test_comments_keep_the_order_in_which_they_were_written(acme: Caller, world: World) -> None:
    begin(acme, commentData=[comment(c) for c in "zay"])
    acme("add_comments", **THREAD, commentData=[comment(c) for c in "kb"])
    world.clock.move_on(seconds=1)
    acme("add_comments", **THREAD, commentData=[comment("c")])

    first = acme.call("get_comments", **THREAD, pageSize=4).get_json()["result"]
    rest = acme.call("get_comments", **THREAD, pageSize=4, pageToken=first["nextPageToken"]).get_json()["result"]

    order = [one["commentId"] for one in first["data"] + rest["data"]]
    assert order == list("zaykbc")
    assert "nextPageToken" not in rest
    assert [one["commentId"] for one in acme("get_comments", **THREAD, commentIds=["y", "z"])] == ["z", "y"]


def test_threads_are_updated_by_merging(acme: Caller, world: World) -> None:
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
    told = {one["annotationId"]: one for one in read(acme)}
    assert told["t"]["status"] == {"id": "OPEN"}
    assert (told["t"]["priority"], told["t"]["custom"]) == ("P0", 1)
    assert told["t"]["lastUpdated"] == told["t"]["createdAt"] + 1000
    assert len(read(acme, locationId="m")) == 2
    assert read(acme, locationId="l") == []


def test_comments_are_updated_and_deleted(acme: Caller, world: World) -> None:
    begin(acme, commentData=[comment("c1"), comment("c2"), comment("c3")])
    world.clock.move_on(seconds=1)
    updated = acme("update_comments", **THREAD, commentIds=["c1", "c2"], updatedData={"commentText": "new", "x": 1})
    assert updated["c2"] == {"success": True, "id": "c2", "message": "Comment updated."}
    told = acme("get_comments", **THREAD)
    assert [(one["commentText"], one.get("x"), one["from"]) for one in told] == [
        ("new", 1, ADA), ("new", 1, ADA), ("hi", None, ADA),
    ]  # fmt: skip

    deleted = acme("delete_comments", **THREAD, commentIds=["c1", "x"])
    assert deleted["c1"] == {"success": True, "id": "c1", "message": "Comment deleted."}
    assert deleted["x"]["success"] is False
    assert [one["commentId"] for one in acme("get_comments", **THREAD)] == ["c2", "c3"]

    assert set(acme("delete_comments", **THREAD)) == {"c2", "c3"}
    assert read(acme) == []


def test_threads_are_deleted(acme: Caller) -> None:
    for annotation_id in ("t", "u"):
        begin(acme, annotation_id)
    begin(acme, "v", document="e")
    reactions = [{"icon": "+1", "from": BOB}]
    acme("update_comments", **THREAD, commentIds=["c1"], updatedData={"reactions": reactions})

    results = acme("delete_comment_annotations", **DOC, annotationIds=["t", "v"])
    assert {one: result["success"] for one, result in results.items()} == {"t": True, "v": False}
    # Nothing of it is left for a thread of the same id.
    begin(acme)
    assert "reactions" not in acme("get_comments", **THREAD)[0]

    assert set(acme("delete_comment_annotations", **DOC)) == {"t", "u"}
    assert [one["annotationId"] for one in read(acme)] == ["v"]
    assert acme.refused("delete_comment_annotations", **ORG)[:2] == (400, "INVALID_ARGUMENT")


def test_reactions_come_and_go_with_a_comment(acme: Caller) -> None:
    begin(acme, commentData=[comment("c1", reactions=[{"reactionId": "r", "icon": "+1", "from": BOB, "x": 1}])])
    (told,) = acme("get_comments", **THREAD)[0]["reactions"]
    assert {key: told[key] for key in ("reactionId", "icon", "from", "x")} == {
        "reactionId": "r", "icon": "+1", "from": BOB, "x": 1,
    }  # fmt: skip
    assert read(acme)[0]["comments"][0]["reactions"] == [told]

    def react(*reactions: dict[str, Any]) -> list[str]:
        acme("update_comments", **THREAD, commentIds=["c1"], updatedData={"reactions": list(reactions)})
        told = acme("get_comments", **THREAD)[0].get("reactions", [])
        return sorted(one["icon"] for one in told)

    assert react({"reactionId": "r", "icon": "+1", "from": BOB}, {"icon": "-1", "from": ADA}) == ["+1", "-1"]
    assert react({"icon": "eyes", "from": BOB}) == ["eyes"]
    assert react() == []
    assert actions(acme) == ["comment.reaction_add"] * 3 + ["comment.reaction_delete"] * 3 + ["comment_annotation.add"]
    # Whoever reacts tells the comment's author, but not themselves.
    assert notified(acme, "ada") == ["comment.reaction_add"] * 2

    begin(acme, "u", commentData=[comment("c1", reactions=[{"reactionId": "r", "icon": "+1", "from": BOB}])])
    taken = {"reactions": [{"reactionId": "r", "icon": "x", "from": BOB}]}
    refused = acme.refused("update_comments", **THREAD, commentIds=["c1"], updatedData=taken)
    assert refused[:2] == (409, "ALREADY_EXISTS")
    refused = acme.refused("update_comments", **THREAD, commentIds=["c1", "c2"], updatedData=taken)
    assert refused[:2] == (400, "INVALID_ARGUMENT")


def test_every_change_leaves_its_activities_and_notifications(acme: Caller, world: World) -> None:
    begin(acme, commentData=[comment("c1"), comment("c2", author=BOB)], assignedTo={"userId": "cyd"})
    assert actions(acme) == ["comment.add", "comment_annotation.add"]
    assert [notified(acme, user) for user in ("ada", "bob", "cyd")] == [
        ["comment.add"], [], ["comment.add", "comment_annotation.add"],
    ]  # fmt: skip

    world.clock.move_on(seconds=1)
    changed = {"status": "DONE", "priority": "P0", "assignedTo": BOB}
    acme("update_comment_annotations", **ORG, annotationIds=["t"], updatedData=changed, actionUser=ADA)
    newest = acme("get_activity_logs", **ORG, pageSize=3)
    assert sorted(one["actionType"] for one in newest) == [
        "comment_annotation.assign", "comment_annotation.priority_change", "comment_annotation.status_change",
    ]  # fmt: skip
    assert {one["actionUser"]["userId"] for one in newest} == {"ada"}
    assert {(one["targetEntityId"], one["featureType"]) for one in newest} == {("t", "comment")}
    assert notified(acme, "bob") == ["comment_annotation.assign", "comment_annotation.status_change"]
    # No longer assigned: cyd takes part no more.
    assert notified(acme, "cyd") == ["comment.add", "comment_annotation.add"]

    # What changes nothing is no event.
    acme("update_comment_annotations", **ORG, annotationIds=["t"], updatedData=changed)
    acme("update_comments", **THREAD, commentIds=["c1"], updatedData={"commentText": "hi"})
    acme("update_comments", **THREAD, commentIds=["c1"], updatedData={"commentText": "ho"}, actionUser=ADA)
    acme("delete_comments", **THREAD, commentIds=["c1"])
    acme("delete_comment_annotations", **DOC)
    assert actions(acme) == sorted(
        ["comment.add", "comment.update", "comment_annotation.add", *["comment.delete"] * 2]
        + [f"comment_annotation.{one}" for one in ("assign", "priority_change", "status_change")]
    )


def test_many_comments_in_one_request_make_one_notification(acme: Caller) -> None:
    begin(acme)
    given = [comment(f"n{number}", author={"userId": f"u{number}"}) for number in range(300)]

    acme("add_comments", **THREAD, commentData=given)

    (told,) = acme("get_notifications", **ORG, userId="ada")
    assert told["notificationSourceData"] == {"eventType": "comment.add", "annotationId": "t", "commentId": "n299"}
    assert len(acme("get_notifications", **ORG, userId="u7")) == 1
    assert acme("get_notifications", **ORG, userId="u299") == []
    assert actions(acme).count("comment.add") == 300


@pytest.mark.parametrize(
    ("status", "decision"),
    [({"id": "ACCEPTED"}, "approve"), ("rejected", "reject"), ({"id": "OPEN"}, None), ({"type": 1}, None)],
)
def test_a_decided_suggestion_leaves_a_judgment(acme: Caller, status: Any, decision: str | None) -> None:
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

    accept_or_reject = [one for one in actions(acme) if "suggestion" in one]
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


def test_only_authors_with_access_get_through(acme: Caller) -> None:
    stranger = {"userId": "stranger"}
    given = [
        {"annotationId": "t", "commentData": [comment("c1"), comment("c2", author=BOB)]},
        {"annotationId": "u", "commentData": [comment("c1"), comment("c2", author=stranger)]},
    ]
    results = acme("add_comment_annotations", **DOC, commentAnnotations=given, verifyUserPermissions=True)
    assert results["t"]["success"] is True
    refusal = "User does not have access to the document."
    assert results["u"] == {"success": False, "id": "u", "message": refusal}

    comments = [comment("c3", author=stranger), comment("c4")]
    results = acme("add_comments", **THREAD, commentData=comments, verifyUserPermissions=True)
    assert results["c3"] == {"success": False, "id": "c3", "message": refusal}
    assert [one["commentId"] for one in acme("get_comments", **THREAD)] == ["c1", "c2", "c4"]
    assert acme("add_comments", **THREAD, commentData=comments)["c3"]["success"] is True


def test_the_provider_is_asked_for_access(
    make_world: WorldMaker, make_provider: Callable[[Answerer], ScriptedProvider]
) -> None:
    def answer(body: dict[str, Any], _: dict[str, str]) -> tuple[int, bytes]:
        # A comment comes in while the provider thinks: nothing waits for it.
        if body["data"]["requests"][0]["userId"] == "stranger":
            acme("add_comments", **THREAD, commentData=[comment("meanwhile")])
        results = [
            {"userId": one["userId"], "resourceId": "d", "type": "document", "hasAccess": one["userId"] == "stranger"}
            for one in body["data"]["requests"]
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

    assert {one: result["success"] for one, result in results.items()} == {"c2": True, "c3": False}
    assert {one["commentId"] for one in acme("get_comments", **THREAD)} == {"c1", "meanwhile", "c2"}
    assert [one["userId"] for one in provider.asked[0]] == ["stranger", "ada"]
    provider.close()
    results = acme("add_comments", **THREAD, commentData=[comment("c5")], verifyUserPermissions=True)
    assert results["c5"]["success"] is False


@pytest.mark.parametrize(("count", "code"), [(999, 200), (1000, 200), (1001, 400)])
def test_batches_have_their_limit(acme: Caller, count: int, code: int) -> None:
    begin(acme)
    given = [comment(f"n{number}") for number in range(count)]

    assert acme.call("add_comments", **THREAD, commentData=given).status_code == code
    assert len(acme("get_comments", **THREAD, pageSize=1000)) == (
        1000 if count == 1000 else count + 1 if code == 200 else 1
    )


@pytest.mark.parametrize(("length", "code"), [(99_999, 200), (100_000, 200), (100_001, 400)])
def test_texts_have_their_limit(acme: Caller, length: int, code: int) -> None:
    begin(acme)

    assert acme.call("add_comments", **THREAD, commentData=[comment("c", "ä" * length)]).status_code == code
