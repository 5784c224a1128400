"""Transactions mean the same on both databases."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from app.database.engine import DatabaseUrlError, open_engine, parse_url, reading, writing


@pytest.fixture
def engine(database_url: str) -> Engine:
    opened = open_engine(database_url)
    with writing(opened) as connection:
        connection.execute(text("CREATE TABLE counter (id INTEGER PRIMARY KEY, value INTEGER NOT NULL)"))
        connection.execute(text("INSERT INTO counter VALUES (1, 0)"))
    return opened


def test_reading_sees_one_snapshot_while_others_write(engine: Engine) -> None:
    with reading(engine) as reader:
        before = reader.execute(text("SELECT value FROM counter")).scalar()
        with writing(engine) as writer:
            writer.execute(text("UPDATE counter SET value = 7"))
        assert reader.execute(text("SELECT value FROM counter")).scalar() == before
    with reading(engine) as reader:
        assert reader.execute(text("SELECT value FROM counter")).scalar() == 7


def test_writing_rolls_back_when_the_block_raises(engine: Engine) -> None:
    with pytest.raises(ZeroDivisionError), writing(engine) as writer:
        writer.execute(text("UPDATE counter SET value = 9"))
        _ = 1 / 0
    with reading(engine) as reader:
        assert reader.execute(text("SELECT value FROM counter")).scalar() == 0


def test_writing_loses_no_concurrent_change(engine: Engine) -> None:
    for_update = "" if engine.dialect.name == "sqlite" else " FOR UPDATE"

    def add() -> None:
        for _ in range(25):
            with writing(engine) as connection:
                value = connection.execute(text(f"SELECT value FROM counter{for_update}")).scalar_one()
                connection.execute(text("UPDATE counter SET value = :value"), {"value": value + 1})

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with reading(engine) as reader:
        assert reader.execute(text("SELECT value FROM counter")).scalar() == 100


def test_reading_cannot_write_on_postgresql(engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        with reading(engine) as reader:
            assert reader.execute(text("SELECT 1")).scalar() == 1
        return
    with pytest.raises(Exception, match="read-only"), reading(engine) as reader:
        reader.execute(text("UPDATE counter SET value = 1"))


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("nonsense", "not a database URL"),
        ("sqlite://", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        ("mysql://root@localhost/x", "mysql is not supported"),
    ],
)
def test_parse_url_names_what_is_wrong(url: str, complaint: str) -> None:
    with pytest.raises(DatabaseUrlError, match=complaint):
        parse_url(url)


def test_parse_url_takes_plain_postgresql_urls() -> None:
    assert parse_url("postgresql://usher@db/usher").drivername == "postgresql+psycopg"


def test_a_new_file_can_be_opened_by_many_at_once(tmp_path: Path) -> None:
    for number in range(60):
        engines = [open_engine(f"sqlite:///{tmp_path}/{number}.db") for _ in range(8)]
        together = threading.Barrier(len(engines))

        def use(engine: Engine, together: threading.Barrier = together) -> None:
            together.wait()
            with writing(engine) as connection:
                connection.execute(text("CREATE TABLE IF NOT EXISTS t (x)"))

        with ThreadPoolExecutor(len(engines)) as pool:
            list(pool.map(use, engines))
        for engine in engines:
            engine.dispose()
