"""One permission of one user, by Get Permissions: the request for it, and its place in the response."""

from collections.abc import Mapping

from app.contract.permission_call import Question
from app.contract.permissions import GetPermissionsRequest, Permission, UserPermissions

SUPPORTED_TYPES = frozenset({"organization", "folder", "document"})
"""The resource types that Get Permissions supports. It does not support contexts."""


def permission_request(question: Question) -> GetPermissionsRequest:
    """The request for one permission. Raises ``ValidationError`` for an id that it cannot contain."""
    return GetPermissionsRequest(
        organization_id=question.organization_id,
        user_ids=[question.user_id],
        folder_ids=[question.resource_id] if question.type == "folder" else None,
        document_ids=[question.resource_id] if question.type == "document" else None,
    )


def find_permission(data: Mapping[str, UserPermissions], question: Question) -> Permission | None:
    """The permission in the response. None: it is missing. Raises ``KeyError`` unless the type is supported."""
    permissions = data.get(question.user_id)
    if permissions is None:
        return None
    by_id = {
        "organization": permissions.organization,
        "folder": permissions.folders,
        "document": permissions.documents,
    }[question.type]
    return by_id.get(question.resource_id)
