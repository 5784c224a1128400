"""The world of synchronization, for all tests of what is sent and what is made of answers."""

from tests.worlds.syncing import company, fill, world

__all__ = ["company", "fill", "world"]
