from base64 import urlsafe_b64decode
from typing import Any

import pytest

from .conftest import BackendWorld, Caller

ORG = {"organizationId": "acme"}
DOC = ORG | {"documentId": "d"}


@pytest.fixture
def acme(world: BackendWorld) -> Caller:
    """A tenant with two documents."""
    tenant = world.tenant()
    tenant("add_documents", **ORG, documents=[{"documentId": "d"}, {"documentId": "e"}], createOrganization=True)
    return tenant


def activity(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"a{number}",
        "featureType": "comment",
        "actionType": "comment.add",
        "actionUser": {"userId": "ada", "name": "Ada", "email": "ada@acme.example"},
        "timestamp": 1000 + number,
    } | fields


def ids(tenant: Caller, **filters: Any) -> list[str]:
    return [item["id"] for item in tenant("get_activity_logs", **ORG, **filters)]


def test_activities_are_returned_as_they_were_added(acme: Caller) -> None:
    requested = activity(
        1,
        targetEntityId="t",
        displayMessageTemplate="{{actionUser.name}} spoke",
        displayMessageTemplateData={"x": "y"},
        metadata={"color": "red", "apiKey": "a lie"},
        more=[1],
    )

    added = acme("add_activities", **DOC, activities=[requested, activity(2)])

    assert added["a1"] == {"success": True, "id": "a1", "message": "Activity added."}
    newest, older = acme("get_activity_logs", **ORG)
    assert newest["id"] == "a2"
    metadata = {"color": "red", "apiKey": acme.ids["api_key"], "documentId": "d", "organizationId": "acme"}
    assert older == requested | {"metadata": metadata}


def test_an_activity_with_an_existing_id_is_replaced(acme: Caller) -> None:
    acme("add_activities", **DOC, activities=[activity(1)])
    acme("add_activities", **ORG, documentId="e", activities=[activity(1, featureType="custom", timestamp=5)])

    (shown,) = acme("get_activity_logs", **ORG)

    assert (shown["featureType"], shown["timestamp"], shown["metadata"]["documentId"]) == ("custom", 5, "e")


def test_an_activity_without_id_and_time_gets_a_new_id_and_the_present_time(acme: Caller, world: BackendWorld) -> None:
    requested = activity(1)
    del requested["id"], requested["timestamp"]

    added = acme("add_activities", **DOC, activities=[requested, requested])

    activities = acme("get_activity_logs", **ORG)
    assert {item["id"] for item in activities} == set(added)
    assert len(added) == 2
    assert {item["timestamp"] for item in activities} == {int(world.clock.now.timestamp() * 1000)}


def test_activities_require_their_document(acme: Caller) -> None:
    refused = acme.refused("add_activities", **ORG, documentId="x", activities=[activity(1)])
    assert refused == (404, "NOT_FOUND", "data.documentId: Document does not exist.")
    refused = acme.refused("add_activities", organizationId="x", documentId="d", activities=[activity(1)])
    assert refused == (404, "NOT_FOUND", "data.organizationId: Organization does not exist.")


def test_activities_are_filtered(acme: Caller) -> None:
    acme(
        "add_activities",
        **DOC,
        activities=[
            activity(1, targetEntityId="t"),
            activity(2, featureType="crdt", actionType="crdt.update"),
            activity(3, actionUser={"userId": "bob"}),
            activity(4, actionType="comment.delete", targetEntityId="t"),
        ],
    )
    acme("add_activities", **ORG, documentId="e", activities=[activity(5, featureType="custom", actionType="x")])

    assert ids(acme) == ["a5", "a4", "a3", "a2", "a1"]
    assert ids(acme, order="asc") == ["a1", "a2", "a3", "a4", "a5"]
    assert ids(acme, documentId="d") == ["a4", "a3", "a2", "a1"]
    assert ids(acme, targetEntityId="t") == ["a4", "a1"]
    assert ids(acme, userId="bob") == ["a3"]
    assert ids(acme, featureTypes=["crdt", "custom"]) == ["a5", "a2"]
    assert ids(acme, featureTypes=["custom"]) == ["a5"]
    assert ids(acme, featureTypes=[]) == []
    assert ids(acme, actionTypes=["comment.delete", "x"], order="asc") == ["a4", "a5"]
    assert ids(acme, actionTypes=[f"t{n}" for n in range(20)] + ["x"]) == ["a5"]
    assert ids(acme, actionTypes=["x", "comment.add"], featureTypes=["comment"]) == ["a3", "a1"]
    assert ids(acme, activityIds=["a1", "a5", "a9"], documentId="d") == ["a1"]
    assert ids(acme, targetEntityId="t", actionTypes=["comment.add"], featureTypes=["comment"]) == ["a1"]
    assert ids(acme, userId="zoe") == []


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("filters", [{}, {"featureTypes": ["comment", "crdt", "reaction"]}, {"documentId": "d"}])
def test_pages_contain_every_activity_once_in_order(acme: Caller, order: str, filters: dict[str, Any]) -> None:
    # Ten activities have the same time, and are sorted by id.
    requested = [activity(n, timestamp=n // 10, featureType=["comment", "crdt"][n % 2]) for n in range(10, 45)]
    acme("add_activities", **DOC, activities=requested)

    query = {**ORG, **filters, "order": order, "pageSize": 7}
    found: list[str] = []
    token: dict[str, str] = {}
    sizes = []
    while True:
        result = acme.call("get_activity_logs", **query, **token).get_json()["result"]
        found += [item["id"] for item in result["data"]]
        sizes.append(len(result["data"]))
        if "pageToken" not in result:
            break
        token = {"pageToken": result["pageToken"]}

    expected = [item["id"] for item in sorted(requested, key=lambda item: (item["timestamp"], item["id"]))]
    assert found == (expected if order == "asc" else expected[::-1])
    assert sizes == [7] * 5


def test_a_page_token_is_encrypted_and_bound_to_its_query(acme: Caller, world: BackendWorld) -> None:
    # So long that no token contains it by chance.
    last = activity(2, id="the-last-one")
    acme("add_activities", **DOC, activities=[activity(0), activity(1), last])
    token = acme.call("get_activity_logs", **ORG, pageSize=1).get_json()["result"]["pageToken"]

    assert last["id"] not in token
    assert last["id"].encode() not in urlsafe_b64decode(token + "=" * (-len(token) % 4))
    assert ids(acme, pageToken=token) == ["a1", "a0"]
    for other in ({"order": "asc"}, {"documentId": "d"}, {"userId": "ada"}, {"featureTypes": ["comment"]}):
        code, status, message = acme.refused("get_activity_logs", **ORG, **other, pageToken=token)
        assert (code, status, message) == (400, "INVALID_ARGUMENT", "data.pageToken: is not a token of this query")
    assert world.tenant().refused("get_activity_logs", **ORG, pageToken=token)[0] == 400


@pytest.mark.parametrize(("size", "code"), [(0, 400), (1, 200), (1000, 200), (1001, 200), (2**53, 200)])
def test_the_page_size_is_limited(acme: Caller, size: int, code: int) -> None:
    assert acme.call("get_activity_logs", **ORG, pageSize=size).status_code == code


@pytest.mark.parametrize(("count", "code"), [(999, 200), (1000, 200), (1001, 400)])
def test_a_batch_is_limited(acme: Caller, count: int, code: int) -> None:
    response = acme.call("add_activities", **DOC, activities=[activity(n) for n in range(count)])

    assert response.status_code == code
    assert len(ids(acme)) == (count if code == 200 else 0)
    if count == 1000:
        assert "pageToken" not in acme.call("get_activity_logs", **ORG).get_json()["result"]
