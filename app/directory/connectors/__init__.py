"""Connectors: the sources that import libraries of databases and protocols."""
