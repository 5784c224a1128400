"""Migrations of documents, with their data, to another id."""
