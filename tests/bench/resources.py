"""Calls on organizations, folders, documents, users, groups and permissions, for ``tests.bench.features``."""

import random
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

Call = Callable[[], tuple[str, dict[str, Any]]]

DELETABLE = 2000
"""Users and documents that calls may delete, each once."""

_ORG: Mapping[str, Any] = {"organizationId": "acme"}


def resource_operations(documents: int, users: int, rng: random.Random) -> dict[str, Call]:
    """Calls of every operation on directory data, by name; each call has other ids."""
    page = dict(_ORG) | {"pageSize": 50}
    leavers, old = count(), count()

    def of_organization(**data: Any) -> dict[str, Any]:
        return dict(_ORG) | data

    def user() -> str:
        return f"u{rng.randrange(users)}"

    def document() -> str:
        return f"d{rng.randrange(documents)}"

    def new(prefix: str) -> str:
        return f"{prefix}-{rng.getrandbits(60):x}"

    def named(key: str, name: str, prefix: str) -> dict[str, str]:
        return {key: new(prefix), name: "Something new"}

    return {
        "organizations": lambda: ("get_organizations", {"pageSize": 50}),
        "organizations by id": lambda: ("get_organizations_v1", {"organizationIds": ["acme"]}),
        "add an organization": lambda: (
            "add_organizations",
            {"organizations": [named("organizationId", "organizationName", "o")]},
        ),
        "update an organization": lambda: (
            "update_organizations",
            {"organizations": [{"organizationId": "acme", "organizationName": new("name")}]},
        ),
        "enable an organization": lambda: (
            "disable_organizations",
            {"organizationIds": ["acme"], "disabled": False},
        ),
        "users of an organization": lambda: ("get_users", page),
        "users by id": lambda: ("get_users", of_organization(userIds=[user()])),
        "users of a document": lambda: ("get_users", page | {"documentId": document()}),
        "users of all documents": lambda: ("get_users", page | {"allDocuments": True}),
        "users of a group": lambda: ("get_users", page | {"organizationUserGroupIds": ["crew"]}),
        "add a user": lambda: ("add_users", of_organization(users=[{"userId": new("u"), "name": "New"}])),
        "add a user to a document": lambda: (
            "add_users",
            of_organization(documentId=document(), users=[{"userId": new("u"), "name": "New"}]),
        ),
        "update a user": lambda: ("update_users", of_organization(users=[{"userId": user(), "name": new("n")}])),
        "delete a user": lambda: ("delete_users", of_organization(userIds=[f"leaver-{next(leavers)}"])),
        "folders": lambda: ("get_folders", of_organization(folderId="shelf", maxDepth=1)),
        "add a folder": lambda: ("add_folder", of_organization(folders=[named("folderId", "folderName", "f")])),
        "rename a folder": lambda: (
            "update_folder",
            of_organization(folders=[{"folderId": "shelf", "folderName": new("n")}]),
        ),
        "access of a folder": lambda: (
            "update_folder_access",
            of_organization(folderIds=["shelf"], accessType=rng.choice(["restricted", "public"])),
        ),
        "documents of an organization": lambda: ("get_documents", page),
        "documents by id": lambda: ("get_documents", of_organization(documentIds=[document()])),
        "add a document": lambda: (
            "add_documents",
            of_organization(documents=[named("documentId", "documentName", "d")]),
        ),
        "rename a document": lambda: (
            "update_documents",
            of_organization(documents=[{"documentId": document(), "documentName": new("n")}]),
        ),
        "move a document": lambda: (
            "move_documents",
            of_organization(documentIds=[document()], folderId=rng.choice(["shelf", "root"])),
        ),
        "access of a document": lambda: (
            "update_document_access",
            of_organization(documentIds=[document()], accessType="restricted"),
        ),
        "delete a document": lambda: ("delete_documents", of_organization(documentIds=[f"old-{next(old)}"])),
        "add a group": lambda: (
            "add_groups",
            of_organization(organizationUserGroups=[named("groupId", "groupName", "g")]),
        ),
        "add to a group": lambda: (
            "add_users_to_groups",
            of_organization(organizationUserGroupId="crew", userIds=[user()]),
        ),
        "take out of a group": lambda: (
            "delete_users_from_groups",
            of_organization(organizationUserGroupId="crew", userIds=[user()]),
        ),
        "permissions of a user": lambda: (
            "get_permissions",
            of_organization(userIds=[user()], documentIds=[document()]),
        ),
        "add a permission": lambda: (
            "add_permissions",
            {
                "user": {"userId": user()},
                "permissions": {"resources": [{"type": "document", "id": document(), **_ORG}]},
            },
        ),
        "remove a permission": lambda: (
            "remove_permissions",
            {"userId": user(), "permissions": {"resources": [{"type": "document", "id": document(), **_ORG}]}},
        ),
        "editor data": lambda: (
            "add_crdt_data",
            of_organization(documentId=document(), editorId=new("e"), type="text", data="Some text"),
        ),
    }


def furnish(post: Callable[[str, dict[str, Any]], None], *, deletable: int = DELETABLE) -> None:
    """Creates the folder and the group for the calls above, and users and documents to delete."""
    post("add_folder", dict(_ORG) | {"folders": [{"folderId": "shelf", "folderName": "Shelf"}]})
    # What is deleted is there for that alone: otherwise the small side would soon have nothing left.
    for start in range(0, deletable, 500):
        numbers = range(start, min(start + 500, deletable))
        users = [{"userId": f"leaver-{number}", "name": "Leaver"} for number in numbers]
        documents = [{"documentId": f"old-{number}", "documentName": "Old"} for number in numbers]
        post("add_users", dict(_ORG) | {"users": users})
        post("add_documents", dict(_ORG) | {"documents": documents})
    post("add_users_to_groups", dict(_ORG) | {"organizationUserGroupId": "crew", "userIds": ["u1", "u2", "u3"]})
