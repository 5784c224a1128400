"""The objects of a source that gave the records of some organizations and users, to be asked for by themselves."""

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, or_, select, union

from app.model.refresh.scratch import SCRATCH_TABLES
from app.store.directory_tables import object_of_origin

MOST_OBJECTS = 10_000
"""Of more than these everything is asked for: that is faster than one by one."""


def objects_of(
    connection: Connection, source_id: int, organization_ids: Collection[str], user_ids: Collection[str]
) -> Sequence[tuple[str, str]] | None:
    """The objects (set and id) whose records name one of the users, or one of the organizations; sorted.

    With both, they name one of each where their kind names both. None: there are too many of them to be told, or some
    whose id is not kept.
    """
    queries = []
    for tables in SCRATCH_TABLES:
        source = tables.source
        conditions = [
            source.c[name].in_(list(ids))
            for name, ids in (("organization_id", organization_ids), ("user_id", user_ids))
            if ids and name in source.c
        ]
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
