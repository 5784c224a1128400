"""Fixtures of the tests of plans."""

from tests.worlds.planning import new_directory, now, now_ms, world

__all__ = ["new_directory", "now", "now_ms", "world"]
