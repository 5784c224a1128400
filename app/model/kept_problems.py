"""The problems of the directory that refreshes keep for pages: how many of each source and sort, and the first ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, or_, select

from app.model.refresh.keeping import NO_SOURCE
from app.model.refresh.problems import PROBLEMS_KEPT
from app.store.directory_tables import DirectoryProblemCountRow, DirectoryProblemRow, DirectorySourceRow

_COUNT = DirectoryProblemCountRow.__table__
_PROBLEM = DirectoryProblemRow.__table__
_SOURCE = DirectorySourceRow.__table__

BETWEEN = ""
"""Stands for problems that come of several sources together, and are those of none of them."""

_NAME = func.coalesce(_SOURCE.c.name, BETWEEN).label("name")
_IS_KNOWN = or_(_SOURCE.c.name.is_not(None), _COUNT.c.source_id == NO_SOURCE)


@dataclass(frozen=True, slots=True)
class KeptProblems:
    """Those of one source and sort. ``told_at``: epoch milliseconds; ``first``: place and reason of the first ones."""

    sort: str
    problems: int
    told_at: int
    first: Sequence[tuple[str, str]] = ()


def problem_counts(connection: Connection) -> Mapping[str, Sequence[KeptProblems]]:
    """Source → how many problems of each sort it has, without their texts; ``BETWEEN``: those of none in particular."""
    found: dict[str, list[KeptProblems]] = {}
    rows = connection.execute(
        select(_NAME, _COUNT.c.sort, _COUNT.c.problems, _COUNT.c.told_at)
        .outerjoin(_SOURCE, _SOURCE.c.source_id == _COUNT.c.source_id)
        .where(_IS_KNOWN)
        .order_by(_COUNT.c.source_id, _COUNT.c.sort)
    )
    for name, sort, problems, told_at in rows:
        found.setdefault(name, []).append(KeptProblems(sort, int(problems), int(told_at)))
    return found


def first_problems(connection: Connection, source: str, sort: str) -> list[tuple[str, str]]:
    """Place and reason of the first problems of this source and sort."""
    query = select(_PROBLEM.c.place, _PROBLEM.c.reason).where(_PROBLEM.c.sort == sort)
    if source == BETWEEN:
        query = query.where(_PROBLEM.c.source_id == NO_SOURCE)
    else:
        query = query.join(_SOURCE, _SOURCE.c.source_id == _PROBLEM.c.source_id).where(_SOURCE.c.name == source)
    rows = connection.execute(query.order_by(_PROBLEM.c.ordinal).limit(PROBLEMS_KEPT))
    return [(str(place), str(reason)) for place, reason in rows]
