from typing import Any

import pytest

from .conftest import BackendWorld, Caller


def first_token(tenant: Caller, **query: Any) -> str:
    response = tenant.call("get_users", organizationId="acme", pageSize=1, **query)
    assert response.json is not None
    token: str = response.json["result"]["nextPageToken"]
    return token


@pytest.fixture
def acme(tenant: Caller) -> Caller:
    for organization in ("acme", "other"):
        tenant("add_users", organizationId=organization, users=[{"userId": user} for user in "abc"])
        tenant("add_users", organizationId=organization, documentId="d", users=[{"userId": user} for user in "abc"])
    return tenant


def test_a_token_is_good_for_its_query_whatever_the_page_size(acme: Caller) -> None:
    token = first_token(acme, userIds=["a", "b", "c"])

    page = acme("get_users", organizationId="acme", userIds=["a", "b", "c"], pageToken=token, pageSize=2)

    assert [user["userId"] for user in page] == ["b", "c"]


@pytest.mark.parametrize(
    "query",
    [
        {"organizationId": "other"},
        {"documentId": "d"},
        {"userIds": ["a"]},
        {"userIds": ["b", "a"]},
        {"allDocuments": True},
        {"futureFilter": 1},
    ],
)
def test_a_token_is_bound_to_its_query(acme: Caller, query: dict[str, Any]) -> None:
    token = first_token(acme, userIds=["a", "b"])
    same = {"organizationId": "acme", "userIds": ["a", "b"], "pageToken": token}

    code, status, message = acme.refused("get_users", **(same | query))

    assert (code, status) == (400, "INVALID_ARGUMENT")
    assert message.startswith("data.pageToken: ")


def test_a_token_is_bound_to_its_operation_and_api_key(acme: Caller, world: BackendWorld) -> None:
    token = first_token(acme)
    stranger = world.tenant()

    assert acme.refused("get_documents", organizationId="acme", pageToken=token)[0] == 400
    assert stranger.refused("get_users", organizationId="acme", pageToken=token)[0] == 400


def test_a_token_cannot_be_forged_or_read(acme: Caller) -> None:
    token = first_token(acme)

    for forged in ("x", "AAAA", "ä", "=", "%00", token[:-1], token[1:], token[:-2] + "AA", token + "A", token.upper()):
        assert acme.refused("get_users", organizationId="acme", pageToken=forged)[:2] == (400, "INVALID_ARGUMENT")


def test_page_tokens_are_opaque_and_differ_each_time(acme: Caller) -> None:
    import base64

    token = first_token(acme)

    assert first_token(acme) != token
    assert b'"a"' not in base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
