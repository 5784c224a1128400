"""The table of the audit log. Times are epoch milliseconds, UTC."""

from pydantic.alias_generators import to_camel
from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from app.foundation.database.tables import StoreTable


class AuditRow(StoreTable, table=True):
    """One action, or a refused attempt. Rows are never updated. Old rows are deleted."""

    __table_args__ = (Index(None, "actor", "audit_id"), Index(None, "action", "audit_id"), Index(None, "at"))

    audit_id: int | None = Field(default=None, primary_key=True)
    at: int = Field(sa_type=BigInteger)
    actor: str
    """The name of a token, an account or the operating system user of a command, if it is known."""
    role: str
    """viewer, approver or admin. Empty if the attempt was refused."""
    way: str
    """console, oidc, api or command."""
    address: str
    """The caller's address. Empty: this machine."""
    action: str
    subject: str
    """The object of the action, such as a run's id or a session's owner."""
    reason: str
    outcome: str
    """``done``, the reason of a failure, or ``begun`` if a later row has the outcome."""
    request_id: str

    def to_wire(self) -> dict[str, object]:
        """The row as a JSON object."""
        return {to_camel(name): value for name, value in self.model_dump().items()}
