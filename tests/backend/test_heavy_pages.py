"""Responses are limited in length as well as in rows."""

from typing import Any

import orjson
import pytest

from app.backend.storage import paging

from .conftest import Caller

OF = {"organizationId": "acme"}
HEAVY = "x" * 900
NUMBER = 12


@pytest.fixture
def full(tenant: Caller, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """A tenant with a dozen rows of each kind, three of which fit on a page."""
    monkeypatch.setattr(paging, "MAX_PAGE_LENGTH", 3500)
    ids = [f"i{number:02}" for number in range(NUMBER)]
    tenant("add_organizations", organizations=[{"organizationId": item, "note": HEAVY} for item in ids])
    tenant("add_folder", **OF, folders=[{"folderId": item, "note": HEAVY} for item in ids], createOrganization=True)
    tenant("add_documents", **OF, documents=[{"documentId": item, "note": HEAVY} for item in ids])
    users = [{"userId": item, "note": HEAVY} for item in ids]
    tenant("add_users", **OF, users=users)
    tenant("add_users", **OF, documentId="i00", users=users)
    tenant("add_groups", **OF, organizationUserGroups=[{"groupId": "staff"}])
    tenant("add_users_to_groups", **OF, organizationUserGroupId="staff", userIds=ids)
    activities = [
        {"id": item, "featureType": "custom", "actionType": "x", "actionUser": {"userId": "i00"}, "targetEntityId": "t"}
        | {"displayMessageTemplate": HEAVY}
        for item in ids
    ]
    tenant("add_activities", **OF, documentId="i00", activities=activities)
    for item in ids:
        tenant("add_crdt_data", **OF, documentId="i00", editorId=item, data=HEAVY, type="text")
    return tenant


@pytest.mark.parametrize(
    ("operation", "data", "key"),
    [
        ("get_organizations", {}, "id"),
        ("get_documents", OF, "id"),
        ("get_users", OF, "userId"),
        ("get_users", OF | {"documentId": "i00"}, "userId"),
        ("get_users", OF | {"allDocuments": True}, "userId"),
        ("get_users", OF | {"organizationUserGroupIds": ["staff"]}, "userId"),
        ("get_activity_logs", OF, "id"),
    ],
)
def test_a_page_ends_before_it_is_too_large(full: Caller, operation: str, data: dict[str, Any], key: str) -> None:
    ids: list[str] = []
    token: dict[str, str] = {}
    pages = 0
    while True:
        response: Any = full.call(operation, **data, **token).json
        result = response["result"]
        assert result["data"]
        assert orjson.dumps(result["data"]).count(HEAVY.encode()) <= 3
        ids += [item[key] for item in result["data"]]
        pages += 1
        if not (next_one := result.get("nextPageToken") or result.get("pageToken")):
            break
        token = {"pageToken": next_one}
    assert pages >= NUMBER / 3
    assert set(ids) >= {f"i{number:02}" for number in range(NUMBER)}
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("operation", "data", "less"),
    [
        ("get_organizations_v1", {}, {"organizationIds": ["i00", "i01"]}),
        ("get_folders", OF, {"folderId": "i00"}),
        ("get_crdt_data", OF | {"documentId": "i00"}, {"editorId": "i00"}),
    ],
)
def test_a_response_without_pages_is_refused_if_it_is_too_large(
    full: Caller, monkeypatch: pytest.MonkeyPatch, operation: str, data: dict[str, Any], less: dict[str, Any]
) -> None:
    assert len(full(operation, **data)) >= NUMBER
    monkeypatch.setattr(paging, "MAX_RESPONSE_LENGTH", 3500)

    code, status, message = full.refused(operation, **data)

    assert (code, status) == (429, "RESOURCE_EXHAUSTED")
    assert all(field in message for field in less)
    assert full(operation, **data, **less)
