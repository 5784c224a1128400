"""Shares compiled statements, routes and templates among all engines and apps of a process.

SQLAlchemy caches compiled statements per engine, Flask its routes per app, and Jinja its templates per environment. A
real process has one or two of them. Tests create many, and would spend half of their time on compiling.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from jinja2 import BytecodeCache, Environment
from jinja2.bccache import Bucket
from sqlalchemy import Engine
from sqlalchemy import create_engine as sqlalchemy_create_engine
from sqlalchemy.util import LRUCache
from werkzeug.routing import Rule

_Key = tuple[Any, ...]


class _SharedStatements:
    """The statement cache of an engine. Dialects of the same kind share entries."""

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
_BUILDERS: dict[tuple[str, str, bool], Any] = {}
"""Builders of URLs for routes without arguments. They take the rule as a parameter."""


def _create_engine(*args: Any, **options: Any) -> Engine:
    engine = sqlalchemy_create_engine(*args, **options)
    engine.update_execution_options(compiled_cache=_STATEMENTS)
    return engine


def _shared(compile_builder: Callable[[Rule, bool], Any]) -> Callable[..., Any]:
    def compile_once(rule: Rule, append_unknown: bool = True) -> Any:
        if rule.arguments or rule.defaults:
            return compile_builder(rule, append_unknown)
        key = (rule.rule, rule.host or rule.subdomain or "", append_unknown)
        if key not in _BUILDERS:
            _BUILDERS[key] = compile_builder(rule, append_unknown)
        return _BUILDERS[key]

    return compile_once


class _Templates(BytecodeCache):
    """The compiled templates, by their path and content."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if (kept := self._kept.get((bucket.key, bucket.checksum))) is not None:
            bucket.bytecode_from_string(kept)

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._kept[bucket.key, bucket.checksum] = bucket.bytecode_to_string()


def share_compiled() -> None:
    """Shares from now on what this process compiles."""
    patch = pytest.MonkeyPatch()
    patch.setattr("app.foundation.database.engine.create_engine", _create_engine)
    patch.setattr("app.service.console.rendering.Environment", partial(Environment, bytecode_cache=_Templates()))
    patch.setattr(Rule, "_compile_builder", _shared(Rule._compile_builder))
