"""Databases: connections, transactions, errors and migrations, the same on SQLite and PostgreSQL."""
