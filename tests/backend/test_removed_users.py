"""Who was taken out is told no more of what is said where they were."""

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Caller, World

ORG = {"organizationId": "acme"}
DOC = ORG | {"documentId": "d"}
BOB = {"userId": "bob"}


def say(tenant: Caller, document: str, user: str, text: str) -> None:
    """A word in the document's one thread, which begins with it."""
    thread = {"annotationId": document, "commentData": [{"commentText": text, "from": {"userId": user}}]}
    where = ORG | {"documentId": document}
    begun = tenant("add_comment_annotations", **where, commentAnnotations=[thread])
    if not begun[document]["success"]:
        tenant("add_comments", **where, annotationId=document, commentData=thread["commentData"])


def told(tenant: Caller, user: str) -> list[str]:
    return sorted(one["displayBodyMessage"] for one in tenant("get_notifications", **ORG, userId=user))


@pytest.fixture
def acme(world: World) -> Caller:
    """Two documents, a folder and a group; Bob takes part in a thread on each document."""
    tenant = world.tenant()
    documents = [{"documentId": "d"}, {"documentId": "e"}]
    tenant("add_documents", **ORG, documents=documents, createOrganization=True)
    tenant("add_folder", **ORG, folders=[{"folderId": "f", "folderName": "F"}])
    tenant("add_groups", **ORG, organizationUserGroups=[{"groupId": "g", "groupName": "G"}])
    for document in ("d", "e"):
        say(tenant, document, "bob", "hello")
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
def test_who_was_taken_out_is_told_nothing_more(acme: Caller, remove: Callable[[Caller], None]) -> None:
    say(acme, "d", "ada", "before")
    assert told(acme, "bob") == ["before"]
    remove(acme)
    kept = told(acme, "bob")
    say(acme, "d", "ada", "after")
    say(acme, "e", "ada", "after")
    assert told(acme, "bob") == kept


@pytest.mark.parametrize(
    ("place", "heard"),
    [
        ({}, ["d", "e"]),
        ({"folderId": "f"}, ["d", "e"]),
        ({"documentId": "d"}, ["d"]),
        ({"documentId": "e"}, ["e"]),
    ],
)
def test_who_stands_somewhere_again_is_told_of_that(acme: Caller, place: dict[str, str], heard: list[str]) -> None:
    remove_from_organization(acme)
    acme("add_users", **ORG, **place, users=[BOB])
    for document in ("d", "e"):
        say(acme, document, "ada", document)
    assert told(acme, "bob") == heard


def test_a_member_of_a_group_and_who_was_never_added_are_told(acme: Caller) -> None:
    remove_from_organization(acme)
    acme("add_users_to_groups", **ORG, organizationUserGroupId="g", userIds=["bob"])
    say(acme, "d", "cleo", "I, too")
    say(acme, "d", "ada", "after")
    assert told(acme, "bob") == ["I, too", "after"]
    assert told(acme, "cleo") == ["after"]


def test_access_that_is_over_is_none(world: World, acme: Caller) -> None:
    remove_from_organization(acme)
    soon = int(world.clock.now.timestamp()) + 60
    document: dict[str, Any] = {"type": "document", "id": "d", "organizationId": "acme", "expiresAt": soon}
    acme("add_permissions", user=BOB, permissions={"resources": [document]})
    say(acme, "d", "ada", "in time")
    world.clock.move_on(seconds=60)
    say(acme, "d", "ada", "too late")
    assert told(acme, "bob") == ["in time"]
