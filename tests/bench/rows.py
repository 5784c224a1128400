"""Measures the mapping of database rows to records.

The baseline streams the same query with the library alone, a thousand rows at a time, and counts the rows.
"""

import statistics
from pathlib import Path

from sqlalchemy import NullPool, create_engine, make_url, text

from app.directory.configured import source_from_settings
from app.directory.settings import SqlSourceSettings
from app.directory.source import End, Found, Source, Verdict
from tests.bench.databases import databases
from tests.bench.stopwatch import Stopwatch, peak_of, ratio

GRANTS = (
    'SELECT tenant AS "organizationId", doc AS "documentId", email AS "userAlias", role AS "accessRole",'
    ' until AS "expiresAt" FROM share'
)
_FILL = """
INSERT INTO share SELECT 'tenant-' || n % 50, 'doc-' || n / 10, 'u' || n % 20000 || '@acme.example',
    CASE WHEN n % 3 = 0 THEN 'viewer' ELSE 'editor' END, CASE WHEN n % 10 = 0 THEN {until} END
FROM {numbers}
"""
_FORMS = {
    "sqlite": {
        "until": "'2040-01-31 18:00:00+00:00'",
        "numbers": "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {}) SELECT n FROM s)",
    },
    "postgresql": {"until": "TIMESTAMPTZ '2040-01-31 18:00:00+00'", "numbers": "generate_series(1, {}) n"},
}


def bench_rows(folder: Path, *, scale: float, rounds: int, postgres: str | None) -> dict[str, object]:
    """A table of 1,000,000 grants: read to records, streamed alone, and what memory the reading takes."""
    folder.mkdir(parents=True)
    number = max(int(1_000_000 * scale), 1_000)
    bare, whole = [], []
    with databases(folder, postgres) as new_database:
        url = new_database("app")
        _fill(url, number)
        for _ in range(rounds):
            began = Stopwatch()
            assert bare_stream(url) == number
            bare.append(began.read())
            began = Stopwatch()
            assert read_whole(url) == number
            whole.append(began.read())
        code = f"from tests.bench import rows; rows.source_of({url!r}); rows.{{}}({url!r})"
        peak, without = peak_of(code.format("read_whole")), peak_of(code.format("first_row"))
    wall, cpu = ratio(bare, whole)
    where = make_url(url).get_backend_name()
    took, bare_took = (statistics.median(seconds for seconds, _ in some) for some in (whole, bare))
    return {
        f"SQL ({where}): rows to records, rows/s; streamed alone": f"{number / took:,.0f}; {number / bare_took:,.0f}",
        f"SQL ({where}): of the bare stream, by the clock; by CPU of this process": f"{wall:.2f}; {cpu:.2f}",
        f"SQL ({where}): memory of a read, MB; more than for one row": (
            f"{peak / 1e6:.0f}; {(peak - without) / 1e6:.0f}"
        ),
    }


def _fill(url: str, number: int) -> None:
    engine = create_engine(url, poolclass=NullPool)
    forms = _FORMS[engine.dialect.name]
    time_type = "TIMESTAMPTZ" if engine.dialect.name == "postgresql" else "TEXT"
    with engine.begin() as connection:
        connection.execute(
            text(f"CREATE TABLE share (tenant TEXT, doc TEXT, email TEXT, role TEXT, until {time_type})")
        )
        statement = _FILL.format(until=forms["until"], numbers=forms["numbers"].format(number))
        connection.execute(text(statement.replace(":", "\\:")))


def bare_stream(url: str) -> int:
    """The number of rows of the query."""
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        result = connection.execution_options(stream_results=True).execute(text(GRANTS))
        return sum(len(rows) for rows in result.partitions(1000))


def source_of(url: str) -> Source:
    """The source of the table."""
    settings = {"type": "sql", "name": "app", "url": url, "queries": {"grants": GRANTS}}
    return source_from_settings(SqlSourceSettings.model_validate(settings))


def read_whole(url: str) -> int:
    """The number of records of a complete read."""
    count = 0
    for step in source_of(url).read():
        count += type(step) is Found
        assert type(step) is not End or step.verdict is Verdict.COMPLETE, step
    return count


def first_row(url: str) -> None:
    """A read that ends with the first record."""
    next(source_of(url).read())
