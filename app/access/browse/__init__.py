"""Queries of the console's pages about the access model."""
