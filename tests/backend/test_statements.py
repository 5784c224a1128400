"""The number of statements does not depend on the size of a batch."""

from typing import Any

import pytest
from sqlalchemy import event

from .conftest import BackendWorld

ORG: dict[str, Any] = {"organizationId": "acme"}
CHAIN = {"parentFolderId": "top"}
THREAD = {"documentId": "d", "annotationId": "t"}
COMMENT = {"commentText": "hi", "from": {"userId": "someone"}, "reactions": [{"icon": "+1", "from": {"userId": "u"}}]}


def batch(name: str, size: int) -> dict[str, Any]:
    ids = [f"{size}-{number}" for number in range(size)]
    given: dict[str, dict[str, Any]] = {
        "add_users": {"documentId": "d", "users": [{"userId": i} for i in ids]},
        "update_users": {"documentId": "d", "users": [{"userId": i, "name": "n"} for i in ids]},
        "delete_users": {"documentId": "d", "userIds": ids},
        "add_folder": {"folders": [{"folderId": i} | CHAIN for i in ids]},
        "update_folder": {"folders": [{"folderId": i, "parentFolderId": "root"} for i in ids]},
        "update_folder_access": {"folderIds": ids, "accessType": "public"},
        "add_documents": {"folderId": "top", "documents": [{"documentId": i} for i in ids]},
        "update_documents": {"documents": [{"documentId": i, "documentName": "n"} for i in ids]},
        "update_document_access": {"documentIds": ids, "accessType": "public"},
        "delete_documents": {"documentIds": ids},
        "add_organizations": {"organizations": [{"organizationId": i} for i in ids]},
        "delete_organizations": {"organizationIds": ids},
        "add_groups": {"organizationUserGroups": [{"groupId": i} for i in ids]},
        "add_users_to_groups": {"organizationUserGroupId": "g", "userIds": ids},
        "delete_users_from_groups": {"organizationUserGroupId": "g", "userIds": ids},
        "get_permissions": {"userIds": ids[:30], "folderIds": ids[:30], "documentIds": ids[:30]},
        "add_permissions": {
            "user": {"userId": "u"},
            "permissions": {"resources": [{"type": "document", "id": i} | ORG for i in ids]},
        },
        "add_comment_annotations": {
            "documentId": "d",
            "verifyUserPermissions": True,
            "commentAnnotations": [{"annotationId": i, "commentData": [COMMENT]} for i in ids],
        },
        "update_comment_annotations": {
            "annotationIds": ids,
            "updatedData": {"status": "accepted", "type": "suggestion", "assignedTo": {"userId": "u"}},
        },
        "add_comments": THREAD | {"commentData": [COMMENT | {"commentId": i} for i in ids]},
        "update_comments": THREAD | {"commentIds": ids, "updatedData": {"commentText": "new"}},
        "delete_comments": THREAD | {"commentIds": ids},
        "add_activities": {
            "documentId": "d",
            "activities": [
                {"id": i, "featureType": "custom", "actionType": "x", "actionUser": {"userId": "u"}} for i in ids
            ],
        },
        "add_notifications": {
            "documentId": "d",
            "notificationId": f"n{size}",
            "actionUser": {"userId": "u"},
            "notifyUsers": [{"userId": i} for i in ids],
        },
        "update_notifications": {
            "notifications": [{"id": f"n{size}", "displayBodyMessage": i, "readByUserIds": ids[:3]} for i in ids]
        },
    }
    return ORG | given[name]


# Each needs what those before it have made.
STEPS = [
    "add_users",
    "update_users",
    "delete_users",
    "add_folder",
    "update_folder",
    "update_folder_access",
    "add_documents",
    "update_documents",
    "update_document_access",
    "add_permissions",
    "get_permissions",
    "delete_documents",
    "add_organizations",
    "delete_organizations",
    "add_groups",
    "add_users_to_groups",
    "delete_users_from_groups",
    "add_comment_annotations",
    "update_comment_annotations",
    "add_comments",
    "update_comments",
    "delete_comments",
    "add_activities",
    "add_notifications",
    "update_notifications",
]


@pytest.mark.parametrize("size", [300])
def test_number_of_statements(world: BackendWorld, size: int) -> None:
    tenant = world.tenant()
    tenant("add_users", **ORG, users=[{"userId": "someone"}])
    tenant("add_folder", **ORG, folders=[{"folderId": "top"}])
    tenant("add_users", **ORG, documentId="d", users=[{"userId": "someone"}])
    tenant("add_users_to_groups", **ORG, organizationUserGroupId="g", userIds=["someone"])
    tenant(
        "add_comment_annotations",
        **ORG,
        documentId="d",
        commentAnnotations=[{"annotationId": "t", "commentData": [COMMENT | {"commentId": "first"}]}],
    )
    statements: list[str] = []

    @event.listens_for(world.engine, "before_cursor_execute")
    def _count(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    for step in STEPS:
        numbers = []
        for items in (2, size):
            statements.clear()
            tenant(step, **batch(step, items))
            numbers.append(len(statements))
        assert numbers[0] == numbers[1], step
        assert numbers[1] <= 32, step
