"""Finds the objects of a source whose records name some organizations or users, to read these alone."""

from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, Connection, Select, literal_column, or_, select, union

from app.access.refresh.sources import MODEL_ALIAS
from app.access.refresh.tables import REFRESH_TABLES
from app.access.source_tables import object_of_origin

MOST_OBJECTS = 10_000
"""If there are more objects than these, everything is read: that is faster than one by one."""


def aliases_of(connection: Connection, user_ids: Collection[str]) -> Sequence[str]:
    """The aliases of these users, sorted."""
    return sorted(connection.execute(_aliases(user_ids)).scalars())


def objects_of(
    connection: Connection, source_id: int, organization_ids: Collection[str], user_ids: Collection[str]
) -> Sequence[tuple[str, str]] | None:
    """The objects (set and id) whose records name one of the users, by id or alias, or of the organizations; sorted.

    With both, they name one of each if their kind names both. None: there are too many of them, or some have ids that
    are not stored.
    """
    queries = []
    for tables in REFRESH_TABLES:
        source = tables.source
        conditions: list[ColumnElement[bool]] = []
        if organization_ids and "organization_id" in source.c:
            conditions.append(source.c.organization_id.in_(list(organization_ids)))
        if user_ids and "user_id" in source.c:
            named: list[ColumnElement[bool]] = [source.c.user_id.in_(list(user_ids))]
            if tables.record_kind.names_user:
                # Written out: the databases use a partial index only if they see its condition.
                has_alias = source.c.user_alias != literal_column("''")
                named.append(source.c.user_alias.in_(_aliases(user_ids)) & has_alias)
            conditions.append(or_(*named))
        if conditions:
            of_source = source.c.source_id == source_id, source.c.origin != ""
            queries.append(select(source.c.origin).where(*of_source, *conditions))
    if not queries:
        return []
    origins = sorted(connection.execute(union(*queries).limit(MOST_OBJECTS + 1)).scalars())
    objects = [object_of_origin(origin) for origin in origins]
    if len(objects) > MOST_OBJECTS or any(object_id.startswith("#") for _, object_id in objects):
        return None
    return objects


def _aliases(user_ids: Collection[str]) -> Select[str]:
    return select(MODEL_ALIAS.c.alias).where(MODEL_ALIAS.c.user_id.in_(list(user_ids))).distinct()
