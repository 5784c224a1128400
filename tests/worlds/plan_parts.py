"""Completes plans whose items a test inserted itself."""

from sqlalchemy import Connection, text

from app.sync.plan.parts import ALIKE, PartWriter


def note_parts(connection: Connection, plan_id: str) -> None:
    """Stores the parts of a plan whose items exist and are numbered from 1."""
    items = text(f"SELECT {ALIKE} FROM plan_item WHERE plan_id = :plan_id ORDER BY ordinal")
    parts = PartWriter(connection, plan_id)
    parts.add(connection.execute(items, {"plan_id": plan_id}).scalars().all())
    parts.end()
