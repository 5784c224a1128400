"""Reads the users and groups that a directory pushed with SCIM."""
