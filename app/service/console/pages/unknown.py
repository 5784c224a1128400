"""The page for what is not in the directory, with similar names."""

from flask import Response
from sqlalchemy import Connection

from app.access.browse.nearest import nearest
from app.service.console.console import Console


def show_unknown(console: Console, connection: Connection, kind: str, organization_id: str, item_id: str) -> Response:
    """It, with the status 404."""
    return console.show(
        "browse_unknown.html",
        current="browse",
        status=404,
        kind=kind,
        organization_id=organization_id,
        item_id=item_id,
        nearest=nearest(connection, kind, organization_id, item_id),
    )
