"""Reads a permission from the backend and compares it with Usher's decision, for Explain."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from pydantic import ValidationError

from app.access.decision.decide import Decision
from app.client.errors import ClientError
from app.client.single_permission import find_permission, permission_request
from app.contract.operation import Answer
from app.contract.permission_call import Question
from app.contract.permissions import GetPermissionsRequest, Permission, UserPermissions

GetPermissions = Callable[[GetPermissionsRequest], Answer[dict[str, UserPermissions]]]
"""Calls Get Permissions of the backend. Raises ``ClientError``."""


class ComparisonRow(NamedTuple):
    """One value of both answers."""

    label: str
    ours: object
    theirs: object


@dataclass(frozen=True, slots=True)
class Comparison:
    """The backend's answer beside Usher's."""

    rows: tuple[ComparisonRow, ...] = ()
    denial: str = ""
    """The backend's message for a denial."""
    problem: str = ""
    """Why there is no answer, in one sentence."""

    @property
    def differs(self) -> bool:
        return any(row.ours != row.theirs for row in self.rows)


class _NoAnswerError(Exception):
    """There is no answer to compare with. The text is for operators."""


def compare(backend: GetPermissions, question: Question, decision: Decision) -> Comparison:
    """Calls the backend, and compares its answer with the decision."""
    try:
        return _compare(_read_permission(backend, question), decision)
    except _NoAnswerError as error:
        return Comparison(problem=str(error))


def _read_permission(backend: GetPermissions, question: Question) -> Permission:
    try:
        permission = find_permission(backend(permission_request(question)).data, question)
    except ValidationError as error:
        raise _NoAnswerError(f"The backend cannot be asked: {error.errors()[0]['msg']}") from error
    except ClientError as error:
        raise _NoAnswerError(f"The backend did not answer: {error}") from error
    if permission is None:
        raise _NoAnswerError("The backend's answer does not contain this user and resource.")
    return permission


def _compare(permission: Permission, decision: Decision) -> Comparison:
    allows = permission.error is None and permission.error_code is None and permission.access_role is not None
    answer = ComparisonRow("Answer", _verdict(decision.has_access), _verdict(allows))
    if not allows:
        return Comparison((answer,), denial=permission.error or permission.error_code or "")
    if not decision.has_access:
        return Comparison((answer,))
    until = None if decision.expires_at is None else decision.expires_at.replace(microsecond=0)
    role = ComparisonRow("Role", str(decision.access_role), permission.access_role or "")
    return Comparison((answer, role, ComparisonRow("Until", until, _expires_at(permission))))


def _verdict(has_access: bool) -> str:
    return "allowed" if has_access else "denied"


def _expires_at(permission: Permission) -> datetime | None:
    try:
        return datetime.fromtimestamp(int(permission.expires_at), UTC) if permission.expires_at else None
    except (ValueError, OverflowError, OSError) as error:
        raise _NoAnswerError("The backend's answer contains an invalid expiresAt.") from error
