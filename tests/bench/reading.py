"""Measures a first read of a large directory from a file, and on PostgreSQL a bare COPY of the rows that it stores.

The rows are written to files and copied into empty tables with the same indexes, by the same driver.
"""

import time
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, inspect

from app.foundation.database.engine import is_sqlite, open_engine
from tests.bench.company import Company
from tests.bench.databases import databases
from tests.bench.processes import command, write_settings

_STORED = ("source_", "model_", "access_name")
"""The tables that a read fills: the records of sources, the merged ones, and the names."""
_BLOCK = 1 << 20


def bench_reading(folder: Path, *, scale: float, postgres: str | None) -> dict[str, object]:
    """The figures; ``scale`` 1: 1,000,000 records of 100 organizations."""
    company = Company(
        users=int(100_000 * scale),
        folders=int(10_000 * scale),
        documents=int(100_000 * scale),
        grants=int(589_000 * scale),
        organizations=100,
    )
    file = company.write(folder / "directory.jsonl")
    with file.open("rb") as lines:
        records = sum(1 for _ in lines)
    with databases(folder, postgres) as new_database:
        url = new_database("reading")
        directory = {"sources": [{"type": "file", "path": str(file)}], "read_timeout": 0}
        config = str(write_settings(folder, {"database_url": url, "directory": directory}))
        command(["db", "upgrade", "--config", config], folder)
        refresh = ["directory", "refresh", "--config", config]
        _, first, memory = command(refresh, folder)
        _, again, _ = command(refresh, folder)
        figures: dict[str, object] = {
            "records": f"{records:,}",
            "first read s": round(first, 1),
            "first read, peak memory MB": round(memory),
            "read again without changes s": round(again, 1),
        }
        engine = open_engine(url)
        if not is_sqlite(engine):
            copied, rows = _copy(engine, folder)
            figures |= {
                f"COPY of the {rows:,} rows into tables with the same indexes s": round(copied, 1),
                "first read against COPY": round(first / copied, 1),
            }
        engine.dispose()
    return figures


def _copy(engine: Engine, folder: Path) -> tuple[float, int]:
    """The seconds of COPY alone, and the number of rows."""
    seconds, rows = 0.0, 0
    path = folder / "rows"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        driver: Any = connection.connection.driver_connection
        with driver.cursor() as cursor:
            for table in inspect(connection).get_table_names():
                if not table.startswith(_STORED):
                    continue
                with path.open("wb") as file, cursor.copy(f"COPY {table} TO STDOUT") as copy:
                    file.writelines(copy)
                cursor.execute(f"CREATE TABLE bare_{table} (LIKE {table} INCLUDING ALL)")
                began = time.perf_counter()
                with path.open("rb") as file, cursor.copy(f"COPY bare_{table} FROM STDIN") as copy:
                    while block := file.read(_BLOCK):
                        copy.write(block)
                seconds += time.perf_counter() - began
                rows += cursor.rowcount
    path.unlink()
    return seconds, rows
