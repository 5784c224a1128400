"""Removed users are not notified of documents that they no longer reach."""

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import BackendWorld, Caller

ORG = {"organizationId": "acme"}
DOC = ORG | {"documentId": "d"}
BOB = {"userId": "bob"}


def comment(tenant: Caller, document: str, user: str, text: str) -> None:
    """Adds a comment to the document's only thread, or creates it."""
    thread = {"annotationId": document, "commentData": [{"commentText": text, "from": {"userId": user}}]}
    where = ORG | {"documentId": document}
    begun = tenant("add_comment_annotations", **where, commentAnnotations=[thread])
    if not begun[document]["success"]:
        tenant("add_comments", **where, annotationId=document, commentData=thread["commentData"])


def notified(tenant: Caller, user: str) -> list[str]:
    return sorted(one["displayBodyMessage"] for one in tenant("get_notifications", **ORG, userId=user))


@pytest.fixture
def acme(world: BackendWorld) -> Caller:
    """Two documents, a folder and a group. Bob participates in a thread on each document."""
    tenant = world.tenant()
    documents = [{"documentId": "d"}, {"documentId": "e"}]
    tenant("add_documents", **ORG, documents=documents, createOrganization=True)
    tenant("add_folder", **ORG, folders=[{"folderId": "f", "folderName": "F"}])
    tenant("add_groups", **ORG, organizationUserGroups=[{"groupId": "g", "groupName": "G"}])
    for document in ("d", "e"):
        comment(tenant, document, "bob", "hello")
    return tenant


def remove_from_organization(tenant: Caller) -> None:
    tenant("add_users", **ORG, users=[BOB])
    tenant("delete_users", **ORG, userIds=["bob"])


def remove_from_document(tenant: Caller) -> None:
    tenant("add_users", **DOC, users=[BOB])
    tenant("delete_users", **DOC, userIds=["bob"])


def remove_from_folder(tenant: Caller) -> None:
    tenant("add_users", **ORG, folderId="f", users=[BOB])
    tenant("delete_users", **ORG, folderId="f", userIds=["bob"])


def remove_from_group(tenant: Caller) -> None:
    group = ORG | {"organizationUserGroupId": "g", "userIds": ["bob"]}
    tenant("add_users_to_groups", **group)
    tenant("delete_users_from_groups", **group)


def remove_permissions(tenant: Caller) -> None:
    resources = {"resources": [{"type": "document", "id": "d", "organizationId": "acme"}]}
    tenant("add_permissions", user=BOB, permissions=resources)
    tenant("remove_permissions", userId="bob", permissions=resources)


REMOVALS = (
    remove_from_organization,
    remove_from_document,
    remove_from_folder,
    remove_from_group,
    remove_permissions,
)


@pytest.mark.parametrize("remove", REMOVALS)
def test_removed_user_is_not_notified(acme: Caller, remove: Callable[[Caller], None]) -> None:
    comment(acme, "d", "ada", "before")
    assert notified(acme, "bob") == ["before"]
    remove(acme)
    kept = notified(acme, "bob")
    comment(acme, "d", "ada", "after")
    comment(acme, "e", "ada", "after")
    assert notified(acme, "bob") == kept


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ({}, ["d", "e"]),
        ({"folderId": "f"}, ["d", "e"]),
        ({"documentId": "d"}, ["d"]),
        ({"documentId": "e"}, ["e"]),
    ],
)
def test_user_is_notified_of_what_they_reach_again(acme: Caller, place: dict[str, str], expected: list[str]) -> None:
    remove_from_organization(acme)
    acme("add_users", **ORG, **place, users=[BOB])
    for document in ("d", "e"):
        comment(acme, document, "ada", document)
    assert notified(acme, "bob") == expected


def test_group_members_and_unknown_users_are_notified(acme: Caller) -> None:
    remove_from_organization(acme)
    acme("add_users_to_groups", **ORG, organizationUserGroupId="g", userIds=["bob"])
    comment(acme, "d", "cleo", "I, too")
    comment(acme, "d", "ada", "after")
    assert notified(acme, "bob") == ["I, too", "after"]
    assert notified(acme, "cleo") == ["after"]


def test_expired_access_does_not_count(world: BackendWorld, acme: Caller) -> None:
    remove_from_organization(acme)
    soon = int(world.clock.now.timestamp()) + 60
    document: dict[str, Any] = {"type": "document", "id": "d", "organizationId": "acme", "expiresAt": soon}
    acme("add_permissions", user=BOB, permissions={"resources": [document]})
    comment(acme, "d", "ada", "in time")
    world.clock.move_on(seconds=60)
    comment(acme, "d", "ada", "too late")
    assert notified(acme, "bob") == ["in time"]
