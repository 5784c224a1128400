"""Drops records that a source provides several times for one key, except the last one, and reports them."""

from collections.abc import Mapping

from sqlalchemy import Connection

from app.access.problem_list import PROBLEMS_KEPT, ProblemList, ProblemSample
from app.access.problems import Problem, ProblemCause, ProblemSort
from app.access.refresh.session import RefreshSession
from app.access.refresh.tables import REFRESH_TABLES, RefreshTables
from app.foundation.database.statements import run

# The index is read once, and the records that were staged several times are looked up.
_FIND_REPEATED = """
INSERT INTO refresh_replaced (seq, last_seq)
SELECT t.seq, r.last_seq
FROM (SELECT {source_keys}, MAX(seq) AS last_seq FROM {staged} GROUP BY {source_keys} HAVING COUNT(*) > 1) r
JOIN {staged} t ON {source_keys:t=r}
WHERE t.seq < r.last_seq
"""

_REPEATED = """
SELECT t.*, COUNT(*) OVER (PARTITION BY t.source_id) AS records, l.place AS last_place,
  ROW_NUMBER() OVER (PARTITION BY t.source_id ORDER BY t.seq) AS ordinal
FROM refresh_replaced r JOIN {staged} t ON t.seq = r.seq JOIN {staged} l ON l.seq = r.last_seq
"""

_FIRST_REPEATED = f"SELECT * FROM ({_REPEATED}) AS repeated WHERE ordinal <= :limit ORDER BY source_id, seq"  # noqa: S608

_DROP_REPEATED = "DELETE FROM {staged} WHERE seq IN (SELECT seq FROM refresh_replaced)"


def drop_duplicates(session: RefreshSession, names: Mapping[int, str], problems: ProblemList) -> None:
    """Keeps the last of all staged records of a key and source, and reports the others. ``names``: source → name."""
    with session.scratch() as connection:
        session.index_staged()
        for tables in REFRESH_TABLES:
            if tables.kind in session.kinds_staged and tables.run(connection, _FIND_REPEATED).rowcount:
                _report_repeated(connection, tables, names, problems)
                tables.run(connection, _DROP_REPEATED)
                run(connection, "DELETE FROM refresh_replaced")


def _report_repeated(
    connection: Connection, tables: RefreshTables, names: Mapping[int, str], problems: ProblemList
) -> None:
    samples: dict[tuple[int, str], ProblemSample] = {}
    for row in tables.run(connection, _FIRST_REPEATED, {"limit": PROBLEMS_KEPT}):
        problem = Problem(
            ProblemSort.DUPLICATE,
            names[row.source_id],
            row.place,
            cause=ProblemCause.REPLACED,
            kind=tables.kind,
            key=tuple(getattr(row, field.attribute) for field in tables.record_kind.keys),
            detail=(row.last_place,),
            origin=row.origin,
        )
        sample = samples.setdefault((row.source_id, problem.sort), ProblemSample(row.records))
        sample.first.append(problem)
    problems.add_samples(samples)
