"""Access models in memory and in databases, for all tests of decisions."""

from tests.worlds.access_model import from_wire, memory_view, stored_directory, viewed_directory

__all__ = ["from_wire", "memory_view", "stored_directory", "viewed_directory"]
