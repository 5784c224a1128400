"""What the pages of records share: the key of a grant in cursors, and the page for an unknown id."""

from flask import Response
from sqlalchemy import Connection

from app.access.browse.grants import GrantEntry
from app.access.browse.suggestions import suggest
from app.service.console.console import Console


def resource_key(grant: GrantEntry) -> tuple[str, str]:
    """The part of a cursor that identifies the resource of a grant."""
    return (grant.resource_id, "") if grant.resource_kind == "folder" else ("", grant.resource_id)


def show_unknown(console: Console, connection: Connection, kind: str, organization_id: str, item_id: str) -> Response:
    """The page for a record that is not in the directory, with similar ones. Its status is 404."""
    return console.show(
        "browse_unknown.html",
        current="browse",
        status=404,
        kind=kind,
        organization_id=organization_id,
        item_id=item_id,
        similar=suggest(connection, kind, organization_id, item_id),
    )
