"""Base classes of tables, and helpers for statements."""
