"""Loads and merges settings, explains errors in them, and shows them."""
