"""Statements with markers on both databases."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from app.foundation.database.engine import open_engine, reading, writing
from app.foundation.database.statements import insert_on_sqlite, json_list, run


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    yield engine
    engine.dispose()


@pytest.mark.parametrize("numbers", [[], [0], [3, -1, 2**53, 2**62]])
def test_numbers_are_one_parameter(engine: Engine, numbers: list[int]) -> None:
    with reading(engine) as connection:
        rows = run(
            connection,
            "SELECT n FROM (SELECT 0 AS n UNION ALL SELECT 3 UNION ALL SELECT -1 UNION ALL SELECT 7"
            " UNION ALL SELECT 9007199254740992 UNION ALL SELECT 4611686018427387904) AS known"
            " WHERE n IN (@numbers(wanted))",
            {"wanted": json_list(numbers), "what the text does not mention": 1},
        ).scalars()
        assert sorted(rows) == sorted(numbers)


def test_texts_with_any_characters_are_one_parameter(engine: Engine) -> None:
    texts = ["a", "", "O'Neil", '"quoted"', "Yılmaz", "back\\slash", "1"]
    with reading(engine) as connection:
        rows = run(connection, "SELECT value FROM (@list(wanted)) AS wanted", {"wanted": json_list(texts)})
        assert sorted(rows.scalars()) == sorted(texts)


@pytest.mark.parametrize("width", [1, 4, 7, 300])
@pytest.mark.parametrize("rows", [0, 1, 59, 60, 61, 241, 1000])
def test_many_rows_are_inserted_in_their_order(tmp_path: Path, rows: int, width: int) -> None:
    values = [(number, *(f"{number}, '{column}'" for column in range(1, width))) for number in range(rows)]
    columns = [f"c{column}" for column in range(width)]
    engine = open_engine(f"sqlite:///{tmp_path}/usher.db")
    with writing(engine) as connection:
        connection.exec_driver_sql(f"CREATE TABLE t ({', '.join(columns)})")
        insert_on_sqlite(connection, f"INSERT INTO t ({', '.join(columns)})", values)
        assert [tuple(row) for row in connection.exec_driver_sql("SELECT * FROM t ORDER BY rowid")] == values
    engine.dispose()
