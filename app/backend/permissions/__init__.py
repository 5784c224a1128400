"""Permissions: handlers, and the access check by the backend's data or by a permission provider."""
