"""Pushes of changes: their effect on decisions, sequences, and responses."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema_rs
import pytest

from app.access.pending import pending_since
from app.access.source_states import source_states
from app.foundation.database.engine import reading
from app.service.admin.openapi import document as openapi_document
from app.service.provider.settings import ProviderSettings
from tests.hearing import heard
from tests.service.push.conftest import (
    HR,
    NEW_PUSH,
    PUSH,
    SMALL,
    Service,
    document,
    grant,
    key,
    membership,
    organization,
    user,
)

PEOPLE = [organization(), user("ann"), user("bob"), membership("ann")]


def test_a_pushed_document_is_allowed_in_the_next_answer(service: Service) -> None:
    service.pushed(1, upsert=PEOPLE)
    assert not service.may("ann", "d1")
    answer = service.pushed(2, upsert=[document("d1", accessType="restricted"), grant("d1", "ann")])
    assert answer["counts"] == {"added": 2, "updated": 0, "unchanged": 0, "removed": 0, "absent": 0}
    assert answer["leftOut"] == []
    assert service.may("ann", "d1")
    assert not service.may("bob", "d1")
    answer = service.pushed(3, remove=[key(grant("d1", "ann"))])
    assert answer["counts"]["removed"] == 1
    assert not service.may("ann", "d1")


def test_an_explanation_goes_back_to_the_push(service: Service) -> None:
    service.pushed(1, upsert=PEOPLE)
    service.pushed(7, upsert=[document("d1", accessType="restricted"), grant("d1", "ann", accessRole="viewer")])
    asked = {"userId": "ann", "resource": {"type": "document", "id": "d1", "organizationId": "acme"}}
    body = {"data": {"requests": [asked, {"userId": ""}, asked]}}
    answer = service.call("POST", "/permissions/explain", "admin-" + "x" * 20, json=body).get_json()
    described: Any = openapi_document(ProviderSettings())["components"]
    jsonschema_rs.Draft202012Validator({"$ref": "#/components/schemas/Explanations", "components": described}).validate(
        answer
    )
    results = answer["data"]
    assert [result.get("path") for result in results] == [results[0]["path"], None, results[0]["path"]]
    (grant_shown,) = (record for record in results[0]["path"] if record["kind"] == "grant")
    (origin,) = grant_shown["origins"]
    assert (grant_shown["accessRole"], origin) == (
        "viewer",
        {
            "source": "app",
            "retained": False,
            "place": "push 7, upsert[1]",
            "set": None,
            "id": None,
            "rule": None,
            "gives": ["accessRole", "expiresAt"],
            "alias": None,
        },
    )


def test_grants_by_id_and_by_alias_are_combined(service: Service) -> None:
    ann = user("ann") | {"aliases": ["a"]}
    service.pushed(1, upsert=[organization(), ann, document("d1", accessType="restricted")])
    by_alias = of_alias(grant("d1", ""), "a")
    service.pushed(2, upsert=[grant("d1", "ann"), by_alias])
    service.pushed(3, remove=[key(grant("d1", "ann"))])
    assert service.may("ann", "d1")
    service.pushed(4, remove=[of_alias(key(by_alias), "a")])
    assert not service.may("ann", "d1")


def test_another_node_follows_at_once(service: Service) -> None:
    """Each loader caches what seldom changes: organizations, folders, groups."""
    other = Service(service.client.application.test_client(), service.engine, service.clock)
    folder = {
        "kind": "folder",
        "organizationId": "acme",
        "folderId": "f",
        "folderName": "F",
        "accessType": "restricted",
    }
    service.pushed(1, upsert=[*PEOPLE, folder, document("d1", folderId="f")])
    assert not other.may("ann", "d1")
    service.pushed(2, upsert=[folder | {"accessType": "organizationPrivate"}])
    assert other.may("ann", "d1")


def test_a_repeated_push_changes_nothing_and_is_answered_as_before(service: Service) -> None:
    service.pushed(1, upsert=PEOPLE)
    first = service.pushed(5, upsert=[document("d1"), grant("nowhere", "ann")])
    assert service.pushed(5, upsert=[document("d1"), grant("nowhere", "ann")], previousSequence=1) == first
    assert service.pushed(1, upsert=PEOPLE) == first
    assert [one["documentId"] for one in service.records() if one["kind"] == "document"] == ["d1"]


def test_a_push_that_arrives_after_a_later_one_is_refused_and_not_dropped(service: Service) -> None:
    service.pushed(10, upsert=PEOPLE)
    service.pushed(30, upsert=[document("d1")])
    removal = {"remove": [key(document("d1"))]}
    for sequence in (1, 20, 29):
        answer = service.push({"sequence": sequence, **removal})
        assert answer.status_code == 409
        error = answer.get_json()["error"]
        assert error["details"] == {"sequence": 30}
        assert error["message"].startswith(f"sequence: {sequence} is too late")
    assert service.pushed(31, **removal)["counts"]["removed"] == 1


@pytest.mark.extended
def test_a_repeat_of_an_old_push_is_refused(service: Service) -> None:
    service.pushed(1, upsert=PEOPLE)
    for sequence in range(2, 102):
        service.pushed(sequence, upsert=[document("d1", documentName=str(sequence))])
    assert service.pushed(2, upsert=[document("d1", documentName="2")])["sequence"] == 101
    assert service.push({"sequence": 1, "upsert": PEOPLE}).status_code == 409


@pytest.mark.parametrize("later", [0, 1, 60])
def test_a_sequence_that_was_used_for_another_push_is_refused(service: Service, later: int) -> None:
    """Two applications push to one source, and both name the same previous sequence."""
    service.pushed(31, upsert=PEOPLE)
    service.pushed(32, upsert=[document("d1")], previousSequence=31)
    for sequence in range(33, 33 + later):
        service.pushed(sequence, upsert=[document("d3")])
    for other in (
        {"upsert": [document("d2")]},
        {"remove": [key(document("d1"))]},
        {"upsert": [document("d1"), *PEOPLE]},
    ):
        answer = service.push({"sequence": 32, "previousSequence": 31, **other})
        assert answer.status_code == 409
        error = answer.get_json()["error"]
        assert error["details"] == {"sequence": 32 + later}
        assert error["message"].startswith("sequence: 32 was used for other content; the last push")
    assert service.pushed(32, upsert=[document("d1")], previousSequence=31)["sequence"] == 32 + later
    assert {one["documentId"] for one in service.records() if one["kind"] == "document"} <= {"d1", "d3"}


def test_after_everything_was_pushed_its_sequences_may_be_used_again(service: Service) -> None:
    service.pushed(1, upsert=PEOPLE)
    service.pushed(2, upsert=[document("d1")])
    lines = [*PEOPLE, {"end": True, "records": len(PEOPLE), "sequence": 1}]
    body = "\n".join(map(json.dumps, lines))
    headers = {"Content-Type": "application/jsonl"}
    assert service.call("PUT", "/directory/app", data=body, headers=headers).status_code == 200
    assert service.pushed(2, upsert=[document("d2")])["counts"]["added"] == 1


MILLISECONDS, NANOSECONDS = 1_794_000_000_000, 1_794_000_000_000_000_000
YEAR_OF_MILLISECONDS = 366 * 24 * 3600 * 1000


@pytest.mark.parametrize(
    ("last", "sequence", "code"),
    [
        (None, 1, 200),
        (None, NANOSECONDS, 200),
        (None, 2**62, 200),
        (None, 2**62 + 1, 409),
        (None, 2**63 - 1, 409),
        (7, 2**63 - 1, 409),
        (7, MILLISECONDS, 409),
        (7, 1_000_000_007, 200),
        (7, 1_000_000_008, 409),
        (MILLISECONDS, MILLISECONDS + 5 * YEAR_OF_MILLISECONDS, 200),
        (MILLISECONDS, NANOSECONDS, 409),
        (NANOSECONDS, NANOSECONDS + 5 * YEAR_OF_MILLISECONDS * 1_000_000, 200),
        (NANOSECONDS, 2**63 - 1, 409),
    ],
)
def test_a_sequence_far_above_the_last_is_refused(service: Service, last: int | None, sequence: int, code: int) -> None:
    """Such a sequence would make all later pushes too low."""
    if last is not None:
        service.pushed(last, upsert=PEOPLE)
    answer = service.push({"sequence": sequence, "upsert": [document("d1")]})
    assert answer.status_code == code
    if code == 409:
        error = answer.get_json()["error"]
        assert error["details"] == {"sequence": last or 0}
        assert error["message"].startswith(f"sequence: {sequence} is too far above {last or 0}, the last push that was")
        assert service.pushed((last or 0) + 1, upsert=[document("d1")])["counts"]["added"] == 1


def test_a_push_that_follows_another_one_than_the_last_is_refused_with_the_last(service: Service) -> None:
    service.pushed(3, upsert=PEOPLE, previousSequence=0)
    service.pushed(4, upsert=[document("d1")], previousSequence=3)
    answer = service.push({"sequence": 6, "previousSequence": 5, "upsert": [document("d2")]})
    assert answer.status_code == 409
    error = answer.get_json()["error"]
    assert error["status"] == "FAILED_PRECONDITION"
    assert error["details"] == {"sequence": 4}
    # The push whose response was lost is answered again.
    assert service.pushed(4, upsert=[document("d1")], previousSequence=3)["sequence"] == 4
    assert service.pushed(6, upsert=[document("d2")], previousSequence=4)["counts"]["added"] == 1


def test_dangling_records_are_stored_listed_and_become_effective(service: Service) -> None:
    answer = service.pushed(1, upsert=[document("d1", accessType="restricted"), organization(), grant("d1", "ann")])
    assert [item["index"] for item in answer["leftOut"]] == [2]
    assert "the user 'ann' (userId)" in answer["leftOut"][0]["reason"]
    # If it is pushed again while it dangles, it is listed again.
    assert [item["index"] for item in service.pushed(2, upsert=[grant("d1", "ann")])["leftOut"]] == [0]
    assert service.pushed(3, upsert=[user("ann")])["leftOut"] == []
    assert service.may("ann", "d1")


def test_of_two_records_of_one_key_the_last_counts(service: Service) -> None:
    service.pushed(1, upsert=PEOPLE)
    answer = service.pushed(2, upsert=[document("d1", title="old"), document("d1", title="new")])
    assert answer["leftOut"] == [{"index": 0, "reason": "is replaced by upsert[1], which has the same key"}]
    assert answer["counts"]["added"] == 1
    assert [one["title"] for one in service.records() if one["kind"] == "document"] == ["new"]


def folder(folder_id: str, parent: str | None = None) -> dict[str, object]:
    identity = {"kind": "folder", "organizationId": "acme", "folderId": folder_id}
    return identity | {"folderName": folder_id, "parentFolderId": parent}


def of_alias(record: dict[str, object], alias: str) -> dict[str, object]:
    return {name: value for name, value in record.items() if name != "userId"} | {"userAlias": alias}


def group_member(group_id: str, **who: object) -> dict[str, object]:
    return {"kind": "groupMember", "organizationId": "acme", "organizationUserGroupId": group_id, **who}


NOWHERE, OUT = "which is nowhere in the directory", "which is left out itself"
LEFT_OUT: list[tuple[dict[str, object], str]] = [
    (document("d1"), ""),
    (document("d2"), "is replaced by upsert[2], which has the same key"),
    (document("d2", title="new"), ""),
    (grant("d1", "ann"), ""),
    (grant("d1", "who"), f"refers to the user 'who' (userId), {NOWHERE}"),
    (grant("d9", "ann"), f"refers to the document 'd9' (documentId), {NOWHERE}"),
    (document("d3", folderId="f0"), f"refers to the folder 'f0' (folderId), {NOWHERE}"),
    (grant("d3", "ann"), f"refers to the document 'd3' (documentId), {OUT}"),
    (folder("f1", "f0"), f"refers to the folder 'f0' (parentFolderId), {NOWHERE}"),
    (folder("f2", "f1"), f"refers to the folder 'f1' (parentFolderId), {OUT}"),
    (document("d4", folderId="f2"), f"refers to the folder 'f2' (folderId), {OUT}"),
    (folder("c1", "c2"), "is in a cycle of folders"),
    (folder("c2", "c1"), "is in a cycle of folders"),
    (folder("c3", "c1"), f"refers to the folder 'c1' (parentFolderId), {OUT}"),
    (group_member("g", userId="ann"), f"refers to the group 'g' (organizationUserGroupId), {NOWHERE}"),
    (group_member("h", memberGroupId="g"), f"refers to the group 'g' (memberGroupId), {NOWHERE}"),
    (membership("ann", "else"), f"refers to the organization 'else' (organizationId), {NOWHERE}"),
    (grant("d1", "ann", "else"), f"refers to the document 'd1' (documentId), {NOWHERE}"),
    (user("bob") | {"name": "B"}, "belongs to the source 'hr', which provides it at push 1, upsert[3]"),
]
LEFT_OUT_WITH_ALIASES: list[tuple[dict[str, object], str]] = [
    (of_alias(grant("d2", ""), "ANN@acme.example"), "is replaced by upsert[20], which has the same key"),
    (of_alias(grant("d2", ""), "ann@acme.example"), ""),
    (of_alias(grant("d1", ""), "Who"), "refers to the user 'who' (userAlias), an alias that no user has"),
    (of_alias(grant("d1", ""), "both"), "refers to the user 'both' (userAlias), an alias of several: 'bob', 'cyd'"),
    (of_alias(grant("d9", ""), "ann@acme.example"), f"refers to the document 'd9' (documentId), {NOWHERE}"),
    (of_alias(grant("d3", ""), "ann@acme.example"), f"refers to the document 'd3' (documentId), {OUT}"),
    (
        of_alias(membership(""), "ann@acme.example"),
        "belongs to the source 'hr', which provides it at push 1, upsert[4]",
    ),
    (
        of_alias(membership("", "else"), "ann@acme.example"),
        f"refers to the organization 'else' (organizationId), {NOWHERE}",
    ),
    (group_member("h", userAlias="Who"), "refers to the user 'who' (userAlias), an alias that no user has"),
    ({"kind": "fill", "userAlias": "ann@acme.example", "initial": "A"}, ""),
    (
        {"kind": "fill", "userAlias": "both", "initial": "A"},
        "refers to the user 'both' (userAlias), an alias of several: 'bob', 'cyd'",
    ),
    (
        {"kind": "fill", "userAlias": "who", "initial": "A"},
        "refers to the user 'who' (userAlias), an alias that no user has",
    ),
    ({"kind": "fill", "userId": "who", "initial": "A"}, f"refers to the user 'who' (userId), {NOWHERE}"),
]
"""A pushed record, and the reason why it has no effect."""


@pytest.mark.parametrize("items", [LEFT_OUT, LEFT_OUT + LEFT_OUT_WITH_ALIASES], ids=["by key", "with aliases"])
def test_each_ineffective_item_is_listed_with_its_reason(
    service: Service, items: list[tuple[dict[str, object], str]]
) -> None:
    people = [organization(), user("ann"), user("cyd"), user("bob"), membership("ann")]
    if items != LEFT_OUT:
        aliases = {"ann": ["ann@acme.example"], "bob": ["both"], "cyd": ["both"]}
        people = [
            one | {"aliases": aliases.get(str(one["userId"]))} if one["kind"] == "user" else one for one in people
        ]
    group = {"kind": "group", "organizationId": "acme", "organizationUserGroupId": "h", "groupName": "H"}
    service.pushed(1, upsert=[*people, group], source="hr", token=HR)
    for sequence in (1, 2):
        # Records without a change are listed as well.
        answer = service.pushed(sequence, upsert=[one for one, _ in items])
        reasons = {one["index"]: one["reason"] for one in answer["leftOut"]}
        expected = {index: reason for index, (_, reason) in enumerate(items) if reason}
        assert {index: reason.partition(" ")[2] for index, reason in reasons.items() if index not in expected} == {}
        assert [
            (index, reasons.get(index))
            for index, reason in expected.items()
            if not reasons.get(index, "").endswith(reason)
        ] == []


def test_counts_contain_the_outcome_of_each_item(service: Service) -> None:
    service.pushed(1, upsert=[*PEOPLE, document("d1"), document("d2")])
    answer = service.pushed(
        2,
        upsert=[document("d1"), document("d2", documentName="other"), document("d3")],
        remove=[key(membership("ann")), key(document("never"))],
    )
    assert answer["counts"] == {"added": 1, "updated": 1, "unchanged": 1, "removed": 1, "absent": 1}
    revision = answer["revision"]
    assert service.pushed(3, upsert=[document("d1")])["revision"] == revision
    assert service.pushed(4)["counts"] == dict.fromkeys(("added", "updated", "unchanged", "removed", "absent"), 0)


def test_a_source_further_up_owns_its_keys(service: Service) -> None:
    service.pushed(1, upsert=[organization(), user("ann")], source="hr", token=HR)
    answer = service.pushed(1, upsert=[user("ann") | {"name": "Somebody else"}, user("bob")])
    assert [item["index"] for item in answer["leftOut"]] == [0]
    assert "belongs to the source 'hr'" in answer["leftOut"][0]["reason"]
    assert {one["name"] for one in service.records() if one["kind"] == "user"} == {"Ann", "Bob"}


def test_a_source_that_is_pushed_to_first_takes_its_place_in_the_order(service: Service) -> None:
    """No source was read yet when the second one receives a push. The first still has precedence."""
    service.pushed(1, upsert=[organization(), user("ann") | {"name": "From the app"}])
    service.pushed(1, upsert=[user("ann") | {"name": "From HR"}], source="hr", token=HR)
    assert [one["name"] for one in service.records() if one["kind"] == "user"] == ["From HR"]
    service.pushed(2, remove=[key(user("ann"))], source="hr", token=HR)
    assert [one["name"] for one in service.records() if one["kind"] == "user"] == ["From the app"]


def test_each_kind_is_pushed_and_removed(service: Service) -> None:
    everything: list[dict[str, object]] = [
        *PEOPLE,
        {"kind": "group", "organizationId": "acme", "organizationUserGroupId": "g", "groupName": "G"},
        {"kind": "group", "organizationId": "acme", "organizationUserGroupId": "h", "groupName": "H"},
        {"kind": "groupMember", "organizationId": "acme", "organizationUserGroupId": "g", "userId": "bob"},
        {"kind": "groupMember", "organizationId": "acme", "organizationUserGroupId": "g", "memberGroupId": "h"},
        {"kind": "folder", "organizationId": "acme", "folderId": "f", "folderName": "F"},
        {"kind": "folder", "organizationId": "acme", "folderId": "ff", "folderName": "FF", "parentFolderId": "f"},
        document("d1", folderId="ff", accessType="restricted"),
        {"kind": "grant", "organizationId": "acme", "folderId": "f", "organizationUserGroupId": "g"},
        {"kind": "contextGrant", "organizationId": "acme", "userId": "bob", "field": "team", "value": "x"},
    ]
    answer = service.pushed(1, upsert=everything)
    assert (answer["counts"]["added"], answer["leftOut"]) == (len(everything), [])
    assert len(service.records()) == len(everything)
    assert service.may("bob", "d1")
    keys = [key(one) | ({"field": "team", "value": "x"} if one["kind"] == "contextGrant" else {}) for one in everything]
    for one in keys:
        if one["kind"] in {"folder", "document"} and "folderId" in one and "documentId" in one:
            del one["folderId"]
    assert service.pushed(2, remove=keys)["counts"]["removed"] == len(everything)
    assert service.records() == []


@pytest.mark.parametrize(
    ("source", "token", "code"),
    [
        ("app", PUSH, 200),
        ("app", NEW_PUSH, 200),
        ("app", HR, 403),
        ("app", None, 401),
        ("app", "wrong", 401),
        ("closed", PUSH, 404),
        ("nowhere", PUSH, 404),
        ("nowhere", "wrong", 401),
        ("small%20app", SMALL, 200),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_token_belongs_to_one_source(
    service: Service, method: str, source: str, token: str | None, code: int
) -> None:
    path = f"/directory/{source}" + ("/changes" if method == "POST" else "")
    answer = service.call(method, path, token, json={"sequence": 1} if method == "POST" else None)
    assert answer.status_code == code
    assert answer.headers["x-request-id"]
    assert (code == 200) == ("error" not in answer.get_json())


def test_guessed_tokens_are_rate_limited(service: Service) -> None:
    codes = [service.push({"sequence": 1}, token=f"guess-{number}").status_code for number in range(25)]
    assert codes[0] == 401
    assert codes[-1] == 429
    assert service.push({"sequence": 1}).status_code == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "must be a JSON object"),
        ({}, "sequence: is missing"),
        ({"sequence": 0}, "sequence: must be a whole number of 1 or more"),
        ({"sequence": True}, "sequence: must be a whole number"),
        ({"sequence": 1.5}, "sequence: must be a whole number"),
        ({"sequence": 2**70}, "sequence: must be a whole number"),
        ({"sequence": 5, "previousSequence": 5}, "previousSequence: must be lower than sequence"),
        ({"sequence": 1, "upserts": []}, "upserts: not a field of a push"),
        ({"sequence": 1, "upsert": {}}, "upsert: must be a list"),
        ({"sequence": 1, "upsert": [document(f"d{number}") for number in range(1_001)]}, "1,001 items are too many"),
        ({"sequence": 1, "upsert": [document("a")] * 501, "remove": [key(document("b"))] * 500}, "1,001 items"),
    ],
)
def test_a_push_that_cannot_be_understood_is_refused(service: Service, body: object, message: str) -> None:
    answer = service.push(body)
    assert answer.status_code == 400
    assert message in answer.get_json()["error"]["message"]


def test_all_errors_of_a_push_are_listed_and_nothing_is_applied(service: Service) -> None:
    body = {
        "sequence": 1,
        "upsert": [
            organization(),
            document("d1") | {"access_type": "restricted"},
            {"kind": "grant", "organizationId": "acme", "documentId": "d1"},
            "nonsense",
            user("nul\0"),
            user("ann") | {"name": "\ud800"},
            user("bob") | {"further": {"a": [1e999]}},
        ],
        "remove": [
            {"kind": "document", "organizationId": "acme"},
            document("d1"),
            {"kind": "doc"},
            key(organization()),
        ],
    }
    # ``json`` would write infinity, which is not JSON. A sender can send a number that is too large.
    text = json.dumps(body).replace("Infinity", "1e999")
    headers = {"Content-Type": "application/json"}
    answer = service.call("POST", "/directory/app/changes", data=text, headers=headers)
    assert answer.status_code == 400
    items = answer.get_json()["error"]["details"]["items"]
    wrong = [(item["list"], item["index"]) for item in items]
    assert wrong == [("upsert", index) for index in range(1, 7)] + [("remove", index) for index in range(4)]
    assert "did you mean accessType?" in items[0]["reason"]
    assert "the same key is in upsert" in items[-1]["reason"]
    assert service.records() == []
    assert service.call("GET", "/directory/app").get_json()["sequence"] == 0


def test_records_outside_the_scope_are_refused_and_nothing_is_applied(service: Service) -> None:
    service.pushed(1, upsert=[*PEOPLE, organization("other")])
    body = {
        "sequence": 1,
        "upsert": [document("d1"), document("d2", "other"), user("eve")],
        "remove": [key(membership("ann")), key(grant("d1", "ann", "other"))],
    }
    answer = service.push(body, "small app", SMALL)
    assert answer.status_code == 403
    items = answer.get_json()["error"]["details"]["items"]
    assert [(item["list"], item["index"]) for item in items] == [
        ("upsert", 1),
        ("upsert", 2),
        ("remove", 0),
        ("remove", 1),
    ]
    assert not any(one["kind"] == "document" for one in service.records())
    assert service.push(body | {"upsert": [document("d1")], "remove": []}, "small app", SMALL).status_code == 200


def test_the_state_of_a_source_is_returned(service: Service) -> None:
    nothing = service.call("GET", "/directory/app").get_json()
    assert nothing == {
        "source": "app", "sequence": 0, "records": 0, "dangling": 0, "pushed": None, "read": None, "ageSeconds": None,
    }  # fmt: skip
    service.pushed(7, upsert=[*PEOPLE, grant("nowhere", "ann")])
    service.clock.move_on(seconds=90)
    found = service.call("GET", "/directory/app").get_json()
    assert (found["sequence"], found["records"], found["ageSeconds"]) == (7, 5, 90.0)
    assert found["pushed"] == "2026-11-20T12:00:00.000Z"


def test_a_push_makes_a_service_without_other_sources_ready(service: Service) -> None:
    def directory() -> str:
        return str(service.client.get("/readyz").get_json()["checks"]["directory"]["state"])

    assert directory() == "failed"
    service.pushed(1, upsert=PEOPLE)
    assert directory() == "ok"


def test_changes_wait_for_a_sync(service: Service) -> None:
    service.pushed(1, upsert=PEOPLE)
    with reading(service.engine) as connection:
        assert pending_since(connection) == round(service.clock().timestamp() * 1000)


def test_many_push_at_the_same_time(service: Service) -> None:
    service.pushed(1, upsert=PEOPLE)

    def push(number: int) -> None:
        """Tries higher sequences until the push is applied."""
        sequence = 1 + number
        while (answer := service.push({"sequence": sequence, "upsert": [document(f"d{number}")]})).status_code == 409:
            sequence = answer.get_json()["error"]["details"]["sequence"] + 1
        assert answer.get_json()["sequence"] == sequence

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(push, range(1, 17)))
    there = {one["documentId"] for one in service.records() if one["kind"] == "document"}
    assert there == {f"d{number}" for number in range(1, 17)}
    with reading(service.engine) as connection:
        assert next(one.records for one in source_states(connection) if one.name == "app") == len(PEOPLE) + len(there)


def test_the_number_of_statements_does_not_depend_on_the_records_without_effect(service: Service) -> None:
    few, many = 5, 100
    aliases = [f"shared-{number}" for number in range(many)]
    shared = [user(name) | {"aliases": aliases} for name in ("ann", "bob")]
    service.read("hr", [organization(), *shared, *(document(f"owned-{number}") for number in range(many))])

    def upsert(count: int) -> list[dict[str, object]]:
        numbers = range(count)
        return [
            *(grant(f"unknown-{number}", "ann") for number in numbers),
            *(document(f"outside-{number}", folderId="unknown") for number in numbers),
            *(grant(f"outside-{number}", "ann") for number in numbers),
            *(document(f"owned-{number}") for number in numbers),
            *(
                dict[str, object](kind="membership", organizationId="acme", userAlias=aliases[number])
                for number in numbers
            ),
        ]

    statements = heard(service.engine)

    def queries(sequence: int, count: int) -> int:
        statements.clear()
        left_out = service.pushed(sequence, upsert=upsert(count))["leftOut"]
        assert [item["index"] for item in left_out] == list(range(5 * count))
        last = count - 1
        expected = (
            f"the document 'unknown-{last}' (documentId), which is nowhere in the directory",
            "the folder 'unknown' (folderId), which is nowhere in the directory",
            f"the document 'outside-{last}' (documentId), which is left out itself",
            f"belongs to the source 'hr', which provides it at hr:{3 + last}",
            f"the user 'shared-{last}' (userAlias), an alias of several: 'ann', 'bob'",
        )
        for item, words in zip(left_out[last::count], expected, strict=True):
            assert words in item["reason"]
        return sum(statement.startswith(("SELECT", "WITH")) for statement in statements)

    service.pushed(1)
    assert queries(2, few) == queries(3, many)
