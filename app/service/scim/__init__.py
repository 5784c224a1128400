"""Directories push users and groups with SCIM 2.0."""
