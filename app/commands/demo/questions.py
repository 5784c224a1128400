"""The demo's questions, and the backend's answers.

Each question is sent to the backend (Get Permissions), which calls the service. The reason comes from the service's
explanation of the same question.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from app.client.client import BackendClient
from app.client.single_permission import find_permission, permission_request
from app.contract import operations
from app.contract.permission_call import Question
from app.foundation.outbound.session import bare_session

CASES: tuple[Question, ...] = (
    Question("dario", "organization", "northwind", "northwind"),
    Question("liam", "document", "welcome", "northwind"),
    Question("xavier", "document", "welcome", "northwind"),
    Question("xavier", "document", "press-kit", "northwind"),
    Question("chiyo", "document", "project-aurora", "northwind"),
    Question("farah", "document", "project-aurora", "northwind"),
    Question("goran", "document", "project-aurora", "northwind"),
    Question("jun", "document", "project-aurora", "northwind"),
    Question("xavier", "document", "project-aurora", "northwind"),
    Question("wanda", "document", "q3-report", "northwind"),
    Question("wanda", "document", "salaries", "northwind"),
    Question("oskar", "document", "welcome", "northwind"),
    Question("sven", "folder", "laser", "lumen-labs"),
)
"""Questions about the company in ``config/demo/directory.yaml``.

They are about members and others, and about public, private and restricted resources. Access comes from nested groups,
from near and far grants, and from grants of users and of groups. One grant has expired, and one user has left.
"""


@dataclass(frozen=True, slots=True)
class AnsweredCase:
    """The backend's answer, and the service's reason."""

    case: Question
    allowed: bool
    role: str
    until: datetime | None
    reason: str


def ask_all(
    cases: tuple[Question, ...], client: BackendClient, explain_url: str, headers: Mapping[str, str]
) -> Iterator[AnsweredCase]:
    """Yields the answer to each question. Raises ``ClientError`` and ``requests.RequestException``."""
    reasons = _reasons(cases, explain_url, headers)
    for case, reason in zip(cases, reasons, strict=True):
        permission = find_permission(client.call(operations.GET_PERMISSIONS, permission_request(case)).data, case)
        if permission is None or permission.error_code is not None or permission.error is not None:
            yield AnsweredCase(case, allowed=False, role="", until=None, reason=reason)
        else:
            until = datetime.fromtimestamp(permission.expires_at, UTC) if permission.expires_at else None
            yield AnsweredCase(case, allowed=True, role=permission.access_role or "", until=until, reason=reason)


def _reasons(cases: tuple[Question, ...], explain_url: str, headers: Mapping[str, str]) -> list[str]:
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
