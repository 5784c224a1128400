"""Reads a permission from the backend (Get Permissions) and compares it with Usher's decision, for Explain."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import ValidationError

from app.access.decision.decide import Decision
from app.client.errors import ClientError
from app.contract.operation import Answer
from app.contract.permission_call import Question
from app.contract.permissions import GetPermissionsRequest, Permission, UserPermissions

GetPermissions = Callable[[GetPermissionsRequest], Answer[dict[str, UserPermissions]]]
"""Calls Get Permissions of the backend. Raises ``ClientError``."""

SUPPORTED_TYPES = frozenset({"organization", "folder", "document"})
"""The resource types that Get Permissions supports. It does not support contexts."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The backend's answer beside Usher's."""

    rows: tuple[tuple[str, object, object], ...] = ()
    """Label, Usher's value, the backend's value."""
    denial: str = ""
    """The backend's message for a denial."""
    problem: str = ""
    """Why there is no answer, in one sentence."""

    @property
    def differs(self) -> bool:
        return any(ours != theirs for _, ours, theirs in self.rows)


def compare(backend: GetPermissions, question: Question, decision: Decision) -> Comparison:
    """Calls the backend, and compares its answer with the decision."""
    try:
        request = request_about(question)
    except ValidationError as error:
        return Comparison(problem=f"The backend cannot be asked: {error.errors()[0]['msg']}")
    try:
        response = backend(request)
    except ClientError as error:
        return Comparison(problem=f"The backend did not answer: {error}")
    permission = permission_in(response.data, question)
    if permission is None:
        return Comparison(problem="The backend's answer does not contain this user and resource.")
    allows = permission.error is None and permission.error_code is None and permission.access_role is not None
    rows: list[tuple[str, object, object]] = [
        ("Answer", "allowed" if decision.has_access else "denied", "allowed" if allows else "denied")
    ]
    if decision.has_access and allows:
        until = None if decision.expires_at is None else decision.expires_at.replace(microsecond=0)
        try:
            expires_at = datetime.fromtimestamp(int(permission.expires_at), UTC) if permission.expires_at else None
        except (ValueError, OverflowError, OSError):
            return Comparison(problem="The backend's answer contains an invalid expiresAt.")
        rows.append(("Role", str(decision.access_role), permission.access_role or ""))
        rows.append(("Until", until, expires_at))
    return Comparison(tuple(rows), denial="" if allows else permission.error or permission.error_code or "")


def request_about(question: Question) -> GetPermissionsRequest:
    """The request for one permission. Raises ``ValidationError``."""
    return GetPermissionsRequest(
        organization_id=question.organization_id,
        user_ids=[question.user_id],
        folder_ids=[question.resource_id] if question.type == "folder" else None,
        document_ids=[question.resource_id] if question.type == "document" else None,
    )


def permission_in(data: Mapping[str, UserPermissions], question: Question) -> Permission | None:
    """The permission in the response. None if it is missing."""
    permissions = data.get(question.user_id)
    if permissions is None:
        return None
    by_id = {
        "organization": permissions.organization,
        "folder": permissions.folders,
        "document": permissions.documents,
    }[question.type]
    return by_id.get(question.resource_id)
