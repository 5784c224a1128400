"""Simulates a process that dies at one of its commits."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from sqlalchemy import Engine


class Died(BaseException):
    """The process died, and its transaction was rolled back."""


@contextmanager
def dying_at(engine: Engine, number: int) -> Iterator[None]:
    """Raises ``Died`` instead of commit number ``number``, counted from 1."""
    commit = engine.dialect.do_commit
    numbers = count(1)

    def die(connection: Any) -> None:
        if next(numbers) == number:
            raise Died
        commit(connection)

    engine.dialect.do_commit = die  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        engine.dialect.do_commit = commit  # type: ignore[method-assign]
