"""Directories in databases, read by queries."""
