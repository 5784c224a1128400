"""The backend's own answer to a question (Get Permissions), compared with ours."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from app.access.decision.decide import Decision
from app.client.errors import ClientError
from app.contract.envelope import Answer
from app.contract.permission_call import RequestEntry
from app.contract.permissions import GetPermissionsRequest, Permission, UserPermissions

AskBackend = Callable[[GetPermissionsRequest], Answer[dict[str, UserPermissions]]]
"""Get Permissions of the backend. Raises ``ClientError``."""

ASKABLE = frozenset({"organization", "folder", "document"})
"""What the backend can be asked about."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The backend's answer beside ours."""

    rows: tuple[tuple[str, object, object], ...] = ()
    """What, as we say it, as the backend says it."""
    says: str = ""
    """The backend's own words for a denial."""
    trouble: str = ""
    """Why there is no answer, in one sentence."""

    @property
    def differs(self) -> bool:
        """Whether the two do not agree."""
        return any(ours != theirs for _, ours, theirs in self.rows)


def ask(backend: AskBackend, question: RequestEntry, decision: Decision) -> Comparison:
    """Asks the backend the same now."""
    try:
        answer = backend(
            GetPermissionsRequest(
                organization_id=question.organization_id,
                user_ids=[question.user_id],
                folder_ids=[question.resource_id] if question.type == "folder" else None,
                document_ids=[question.resource_id] if question.type == "document" else None,
            )
        )
    except (ClientError, ValueError) as error:
        return Comparison(trouble=f"The backend gave no answer: {error}")
    found = _permission(answer.data.get(question.user_id), question)
    if found is None:
        return Comparison(trouble="The backend answered, but not about this user and resource.")
    allows = found.error is None and found.error_code is None and found.access_role is not None
    ends = datetime.fromtimestamp(found.expires_at, UTC) if allows and found.expires_at else None
    until = None if decision.expires_at is None else decision.expires_at.replace(microsecond=0)
    rows: list[tuple[str, object, object]] = [
        ("Answer", "allowed" if decision.has_access else "denied", "allowed" if allows else "denied")
    ]
    if decision.has_access and allows:
        rows.append(("Role", str(decision.access_role), found.access_role or ""))
        rows.append(("Until", until, ends))
    return Comparison(tuple(rows), says="" if allows else found.error or found.error_code or "")


def _permission(found: UserPermissions | None, question: RequestEntry) -> Permission | None:
    if found is None:
        return None
    by_id = {"organization": found.organization, "folder": found.folders, "document": found.documents}[question.type]
    return by_id.get(question.resource_id)
