"""One organization of one API key, which nearly every statement is limited to."""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Table, and_


@dataclass(frozen=True, slots=True)
class Scope:
    """An organization of an API key."""

    api_key_id: str
    organization_id: str


def within(table: Table, scope: Scope) -> ColumnElement[bool]:
    """The rows of ``table`` that belong to this organization of this API key."""
    return and_(table.c.api_key_id == scope.api_key_id, table.c.organization_id == scope.organization_id)
