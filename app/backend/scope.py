"""One organization of one API key, which nearly every statement is limited to."""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Table, and_, bindparam


@dataclass(frozen=True, slots=True)
class Scope:
    """An organization of an API key."""

    api_key_id: str
    organization_id: str

    def parameters(self) -> dict[str, str]:
        """What a statement with ``within_bound`` is executed with."""
        return {"api_key_id": self.api_key_id, "organization_id": self.organization_id}


def within(table: Table, scope: Scope) -> ColumnElement[bool]:
    """The rows of ``table`` that belong to this organization of this API key."""
    return and_(table.c.api_key_id == scope.api_key_id, table.c.organization_id == scope.organization_id)


def within_bound(table: Table) -> ColumnElement[bool]:
    """The same in a statement that is put together once: of the scope whose ``parameters`` it is executed with."""
    return and_(table.c.api_key_id == bindparam("api_key_id"), table.c.organization_id == bindparam("organization_id"))
