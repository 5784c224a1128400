"""Compiled statements, shared by all engines of a process.

SQLAlchemy keeps what it has compiled with the engine. A process of Usher's has one or two of them for as long as it
lives; here each test has its own, and would spend a quarter of its time on compiling the same statements anew.
"""

from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy import create_engine as sqlalchemy_create_engine
from sqlalchemy.util import LRUCache

_Key = tuple[Any, ...]


class _SharedStatements:
    """As the cache of an engine; to it, two dialects of a kind are one."""

    def __init__(self) -> None:
        self._kept: LRUCache[_Key, Any] = LRUCache(5000)

    def get(self, key: _Key, default: object = None) -> Any:
        return self._kept.get(_of_a_kind(key), default)

    def __setitem__(self, key: _Key, compiled: object) -> None:
        self._kept[_of_a_kind(key)] = compiled


def _of_a_kind(key: _Key) -> _Key:
    dialect, *rest = key
    return type(dialect), dialect.server_version_info, *rest


_STATEMENTS = _SharedStatements()


def _create_engine(*args: Any, **options: Any) -> Engine:
    engine = sqlalchemy_create_engine(*args, **options)
    engine.update_execution_options(compiled_cache=_STATEMENTS)
    return engine


def share_compiled_statements() -> None:
    """From now on, for every engine that Usher or the backend opens in this process."""
    pytest.MonkeyPatch().setattr("app.database.engine.create_engine", _create_engine)
