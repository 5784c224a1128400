"""Opening a database: SQLite or PostgreSQL, with transactions that mean the same on both."""
