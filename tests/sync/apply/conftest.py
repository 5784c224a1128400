"""Fixtures of the tests of applying."""

from tests.worlds.syncing import company, fill, world

__all__ = ["company", "fill", "world"]
