"""The demo's questions, and the backend's answers.

Each question is sent to the backend (Get Permissions), which calls the service. The reason comes from the service's
explanation of the same question.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from app.client.client import BackendClient
from app.contract import operations
from app.contract.permissions import GetPermissionsRequest, Permission
from app.foundation.outbound.session import bare_session


@dataclass(frozen=True, slots=True)
class Case:
    """A question about the company in ``config/demo/directory.yaml``."""

    user_id: str
    type: Literal["organization", "folder", "document"]
    resource_id: str
    organization_id: str


CASES: tuple[Case, ...] = (
    Case("dario", "organization", "northwind", "northwind"),
    Case("liam", "document", "welcome", "northwind"),
    Case("xavier", "document", "welcome", "northwind"),
    Case("xavier", "document", "press-kit", "northwind"),
    Case("chiyo", "document", "project-aurora", "northwind"),
    Case("farah", "document", "project-aurora", "northwind"),
    Case("goran", "document", "project-aurora", "northwind"),
    Case("jun", "document", "project-aurora", "northwind"),
    Case("xavier", "document", "project-aurora", "northwind"),
    Case("wanda", "document", "q3-report", "northwind"),
    Case("wanda", "document", "salaries", "northwind"),
    Case("oskar", "document", "welcome", "northwind"),
    Case("sven", "folder", "laser", "lumen-labs"),
)
"""Members and others; public, private and restricted resources; nested groups, near and far grants, a user's own grant
and their group's, an expired grant, a user who has left."""


@dataclass(frozen=True, slots=True)
class AnsweredCase:
    """The backend's answer, and the service's reason."""

    case: Case
    allowed: bool
    role: str
    until: datetime | None
    reason: str


def ask_all(
    cases: tuple[Case, ...], client: BackendClient, explain_url: str, headers: Mapping[str, str]
) -> Iterator[AnsweredCase]:
    """Raises ``ClientError`` and ``requests.RequestException``."""
    reasons = _reasons(cases, explain_url, headers)
    for case, reason in zip(cases, reasons, strict=True):
        permission = _ask_backend(case, client)
        allowed = permission.error_code is None and permission.error is None
        until = datetime.fromtimestamp(permission.expires_at, UTC) if allowed and permission.expires_at else None
        yield AnsweredCase(case, allowed, permission.access_role or "" if allowed else "", until, reason)


def _ask_backend(case: Case, client: BackendClient) -> Permission:
    request = GetPermissionsRequest(
        organization_id=case.organization_id,
        user_ids=[case.user_id],
        folder_ids=[case.resource_id] if case.type == "folder" else None,
        document_ids=[case.resource_id] if case.type == "document" else None,
    )
    permissions = client.call(operations.GET_PERMISSIONS, request).data[case.user_id]
    by_id = {
        "organization": permissions.organization,
        "folder": permissions.folders,
        "document": permissions.documents,
    }[case.type]
    return by_id[case.resource_id]


def _reasons(cases: tuple[Case, ...], explain_url: str, headers: Mapping[str, str]) -> list[str]:
    requests = [
        {
            "userId": case.user_id,
            "resource": {"type": case.type, "id": case.resource_id, "organizationId": case.organization_id},
        }
        for case in cases
    ]
    with bare_session() as session:
        response = session.post(explain_url, json={"data": {"requests": requests}}, headers=headers, timeout=30)
        response.raise_for_status()
        return [result["reason"] for result in response.json()["data"]]
