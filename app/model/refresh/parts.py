"""The objects of a source that gave the records of some organizations and users, to be asked for by themselves."""

from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, Connection, Select, or_, select, union

from app.model.refresh.aliases import ACCESS_ALIAS
from app.model.refresh.given import NOBODY
from app.model.refresh.marks import is_marked
from app.model.refresh.scratch import SCRATCH_TABLES
from app.store.directory_tables import object_of_origin

MOST_OBJECTS = 10_000
"""Of more than these everything is asked for: that is faster than one by one."""


def aliases_of(connection: Connection, user_ids: Collection[str]) -> Sequence[str]:
    """The aliases of these users, sorted."""
    return sorted(connection.execute(_aliases(user_ids)).scalars())


def objects_of(
    connection: Connection, source_id: int, organization_ids: Collection[str], user_ids: Collection[str]
) -> Sequence[tuple[str, str]] | None:
    """The objects (set and id) whose records name one of the users, by id or alias, or of the organizations; sorted.

    With both, they name one of each where their kind names both. None: there are too many of them, some have ids that
    are not kept, or something was pushed since the last complete read, and no object is known that it belongs to.
    """
    if is_marked(connection, source_id):
        return None
    queries = []
    for tables in SCRATCH_TABLES:
        source = tables.source
        conditions: list[ColumnElement[bool]] = []
        if organization_ids and "organization_id" in source.c:
            conditions.append(source.c.organization_id.in_(list(organization_ids)))
        if user_ids and "user_id" in source.c:
            named: list[ColumnElement[bool]] = [source.c.user_id.in_(list(user_ids))]
            if tables.record_kind.names_user:
                named.append(source.c.user_alias.in_(_aliases(user_ids)) & (source.c.user_alias != NOBODY))
            conditions.append(or_(*named))
        if conditions:
            wanted = or_(*conditions) if len(conditions) == 1 else conditions[0] & conditions[1]
            queries.append(
                select(source.c.origin).where(source.c.source_id == source_id, source.c.origin != "", wanted)
            )
    if not queries:
        return []
    origins = sorted(connection.execute(union(*queries).limit(MOST_OBJECTS + 1)).scalars())
    objects = [object_of_origin(origin) for origin in origins]
    if len(objects) > MOST_OBJECTS or any(object_id.startswith("#") for _, object_id in objects):
        return None
    return objects


def _aliases(user_ids: Collection[str]) -> Select[str]:
    return select(ACCESS_ALIAS.c.alias).where(ACCESS_ALIAS.c.user_id.in_(list(user_ids))).distinct()
