"""Refreshes: reads and pushes become the next revision of the access model."""
