"""Directories in databases, for lists of access."""

from tests.worlds.access_model import stored_directory

__all__ = ["stored_directory"]
