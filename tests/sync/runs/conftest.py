"""Fixtures of the tests of runs."""

from tests.worlds.syncing import company, fill, world

__all__ = ["company", "fill", "world"]
